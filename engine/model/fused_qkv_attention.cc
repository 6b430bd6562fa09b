// model_type "fused_qkv_attention": multi-head attention whose q, k and v come out of one
// projection, grouped by head; alone, or as a stack of post-norm blocks with optional input and
// output layers.
#include <cmath>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

// Attention and nothing else: one block without residual, norm and FFN.
void ReadAttention(EncoderSpec& spec) {
  spec.num_layers = 1;
  spec.residual = false;
  spec.norm = NormPlacement::kNone;
  spec.fused_qkv = {"qkv_proj.weight", "qkv_proj.bias"};
  spec.attention_output = {"o_proj.weight", "o_proj.bias"};
}

void ReadStack(ConfigReader& config, EncoderSpec& spec) {
  spec.num_layers = config.Size("num_layers");
  spec.ffn_size = config.Size("ffn_dim");
  spec.activation = Activation::kRelu;
  const std::string block = "layers.{layer}.";
  spec.fused_qkv = {block + "self_attn.qkv_proj.weight", block + "self_attn.qkv_proj.bias"};
  spec.attention_output = {block + "self_attn.o_proj.weight", block + "self_attn.o_proj.bias"};
  spec.norm1 = {block + "norm1.weight", block + "norm1.bias"};
  spec.ffn_in = {block + "linear_net.0.weight", block + "linear_net.0.bias"};
  spec.ffn_out = {block + "linear_net.3.weight", block + "linear_net.3.bias"};
  spec.norm2 = {block + "norm2.weight", block + "norm2.bias"};

  if (config.Find("max_len") != nullptr) {
    spec.positions = PositionKind::kSinusoidal;
    spec.max_positions = config.Size("max_len");
  }
  if (config.Bool("input_net", false)) {
    spec.input_steps = {
        {.names = {"input_net.1.weight", "input_net.1.bias"}, .out = spec.hidden_size}};
  } else if (spec.input_dim != spec.hidden_size) {
    config.Fault("input_dim", "the value of embed_dim in a stack without input_net");
  }
  if (config.Bool("output_net", false)) {
    spec.logits = {
        {.names = {"output_net.0.weight", "output_net.0.bias"}, .out = spec.hidden_size},
        {.kind = Step::Kind::kNorm,
         .names = {"output_net.1.weight", "output_net.1.bias"},
         .out = spec.hidden_size,
         .activation = Activation::kRelu},
        {.names = {"output_net.4.weight", "output_net.4.bias"}, .out = config.Size("num_classes")}};
  } else if (config.Find("num_classes") != nullptr) {
    config.Fault("num_classes", "no such key without output_net");
  }
}

}  // namespace

absl::StatusOr<EncoderSpec> FusedQkvAttentionSpec(const nlohmann::json& json) {
  Faults faults;
  ConfigReader config(json, "", &faults);
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kVectors;
  spec.input_dim = config.Size("input_dim");
  spec.hidden_size = config.Size("embed_dim");
  spec.num_heads = config.Size("num_heads");
  config.CheckDivides("num_heads", spec.num_heads, "embed_dim", spec.hidden_size);
  spec.qkv = QkvLayout::kFusedByHead;
  spec.score_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim()));
  // A key of the stack alone makes it one: "ffn_dim" without "num_layers" is then a fault.
  bool stack = false;
  for (const char* key :
       {"num_layers", "ffn_dim", "max_len", "num_classes", "input_net", "output_net"}) {
    stack = stack || json.contains(key);
  }
  if (stack) {
    ReadStack(config, spec);
  } else {
    ReadAttention(spec);
  }
  config.Ignore({{"dropout"}});
  config.Finish();
  RETURN_IF_ERROR(faults.ToStatus("config.json"));
  return spec;
}

}  // namespace encoderd
