#include "engine/model/heads.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/model/spec_json.h"
#include "engine/model/transformers_keys.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

enum class Width { kHidden, kWord, kVocab, kLabels, kOne };

// One layer of a head, by the name in front of ".weight" and ".bias".
struct Layer {
  std::string_view name;
  Width out = Width::kHidden;
  // Absent: the model's own.
  std::optional<Activation> activation = Activation::kNone;
  bool norm = false;
  // Of a product over the vocabulary: what else its bias is called.
  std::string_view bias = {};
  // Keys of the configuration, where there are any, that name the activation (by default GELU) and
  // say whether there is a bias.
  std::string_view activation_key = {};
  std::string_view bias_key = {};
  bool bias_by_default = false;
};

enum class Rows { kTokens, kSequences };

struct Head {
  std::string_view class_ending;
  Rows rows = Rows::kTokens;
  std::span<const Layer> layers;
  // A key, true where it is absent, that must be false for the class to have this head.
  std::string_view unless = {};
};

struct Family {
  std::string_view model_type;
  std::string_view prefix;  // of the encoder's tensors beside a head
  std::span<const Head> heads;
};

constexpr std::optional<Activation> kModelsOwn = std::nullopt;
constexpr Layer kTokenLabels[] = {{.name = "classifier", .out = Width::kLabels}};

// ---- BERT: the pooler lies in the encoder -------------------------------------------------------

constexpr Layer kBertWords[] = {
    {.name = "cls.predictions.transform.dense", .activation = kModelsOwn},
    {.name = "cls.predictions.transform.LayerNorm", .norm = true},
    {.name = "cls.predictions.decoder", .out = Width::kVocab, .bias = "cls.predictions.bias"}};
constexpr Layer kBertLabels[] = {{.name = "bert.pooler.dense", .activation = Activation::kTanh},
                                 {.name = "classifier", .out = Width::kLabels}};
constexpr Head kBertHeads[] = {{"ForMaskedLM", Rows::kTokens, kBertWords},
                               {"ForPreTraining", Rows::kTokens, kBertWords},
                               {"ForTokenClassification", Rows::kTokens, kTokenLabels},
                               {"ForSequenceClassification", Rows::kSequences, kBertLabels}};

// ---- RoBERTa and its kin, ESM -------------------------------------------------------------------

constexpr Layer kLmHeadWords[] = {
    {.name = "lm_head.dense", .activation = Activation::kGelu},
    {.name = "lm_head.layer_norm", .norm = true},
    {.name = "lm_head.decoder", .out = Width::kVocab, .bias = "lm_head.bias"}};
constexpr Layer kTanhLabels[] = {{.name = "classifier.dense", .activation = Activation::kTanh},
                                 {.name = "classifier.out_proj", .out = Width::kLabels}};
constexpr Head kLmHeadHeads[] = {{"ForMaskedLM", Rows::kTokens, kLmHeadWords},
                                 {"ForTokenClassification", Rows::kTokens, kTokenLabels},
                                 {"ForSequenceClassification", Rows::kSequences, kTanhLabels}};

// ---- DistilBERT ---------------------------------------------------------------------------------

constexpr Layer kDistilWords[] = {{.name = "vocab_transform", .activation = kModelsOwn},
                                  {.name = "vocab_layer_norm", .norm = true},
                                  {.name = "vocab_projector", .out = Width::kVocab}};
constexpr Layer kDistilLabels[] = {{.name = "pre_classifier", .activation = Activation::kRelu},
                                   {.name = "classifier", .out = Width::kLabels}};
constexpr Head kDistilHeads[] = {{"ForMaskedLM", Rows::kTokens, kDistilWords},
                                 {"ForTokenClassification", Rows::kTokens, kTokenLabels},
                                 {"ForSequenceClassification", Rows::kSequences, kDistilLabels}};

// ---- ELECTRA: a generator over words, and a discriminator that says which were replaced ---------

constexpr Layer kElectraWords[] = {
    {.name = "generator_predictions.dense", .out = Width::kWord, .activation = Activation::kGelu},
    {.name = "generator_predictions.LayerNorm", .norm = true},
    {.name = "generator_lm_head", .out = Width::kVocab}};
constexpr Layer kElectraReplaced[] = {
    {.name = "discriminator_predictions.dense", .activation = kModelsOwn},
    {.name = "discriminator_predictions.dense_prediction", .out = Width::kOne}};
