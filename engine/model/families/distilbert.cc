// model_type "distilbert": DistilBertModel as Hugging Face saves it, with the defaults of
// DistilBertConfig.
#include <string>
#include <string_view>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"
#include "engine/model/families/transformers_keys.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

// Dropout, and how a position table that was never trained begins: files carry the table.
constexpr std::string_view kHarmlessKeys[] = {"dropout",      "attention_dropout",
                                              "qa_dropout",   "seq_classif_dropout",
                                              "tie_weights_", "sinusoidal_pos_embds"};

void NameTensors(EncoderSpec& spec) {
  spec.word_embedding.weight = "embeddings.word_embeddings.weight";
  spec.position_embedding.weight = "embeddings.position_embeddings.weight";
  spec.embedding_norm = WithBias("embeddings.LayerNorm");
  const std::string block = "transformer.layer.{layer}.";
  spec.query = WithBias(block + "attention.q_lin");
  spec.key = WithBias(block + "attention.k_lin");
  spec.value = WithBias(block + "attention.v_lin");
  spec.attention_output = WithBias(block + "attention.out_lin");
  spec.norm1 = WithBias(block + "sa_layer_norm");
  spec.ffn_in = WithBias(block + "ffn.lin1");
  spec.ffn_out = WithBias(block + "ffn.lin2");
  spec.norm2 = WithBias(block + "output_layer_norm");
  spec.harmless = {"embeddings.position_ids"};
}

constexpr HeadLayer kDistilWords[] = {{.name = "vocab_transform", .activation = kModelsOwn},
                                      {.name = "vocab_layer_norm", .norm = true},
                                      {.name = "vocab_projector", .out = HeadWidth::kVocab}};
constexpr HeadLayer kDistilLabels[] = {{.name = "pre_classifier", .activation = Activation::kRelu},
                                       {.name = "classifier", .out = HeadWidth::kLabels}};
constexpr Head kHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kDistilWords},
                           {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
                           {"ForSequenceClassification", HeadRows::kSequences, kDistilLabels}};

}  // namespace

EncoderSpec DistilBertSpec(ConfigReader& config) {
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  spec.vocab_size = config.Size("vocab_size", 30522);
  spec.positions = PositionKind::kLearned;
  spec.max_positions = config.Size("max_position_embeddings", 512);
  spec.num_layers = config.Size("n_layers", 6);
  spec.hidden_size = config.Size("dim", 768);
  spec.num_heads = config.Size("n_heads", 12);
  config.CheckDivides("n_heads", spec.num_heads, "dim", spec.hidden_size);
  spec.ffn_size = config.Size("hidden_dim", 3072);
  spec.norm_eps = 1e-12;  // the library has no key for it
  spec.qkv = QkvLayout::kSeparate;
  spec.score_scale = spec.usual_score_scale();
  spec.activation =
      config.Choice("activation", kTransformersActivations, std::optional(Activation::kGelu));
  NameTensors(spec);
  ReadTransformersKeys(config);
  RefuseRotationKeys(config);
  RefuseOwnCode(config);
  config.Ignore(kHarmlessKeys);
  ReadHead(config, "distilbert.", kHeads, spec);
  return spec;
}

}  // namespace encoderd
