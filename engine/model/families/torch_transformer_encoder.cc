// model_type "torch_transformer_encoder": torch.nn.TransformerEncoder, by the arguments of
// TransformerEncoderLayer and with their defaults (PyTorch 2.6). The final norm is used when the
// file has it.
#include <array>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"

namespace encoderd {

EncoderSpec TorchTransformerEncoderSpec(ConfigReader& config) {
  // torch's own "gelu" is the exact form.
  static constexpr NamedValue<Activation> kActivations[] = {{"relu", Activation::kRelu},
                                                            {"gelu", Activation::kGelu}};
  static constexpr std::array<std::string_view, 3> kHarmless = {"dropout", "batch_first",
                                                                "enable_nested_tensor"};
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kVectors;
  spec.hidden_size = spec.input_dim = config.Size("d_model");
  spec.num_heads = config.Size("nhead");
  config.CheckDivides("nhead", spec.num_heads, "d_model", spec.hidden_size);
  spec.num_layers = config.Size("num_layers");
  spec.ffn_size = config.Size("dim_feedforward", 2048);
  spec.activation = config.Choice("activation", kActivations, std::optional(Activation::kRelu));
  spec.norm = config.Bool("norm_first", false) ? NormPlacement::kPre : NormPlacement::kPost;
  spec.norm_eps = config.Positive("layer_norm_eps", 1e-5);
  spec.qkv = QkvLayout::kFused;
  spec.score_scale = spec.usual_score_scale();

  const std::string block = "layers.{layer}.";
  spec.fused_qkv = {block + "self_attn.in_proj_weight", block + "self_attn.in_proj_bias"};
  spec.attention_output = WithBias(block + "self_attn.out_proj");
  spec.norm1 = WithBias(block + "norm1");
  spec.ffn_in = WithBias(block + "linear1");
  spec.ffn_out = WithBias(block + "linear2");
  spec.norm2 = WithBias(block + "norm2");
  spec.final_norm = WithBias("norm");
  spec.final_norm_optional = true;
  config.Only("bias", true, ConfigReader::Changes::kTensors);
  config.Ignore(kHarmless);
  return spec;
}

}  // namespace encoderd