constexpr Layer kElectraLabels[] = {{.name = "classifier.dense", .activation = Activation::kGelu},
                                    {.name = "classifier.out_proj", .out = Width::kLabels}};
constexpr Head kElectraHeads[] = {{"ForMaskedLM", Rows::kTokens, kElectraWords},
                                  {"ForPreTraining", Rows::kTokens, kElectraReplaced},
                                  {"ForTokenClassification", Rows::kTokens, kTokenLabels},
                                  {"ForSequenceClassification", Rows::kSequences, kElectraLabels}};

// ---- ALBERT: its vocabulary is read from vectors as narrow as the word table's ------------------

constexpr Layer kAlbertWords[] = {
    {.name = "predictions.dense", .out = Width::kWord, .activation = kModelsOwn},
    {.name = "predictions.LayerNorm", .norm = true},
    {.name = "predictions.decoder", .out = Width::kVocab, .bias = "predictions.bias"}};
constexpr Layer kAlbertLabels[] = {{.name = "albert.pooler", .activation = Activation::kTanh},
                                   {.name = "classifier", .out = Width::kLabels}};
constexpr Head kAlbertHeads[] = {{"ForMaskedLM", Rows::kTokens, kAlbertWords},
                                 {"ForPreTraining", Rows::kTokens, kAlbertWords},
                                 {"ForTokenClassification", Rows::kTokens, kTokenLabels},
                                 {"ForSequenceClassification", Rows::kSequences, kAlbertLabels}};

// ---- ModernBERT: one transformation in front of every head --------------------------------------

constexpr Layer kModernDense = {
    .name = "head.dense", .activation_key = "classifier_activation", .bias_key = "classifier_bias"};
constexpr Layer kModernNorm = {.name = "head.norm", .norm = true, .bias_key = "norm_bias"};
constexpr Layer kModernWords[] = {
    kModernDense,
    kModernNorm,
    {.name = "decoder", .out = Width::kVocab, .bias_key = "decoder_bias", .bias_by_default = true}};
constexpr Layer kModernLabels[] = {
    kModernDense, kModernNorm, {.name = "classifier", .out = Width::kLabels}};
constexpr Head kModernHeads[] = {{"ForMaskedLM", Rows::kTokens, kModernWords},
                                 {"ForTokenClassification", Rows::kTokens, kModernLabels},
                                 {"ForSequenceClassification", Rows::kSequences, kModernLabels}};

// ---- NomicBERT, in the library's classes --------------------------------------------------------

constexpr Layer kNomicWords[] = {
    {.name = "cls.predictions.transform.dense", .activation = kModelsOwn},
    {.name = "cls.predictions.transform.layer_norm", .norm = true},
    {.name = "cls.predictions.decoder", .out = Width::kVocab, .bias = "cls.predictions.bias"}};
constexpr Layer kNomicLabels[] = {
    {.name = "nomic_bert.pooler.dense", .activation = Activation::kTanh},
    {.name = "classifier", .out = Width::kLabels}};
constexpr Head kNomicHeads[] = {{"ForMaskedLM", Rows::kTokens, kNomicWords},
                                {"ForTokenClassification", Rows::kTokens, kTokenLabels},
                                {"ForSequenceClassification", Rows::kSequences, kNomicLabels}};

// ---- GTE: its own code and the library's classes differ by the prefix ---------------------------

constexpr Layer kGteWords[] = {{.name = "lm_head.dense", .activation = Activation::kGelu},
                               {.name = "lm_head.norm", .norm = true},
                               {.name = "lm_head.decoder", .out = Width::kVocab}};
constexpr Layer kNewLabels[] = {{.name = "new.pooler.dense", .activation = Activation::kTanh},
                                {.name = "classifier", .out = Width::kLabels}};
constexpr Layer kGteLabels[] = {{.name = "gte.pooler.dense", .activation = Activation::kTanh},
                                {.name = "classifier", .out = Width::kLabels}};
constexpr Head kNewHeads[] = {{"ForMaskedLM", Rows::kTokens, kGteWords},
                              {"ForTokenClassification", Rows::kTokens, kTokenLabels},
                              {"ForSequenceClassification", Rows::kSequences, kNewLabels}};
