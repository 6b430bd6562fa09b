// model_type "bert": BertModel as Hugging Face saves it, with the defaults of BertConfig.
#include <cmath>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"
#include "engine/model/transformers_keys.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

void NameTensors(EncoderSpec& spec) {
  spec.word_embedding.weight = "embeddings.word_embeddings.weight";
  spec.position_embedding.weight = "embeddings.position_embeddings.weight";
  spec.type_embedding.weight = "embeddings.token_type_embeddings.weight";
  spec.embedding_norm = {"embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"};
  const auto dense = [](const std::string& name) {
    return TensorNames{"encoder.layer.{layer}." + name + ".weight",
                       "encoder.layer.{layer}." + name + ".bias"};
  };
  spec.query = dense("attention.self.query");
  spec.key = dense("attention.self.key");
  spec.value = dense("attention.self.value");
  spec.attention_output = dense("attention.output.dense");
  spec.norm1 = dense("attention.output.LayerNorm");
  spec.ffn_in = dense("intermediate.dense");
  spec.ffn_out = dense("output.dense");
  spec.norm2 = dense("output.LayerNorm");
  spec.pooler = {{.names = {"pooler.dense.weight", "pooler.dense.bias"},
                  .out = spec.hidden_size,
                  .activation = Activation::kTanh}};
  spec.pooler_optional = true;
  // Checkpoints that were converted from TensorFlow.
  spec.aliases = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
  // Buffers 0 … n-1 and all zeros, which older versions saved with the weights.
  spec.harmless = {"embeddings.position_ids", "embeddings.token_type_ids"};
}

}  // namespace

absl::StatusOr<EncoderSpec> BertSpec(const nlohmann::json& json) {
  Faults faults;
  ConfigReader config(json, "", &faults);
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  spec.vocab_size = config.Size("vocab_size", 30522);
  spec.type_vocab_size = config.Size("type_vocab_size", 2);
  spec.positions = PositionKind::kLearned;
  spec.max_positions = config.Size("max_position_embeddings", 512);
  spec.num_layers = config.Size("num_hidden_layers", 12);
  spec.hidden_size = config.Size("hidden_size", 768);
  spec.num_heads = config.Size("num_attention_heads", 12);
  config.CheckDivides("num_attention_heads", spec.num_heads, "hidden_size", spec.hidden_size);
  spec.ffn_size = config.Size("intermediate_size", 3072);
  spec.norm_eps = config.Positive("layer_norm_eps", 1e-12);
  spec.qkv = QkvLayout::kSeparate;
  spec.score_scale = 1 / std::sqrt(static_cast<double>(spec.head_dim()));
  spec.activation =
      config.Choice("hidden_act", kTransformersActivations, std::optional(Activation::kGelu));
  NameTensors(spec);
  config.Only("position_embedding_type", "absolute");
  RefuseTransformersSwitches(config);
  config.Ignore(kTransformersHarmlessKeys);
  config.Finish();
  RETURN_IF_ERROR(faults.ToStatus("config.json"));
  return spec;
}

}  // namespace encoderd
