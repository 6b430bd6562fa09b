// model_type "bert": BertModel as Hugging Face saves it, with the defaults of BertConfig.
#include "engine/model/families/bert.h"

#include <string>

#include "engine/model/families.h"
#include "engine/model/families/transformers_keys.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

// The pooler lies in the encoder.
constexpr HeadLayer kBertWords[] = {
    {.name = "cls.predictions.transform.dense", .activation = kModelsOwn},
    {.name = "cls.predictions.transform.LayerNorm", .norm = true},
    {.name = "cls.predictions.decoder", .out = HeadWidth::kVocab, .bias = "cls.predictions.bias"}};
constexpr HeadLayer kBertLabels[] = {{.name = "bert.pooler.dense", .activation = Activation::kTanh},
                                     {.name = "classifier", .out = HeadWidth::kLabels}};
constexpr Head kHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kBertWords},
                           {"ForPreTraining", HeadRows::kTokens, kBertWords},
                           {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
                           {"ForSequenceClassification", HeadRows::kSequences, kBertLabels}};

}  // namespace

void ReadBertSizes(ConfigReader& config, const BertDefaults& defaults, EncoderSpec& spec) {
  spec.num_layers = config.Size("num_hidden_layers", defaults.num_layers);
  spec.hidden_size = config.Size("hidden_size", defaults.hidden_size);
  spec.num_heads = config.Size("num_attention_heads", defaults.num_heads);
  config.CheckDivides("num_attention_heads", spec.num_heads, "hidden_size", spec.hidden_size);
  spec.ffn_size = config.Size("intermediate_size", defaults.ffn_size);
}

EncoderSpec ReadBertKeys(ConfigReader& config, const BertDefaults& defaults) {
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  spec.vocab_size = config.Size("vocab_size", defaults.vocab_size);
  spec.type_vocab_size = config.Size("type_vocab_size", 2);
  spec.positions = PositionKind::kLearned;
  // The key counts the rows of the table; those up to the padding's serve no text.
  spec.position_padding_id = defaults.padding_id;
  const int64_t rows_before_text = defaults.padding_id + 1;
  spec.max_positions = config.Size("max_position_embeddings", 512, /*least=*/rows_before_text + 1) -
                       rows_before_text;
  ReadBertSizes(config, defaults, spec);
  spec.norm_eps = config.Positive("layer_norm_eps", 1e-12);
  spec.qkv = QkvLayout::kSeparate;
  spec.score_scale = spec.usual_score_scale();
  spec.activation =
      config.Choice("hidden_act", kTransformersActivations, std::optional(defaults.activation));
  config.Only("position_embedding_type", defaults.position_embedding_type,
              ConfigReader::Changes::kTensors);
  ReadTransformersKeys(config);
  RefuseRotationKeys(config);
  if (defaults.own_code) {
    config.Ignore(kOwnCodeKeys);
  } else {
    RefuseOwnCode(config);
  }
  return spec;
}

void NameBertEmbeddings(EncoderSpec& spec) {
  spec.word_embedding.weight = "embeddings.word_embeddings.weight";
  spec.position_embedding.weight = "embeddings.position_embeddings.weight";
  spec.type_embedding.weight = "embeddings.token_type_embeddings.weight";
  spec.embedding_norm = WithBias("embeddings.LayerNorm");
  // Checkpoints that were converted from TensorFlow.
  spec.aliases = {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}};
  // Buffers 0 … n-1 and all zeros, which older versions saved with the weights.
  spec.harmless = {"embeddings.position_ids", "embeddings.token_type_ids"};
}

void NameBertBlocks(EncoderSpec& spec) {
  const std::string block = "encoder.layer.{layer}.";
  spec.query = WithBias(block + "attention.self.query");
  spec.key = WithBias(block + "attention.self.key");
  spec.value = WithBias(block + "attention.self.value");
  spec.attention_output = WithBias(block + "attention.output.dense");
  spec.norm1 = WithBias(block + "attention.output.LayerNorm");
  spec.ffn_in = WithBias(block + "intermediate.dense");
  spec.ffn_out = WithBias(block + "output.dense");
  spec.norm2 = WithBias(block + "output.LayerNorm");
}

void AddTanhPooler(const TensorNames& names, EncoderSpec& spec) {
  spec.pooler = {{.names = names, .out = spec.hidden_size, .activation = Activation::kTanh}};
  spec.pooler_optional = true;
}

void ReadBertHead(ConfigReader& config, EncoderSpec& spec) {
  ReadHead(config, "bert.", kHeads, spec);
}

EncoderSpec BertSpec(ConfigReader& config) {
  // JinaBERT names itself BERT.
  const nlohmann::json* positions = config.Find("position_embedding_type");
  if (positions != nullptr && *positions == "alibi") return JinaBertSpec(config);
  EncoderSpec spec = ReadBertKeys(config, {});
  NameBertEmbeddings(spec);
  NameBertBlocks(spec);
  AddTanhPooler(WithBias("pooler.dense"), spec);
  ReadBertHead(config, spec);
  return spec;
}

}  // namespace encoderd