constexpr Head kGteHeads[] = {{"ForMaskedLM", Rows::kTokens, kGteWords},
                              {"ForTokenClassification", Rows::kTokens, kTokenLabels},
                              {"ForSequenceClassification", Rows::kSequences, kGteLabels}};

// ---- DeBERTa: two heads over the vocabulary, the second one as the models were trained ----------

constexpr Layer kDebertaLegacyWords[] = {
    {.name = "cls.predictions.transform.dense", .out = Width::kWord, .activation = kModelsOwn},
    {.name = "cls.predictions.transform.LayerNorm", .norm = true},
    {.name = "cls.predictions.decoder", .out = Width::kVocab, .bias = "cls.predictions.bias"}};
constexpr Layer kDebertaWords[] = {
    {.name = "lm_predictions.lm_head.dense", .activation = kModelsOwn},
    {.name = "lm_predictions.lm_head.LayerNorm", .norm = true},
    {.name = "lm_predictions.lm_head.decoder",
     .out = Width::kVocab,
     .bias = "lm_predictions.lm_head.bias"}};
constexpr Layer kDebertaLabels[] = {{.name = "pooler.dense", .activation_key = "pooler_hidden_act"},
                                    {.name = "classifier", .out = Width::kLabels}};
constexpr Head kDebertaHeads[] = {
    {"ForMaskedLM", Rows::kTokens, kDebertaWords, /*unless=*/"legacy"},
    {"ForMaskedLM", Rows::kTokens, kDebertaLegacyWords},
    {"ForTokenClassification", Rows::kTokens, kTokenLabels},
    {"ForSequenceClassification", Rows::kSequences, kDebertaLabels}};

constexpr Family kFamilies[] = {
    {"bert", "bert.", kBertHeads},
    {"roberta", "roberta.", kLmHeadHeads},
    {"xlm-roberta", "roberta.", kLmHeadHeads},
    {"camembert", "roberta.", kLmHeadHeads},
    {"distilbert", "distilbert.", kDistilHeads},
    {"mpnet", "mpnet.", kLmHeadHeads},
    {"electra", "electra.", kElectraHeads},
    {"modernbert", "model.", kModernHeads},
    {"esm", "esm.", kLmHeadHeads},
    {"nomic_bert", "nomic_bert.", kNomicHeads},
    {"albert", "albert.", kAlbertHeads},
    {"new", "new.", kNewHeads},
    {"gte", "gte.", kGteHeads},
    {"deberta-v2", "deberta.", kDebertaHeads},
};

// ---- From the table to the spec -----------------------------------------------------------------

// The class that config.json names: the first, of which the library takes the rest to be others'.
std::string ClassOf(ConfigReader& config) {
  const json* classes = config.Find("architectures");
  if (classes == nullptr || classes->is_null() || *classes == json::array()) return "";
  if (classes->is_array() && classes->front().is_string()) {
    return classes->front().get<std::string>();
  }
  config.Fault("architectures", "a list of names of classes");
  return "";
}

const Head* FindHead(ConfigReader& config, const Family& family, std::string_view class_name) {
  for (const Head& head : family.heads) {
    if (!class_name.ends_with(head.class_ending)) continue;
    if (head.unless.empty() || !config.Bool(head.unless, true)) return &head;
  }
  return nullptr;
}

// What stands in for labels that cannot be told: as many as there are by default.
std::vector<std::string> StandInLabels() { return std::vector<std::string>(2); }

// The names of "id2label" in the order of their indices, which are 0 … n-1.
std::vector<std::string> NamedLabels(ConfigReader& config, const json& names) {
  const auto refuse = [&config](std::string_view expected) {
    config.Fault("id2label", expected);
    return StandInLabels();
  };
  constexpr std::string_view kExpected = "an object of indices from 0 and their names";
  if (!names.is_object() || names.empty()) return refuse(kExpected);
  std::map<int64_t, std::string> by_index;
  for (const auto& [key, name] : names.items()) {
    int64_t index = -1;
    if (!absl::SimpleAtoi(key, &index) || !name.is_string()) return refuse(kExpected);
    by_index[index] = name.get<std::string>();
  }
  std::vector<std::string> labels;
  for (auto& [index, name] : by_index) {
    if (index != static_cast<int64_t>(labels.size())) {
      return refuse(absl::StrCat("the index ", labels.size(), " among its keys"));
    }
    labels.push_back(std::move(name));
  }
  if (labels.size() != names.size()) return refuse("each index once");
  return labels;
}

