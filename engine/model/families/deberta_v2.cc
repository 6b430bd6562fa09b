// model_type "deberta-v2" (DeBERTa-v2 and v3): DebertaV2Model as Hugging Face saves it, with the
// defaults of DebertaV2Config: BERT's blocks with disentangled attention (He et al. 2021).
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/model/families.h"
#include "engine/model/families/bert.h"
#include "engine/model/families/transformers_keys.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

// Dropout, parts that are not there, and what heads.h alone reads.
constexpr std::string_view kHarmlessKeys[] = {
    "pooler_dropout",      "cls_dropout",      "conv_act",
    "conv_groups",         "legacy",           "pooler_hidden_act",
    "summary_type",        "summary_use_proj", "summary_activation",
    "summary_last_dropout"};
// Without relative attention they are never read.
constexpr std::string_view kRelativeKeys[] = {"position_buckets", "max_relative_positions",
                                              "share_att_key", "norm_rel_ebd"};

constexpr NamedValue<bool> kTableNorms[] = {{"none", false}, {"layer_norm", true}};

void ReadSizes(ConfigReader& config, EncoderSpec& spec) {
  spec.vocab_size = config.Size("vocab_size", 128100);
  spec.type_vocab_size = config.Size("type_vocab_size", 0, /*least=*/0);
  ReadBertSizes(config, {.num_layers = 24, .hidden_size = 1536, .num_heads = 24, .ffn_size = 6144},
                spec);
  config.Only("attention_head_size", spec.head_dim());
  spec.norm_eps = config.Positive("layer_norm_eps", 1e-7);
  spec.activation =
      config.Choice("hidden_act", kTransformersActivations, std::optional(Activation::kGelu));
  config.Only("conv_kernel_size", 0);
}

// Words, and positions where they have a table. Narrow tables are mapped in front of their norm.
void ReadEmbeddings(ConfigReader& config, EncoderSpec& spec) {
  NameBertEmbeddings(spec);
  if (spec.type_vocab_size == 0) spec.type_embedding = {};
  const int64_t rows = config.Size("max_position_embeddings", 512);
  if (config.Bool("position_biased_input", true)) {
    spec.positions = PositionKind::kLearned;
    spec.max_positions = rows;
  } else {
    // Files may have the table nevertheless.
    spec.harmless.push_back(std::exchange(spec.position_embedding, {}).weight);
  }
  const int64_t width = config.Size("embedding_size", spec.hidden_size);
  if (width == spec.hidden_size) return;
  spec.word_width = width;
  spec.embedding_steps = {{.names = {"embeddings.embed_proj.weight", ""}, .out = spec.hidden_size},
                          {.kind = Step::Kind::kNorm,
                           .names = std::exchange(spec.embedding_norm, {}),
                           .out = spec.hidden_size}};
}

void NameBlocks(EncoderSpec& spec) {
  NameBertBlocks(spec);
  const std::string attention = "encoder.layer.{layer}.attention.self.";
  spec.query = WithBias(attention + "query_proj");
  spec.key = WithBias(attention + "key_proj");
  spec.value = WithBias(attention + "value_proj");
}

// The products of content and positions: names in a list, or in a text with bars between them.
void ReadProducts(ConfigReader& config, EncoderSpec& spec) {
  spec.content_to_position = spec.position_to_content = false;
  const nlohmann::json* value = config.Find("pos_att_type");
  std::vector<std::string> names;
  if (value != nullptr && value->is_string()) {
    for (const absl::string_view name : absl::StrSplit(value->get<std::string>(), '|')) {
      names.push_back(absl::AsciiStrToLower(absl::StripAsciiWhitespace(name)));
    }
  } else if (value != nullptr && value->is_array()) {
    for (const nlohmann::json& name : *value) {
      names.push_back(name.is_string() ? name.get<std::string>() : "");
    }
  } else if (value != nullptr && !value->is_null()) {
    names.push_back("");
  }
  for (const std::string& name : names) {
    if (name == "c2p") {
      spec.content_to_position = true;
    } else if (name == "p2c") {
      spec.position_to_content = true;
    } else {
      config.Fault("pos_att_type", "\"c2p\" and \"p2c\", in a list or with | between them");
      return;
    }
  }
}

