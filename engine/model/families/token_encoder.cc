// model_type "token_encoder": token ids, an embedding table without positions, post-norm blocks
// with separate projections, and a layer that gives each token's logits over the vocabulary.

#include "engine/model/config_reader.h"
#include "engine/model/families.h"

namespace encoderd {

EncoderSpec TokenEncoderSpec(ConfigReader& config) {
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
  spec.score_scale = spec.usual_score_scale();
  spec.activation = Activation::kRelu;

  spec.word_embedding.weight = "embedding.weight";
  const std::string block = "transformer_blocks.{layer}.";
  spec.query = WithBias(block + "self_attn.query");
  spec.key = WithBias(block + "self_attn.key");
  spec.value = WithBias(block + "self_attn.value");
  spec.attention_output = WithBias(block + "self_attn.fc");
  spec.norm1 = WithBias(block + "norm1");
  spec.ffn_in = WithBias(block + "feed_forward.0");
  spec.ffn_out = WithBias(block + "feed_forward.2");
  spec.norm2 = WithBias(block + "norm2");
  spec.logits = {{.names = WithBias("fc"), .out = spec.vocab_size}};
  config.Ignore({{"dropout"}});
  return spec;
}

}  // namespace encoderd