// Without names the labels have the ones that the library gives them.
std::vector<std::string> NumberedLabels(ConfigReader& config) {
  constexpr int64_t kMostWithoutNames = 1 << 16;
  const int64_t count = config.Size("num_labels", 2);
  if (count > kMostWithoutNames) {
    config.Fault("num_labels", absl::StrCat("at most ", kMostWithoutNames, " without id2label"));
    return StandInLabels();
  }
  std::vector<std::string> labels;
  for (int64_t i = 0; i < count; ++i) labels.push_back(absl::StrCat("LABEL_", i));
  return labels;
}

std::vector<std::string> ReadLabels(ConfigReader& config) {
  const json* names = config.Find("id2label");
  if (names == nullptr || names->is_null()) return NumberedLabels(config);
  std::vector<std::string> labels = NamedLabels(config, *names);
  const json* stated = config.Find("num_labels");
  if (stated != nullptr && !stated->is_null() && !config.InDoubt("id2label") &&
      *stated != labels.size()) {
    config.Fault("num_labels", absl::StrCat("the number of names in id2label, ", labels.size()));
  }
  if (config.WasInDoubt("id2label") || (stated != nullptr && config.WasInDoubt("num_labels"))) {
    labels.emplace_back();
  }
  return labels;
}

int64_t WidthOf(Width width, const EncoderSpec& spec) {
  switch (width) {
    case Width::kHidden:
      return spec.hidden_size;
    case Width::kWord:
      return spec.input_size();
    case Width::kVocab:
      return spec.vocab_size;
    case Width::kLabels:
      return static_cast<int64_t>(spec.labels.size());
    case Width::kOne:
      return 1;
  }
  return 0;
}

TensorNames NamesOf(ConfigReader& config, const Layer& layer) {
  TensorNames names = WithBias(std::string(layer.name));
  if (!layer.bias_key.empty() && !config.Bool(layer.bias_key, layer.bias_by_default)) {
    names.bias.clear();
  }
  return names;
}

Activation ActivationOf(ConfigReader& config, const Layer& layer, const EncoderSpec& spec) {
  if (layer.activation_key.empty()) return layer.activation.value_or(spec.activation);
  return config.Choice(layer.activation_key, kTransformersActivations,
                       std::optional(Activation::kGelu));
}

std::vector<Step> StepsOf(ConfigReader& config, const Head& head, const EncoderSpec& spec) {
  std::vector<Step> steps;
  int64_t width = spec.hidden_size;
  for (const Layer& layer : head.layers) {
    if (!layer.norm) width = WidthOf(layer.out, spec);
    steps.push_back({.kind = layer.norm ? Step::Kind::kNorm : Step::Kind::kLinear,
                     .names = NamesOf(config, layer),
                     .out = width,
                     .activation = ActivationOf(config, layer, spec)});
  }
  return steps;
}

// The word table may be the last product's matrix, and that product's bias may go by two names.
void TieToWords(const Layer& layer, bool words, EncoderSpec& spec) {
  const std::string name(layer.name);
  if (words) spec.ties.push_back({name + ".weight", spec.word_embedding.weight});
  if (layer.bias.empty()) return;
  spec.ties.push_back({name + ".bias", std::string(layer.bias)});
  // A file with both holds the same numbers twice.
  spec.harmless.emplace_back(layer.bias);
}

}  // namespace

void ReadHead(ConfigReader& config, EncoderSpec& spec) {
  const std::string class_name = ClassOf(config);
  const Head* head = nullptr;
  for (const Family& family : kFamilies) {
    if (family.model_type != spec.family) continue;
    head = FindHead(config, family, class_name);
    if (head != nullptr) AddNamePrefix(family.prefix, spec);
  }
  if (head == nullptr) return;

  const Layer& last = head->layers.back();
  if (last.out == Width::kLabels) spec.labels = ReadLabels(config);
  (head->rows == Rows::kTokens ? spec.logits : spec.classifier) = StepsOf(config, *head, spec);
  if (last.out == Width::kVocab) {
    TieToWords(last, config.Bool("tie_word_embeddings", true), spec);
  }
}

}  // namespace encoderd
