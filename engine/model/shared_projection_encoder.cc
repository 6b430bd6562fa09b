// model_type "shared_projection_encoder": post-norm blocks on input vectors, whose q, k and v come
// from one d × d matrix each that all heads share. Scores are divided by the root of the embed
// size, not of the head's.
#include <cmath>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"
#include "engine/status_macros.h"

namespace encoderd {

absl::StatusOr<EncoderSpec> SharedProjectionEncoderSpec(const nlohmann::json& json) {
  Faults faults;
  ConfigReader config(json, "", &faults);
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kVectors;
  spec.hidden_size = spec.input_dim = config.Size("embed_size");
  spec.num_heads = config.Size("heads");
  config.CheckDivides("heads", spec.num_heads, "embed_size", spec.hidden_size);
  spec.num_layers = config.Size("num_layers");
  spec.ffn_size = config.Size("forward_expansion") * spec.hidden_size;
  spec.qkv = QkvLayout::kSharedByHeads;
  spec.score_scale = 1 / std::sqrt(static_cast<double>(spec.hidden_size));
  spec.activation = Activation::kRelu;

  const std::string block = "layers.{layer}.";
  spec.query = {block + "attention.queries.weight", ""};
  spec.key = {block + "attention.keys.weight", ""};
  spec.value = {block + "attention.values.weight", ""};
  spec.attention_output = {block + "attention.fc_out.weight", block + "attention.fc_out.bias"};
  spec.norm1 = {block + "norm1.weight", block + "norm1.bias"};
  spec.ffn_in = {block + "feed_forward.0.weight", block + "feed_forward.0.bias"};
  spec.ffn_out = {block + "feed_forward.2.weight", block + "feed_forward.2.bias"};
  spec.norm2 = {block + "norm2.weight", block + "norm2.bias"};
  config.Ignore({{"dropout"}});
  config.Finish();
  RETURN_IF_ERROR(faults.ToStatus("config.json"));
  return spec;
}

}  // namespace encoderd