// The table of relative positions.
void ReadRelativeAttention(ConfigReader& config, EncoderSpec& spec) {
  ReadProducts(config, spec);
  // The class counts the products whether or not it makes them.
  const int products = 1 + (spec.content_to_position ? 1 : 0) + (spec.position_to_content ? 1 : 0);
  spec.score_scale = 1 / std::sqrt(static_cast<double>(products * spec.head_dim()));
  const TensorNames table = {"encoder.rel_embeddings.weight", ""};
  const TensorNames norm = WithBias("encoder.LayerNorm");
  config.Ignore(kRelativeKeys);
  if (!config.Bool("relative_attention", false) || products == 1) {
    spec.content_to_position = spec.position_to_content = true;
    spec.harmless.insert(spec.harmless.end(), {table.weight, norm.weight, norm.bias});
    return;
  }
  spec.position_bias = PositionBiasKind::kDisentangled;
  spec.relative_embedding = table;
  if (config.Choice("norm_rel_ebd", kTableNorms, std::optional(false))) {
    spec.relative_embedding_norm = norm;
  }
  const int64_t buckets = config.Size("position_buckets", -1, /*least=*/-1);
  const int64_t reach = config.Size("max_relative_positions", -1, /*least=*/-1);
  spec.bias_max_distance = reach >= 1 ? reach : config.Size("max_position_embeddings", 512);
  if (buckets > 0) spec.bias_buckets = 2 * buckets;
  if (buckets > 0 && buckets % 2 != 0) config.Fault("position_buckets", "an even number");
  if (buckets > 0 && spec.bias_max_distance < buckets / 2 + 2) {
    config.Fault("position_buckets", absl::StrCat("at most ", 2 * (spec.bias_max_distance - 2),
                                                  " for that many relative positions"));
  }
  if (config.Bool("share_att_key", false)) return;
  const std::string attention = "encoder.layer.{layer}.attention.self.";
  if (spec.content_to_position) spec.position_key = WithBias(attention + "pos_key_proj");
  if (spec.position_to_content) spec.position_query = WithBias(attention + "pos_query_proj");
}

// Two heads over the vocabulary, the second one as the models were trained.
constexpr HeadLayer kDebertaLegacyWords[] = {
    {.name = "cls.predictions.transform.dense", .out = HeadWidth::kWord, .activation = kModelsOwn},
    {.name = "cls.predictions.transform.LayerNorm", .norm = true},
    {.name = "cls.predictions.decoder", .out = HeadWidth::kVocab, .bias = "cls.predictions.bias"}};
constexpr HeadLayer kDebertaWords[] = {
    {.name = "lm_predictions.lm_head.dense", .activation = kModelsOwn},
    {.name = "lm_predictions.lm_head.LayerNorm", .norm = true},
    {.name = "lm_predictions.lm_head.decoder",
     .out = HeadWidth::kVocab,
     .bias = "lm_predictions.lm_head.bias"}};
constexpr HeadLayer kDebertaLabels[] = {
    {.name = "pooler.dense", .activation_key = "pooler_hidden_act"},
    {.name = "classifier", .out = HeadWidth::kLabels}};
constexpr Head kHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kDebertaWords, /*unless=*/"legacy"},
                           {"ForMaskedLM", HeadRows::kTokens, kDebertaLegacyWords},
                           {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
                           {"ForSequenceClassification", HeadRows::kSequences, kDebertaLabels}};

}  // namespace

EncoderSpec DebertaV2Spec(ConfigReader& config) {
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  spec.qkv = QkvLayout::kSeparate;
  ReadSizes(config, spec);
  ReadEmbeddings(config, spec);
  NameBlocks(spec);
  ReadRelativeAttention(config, spec);
  ReadTransformersKeys(config);
  RefuseRotationKeys(config);
  RefuseOwnCode(config);
  config.Ignore(kHarmlessKeys);
  config.Only("pooler_hidden_size", spec.hidden_size);
  ReadHead(config, "deberta.", kHeads, spec);
  return spec;
}

}  // namespace encoderd
