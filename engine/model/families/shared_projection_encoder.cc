// model_type "shared_projection_encoder": post-norm blocks on input vectors, whose q, k and v come
// from one d × d matrix each that all heads share. Scores are divided by the root of the embed
// size, not of the head's.
#include <cmath>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"

namespace encoderd {

EncoderSpec SharedProjectionEncoderSpec(ConfigReader& config) {
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
  spec.attention_output = WithBias(block + "attention.fc_out");
  spec.norm1 = WithBias(block + "norm1");
  spec.ffn_in = WithBias(block + "feed_forward.0");
  spec.ffn_out = WithBias(block + "feed_forward.2");
  spec.norm2 = WithBias(block + "norm2");
  config.Ignore({{"dropout"}});
  return spec;
}

}  // namespace encoderd
