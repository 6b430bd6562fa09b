// model_type "fused_qkv_attention": multi-head attention whose q, k and v come out of one
// projection, grouped by head; alone, or as a stack of post-norm blocks with optional input and
// output layers.

#include "engine/model/config_reader.h"
#include "engine/model/families.h"

namespace encoderd {
namespace {

// Attention and nothing else: one block without residual, norm and FFN.
void ReadAttention(EncoderSpec& spec) {
  spec.num_layers = 1;
  spec.residual = false;
  spec.norm = NormPlacement::kNone;
  spec.fused_qkv = WithBias("qkv_proj");
  spec.attention_output = WithBias("o_proj");
}

void ReadStack(ConfigReader& config, EncoderSpec& spec) {
  spec.num_layers = config.Size("num_layers");
  spec.ffn_size = config.Size("ffn_dim");
  spec.activation = Activation::kRelu;
  const std::string block = "layers.{layer}.";
  spec.fused_qkv = WithBias(block + "self_attn.qkv_proj");
  spec.attention_output = WithBias(block + "self_attn.o_proj");
  spec.norm1 = WithBias(block + "norm1");
  spec.ffn_in = WithBias(block + "linear_net.0");
  spec.ffn_out = WithBias(block + "linear_net.3");
  spec.norm2 = WithBias(block + "norm2");

  if (config.Find("max_len") != nullptr) {
    spec.positions = PositionKind::kSinusoidal;
    spec.max_positions = config.Size("max_len");
  }
  if (config.Bool("input_net", false)) {
    spec.input_steps = {{.names = WithBias("input_net.1"), .out = spec.hidden_size}};
  } else if (spec.input_dim != spec.hidden_size) {
    config.Fault("input_dim", "the value of embed_dim in a stack without input_net");
  }
  if (config.Bool("output_net", false)) {
    spec.logits = {{.names = WithBias("output_net.0"), .out = spec.hidden_size},
                   {.kind = Step::Kind::kNorm,
                    .names = WithBias("output_net.1"),
                    .out = spec.hidden_size,
                    .activation = Activation::kRelu},
                   {.names = WithBias("output_net.4"), .out = config.Size("num_classes")}};
  } else if (config.Find("num_classes") != nullptr) {
    config.Fault("num_classes", "no such key without output_net");
  }
}

}  // namespace

EncoderSpec FusedQkvAttentionSpec(ConfigReader& config) {
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kVectors;
  spec.input_dim = config.Size("input_dim");
  spec.hidden_size = config.Size("embed_dim");
  spec.num_heads = config.Size("num_heads");
  config.CheckDivides("num_heads", spec.num_heads, "embed_dim", spec.hidden_size);
  spec.qkv = QkvLayout::kFusedByHead;
  spec.score_scale = spec.usual_score_scale();
  // A key of the stack alone makes it one: "ffn_dim" without "num_layers" is then a fault.
  bool stack = false;
  for (const char* key :
       {"num_layers", "ffn_dim", "max_len", "num_classes", "input_net", "output_net"}) {
    stack = stack || config.Find(key) != nullptr;
  }
  if (stack) {
    ReadStack(config, spec);
  } else {
    ReadAttention(spec);
  }
  config.Ignore({{"dropout"}});
  return spec;
}

}  // namespace encoderd
