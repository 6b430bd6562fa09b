// model_type "token_encoder": token ids, an embedding table without positions, post-norm blocks
// with separate projections, and a layer that gives each token's logits over the vocabulary.
#include <cmath>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"
#include "engine/status_macros.h"

namespace encoderd {

absl::StatusOr<EncoderSpec> TokenEncoderSpec(const nlohmann::json& json) {
  Faults faults;
  ConfigReader config(json, "", &faults);
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  spec.vocab_size = config.Size("input_size");
  spec.hidden_size = config.Size("hidden_size");
  spec.num_heads = config.Size("num_heads");
  config.CheckDivides("num_heads", spec.num_heads, "hidden_size", spec.hidden_size);
  spec.num_layers = config.Size("num_layers");
  spec.ffn_size = 4 * spec.hidden_size;
  spec.qkv = QkvLayout::kSeparate;
  spec.score_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim()));
  spec.activation = Activation::kRelu;

  spec.word_embedding.weight = "embedding.weight";
  const std::string block = "transformer_blocks.{layer}.";
  spec.query = {block + "self_attn.query.weight", block + "self_attn.query.bias"};
  spec.key = {block + "self_attn.key.weight", block + "self_attn.key.bias"};
  spec.value = {block + "self_attn.value.weight", block + "self_attn.value.bias"};
  spec.attention_output = {block + "self_attn.fc.weight", block + "self_attn.fc.bias"};
  spec.norm1 = {block + "norm1.weight", block + "norm1.bias"};
  spec.ffn_in = {block + "feed_forward.0.weight", block + "feed_forward.0.bias"};
  spec.ffn_out = {block + "feed_forward.2.weight", block + "feed_forward.2.bias"};
  spec.norm2 = {block + "norm2.weight", block + "norm2.bias"};
  spec.logits = {{.names = {"fc.weight", "fc.bias"}, .out = spec.vocab_size}};
  config.Ignore({{"dropout"}});
  config.Finish();
  RETURN_IF_ERROR(faults.ToStatus("config.json"));
  return spec;
}

}  // namespace encoderd
