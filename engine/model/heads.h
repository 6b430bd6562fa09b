// heads.h — the heads that classes of Hugging Face transformers put on top of their encoders.
//
// Role:   from the class that config.json names in "architectures" to the spec's logits,
//         classifier, labels and ties. What its classes are made of each family says in a table.
// Source: the modeling files of transformers 4.57: …ForMaskedLM, …ForPreTraining,
//         …ForTokenClassification, …ForSequenceClassification.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "engine/model/config_reader.h"
#include "engine/model/spec.h"

namespace encoderd {

// Of the model; kWord: of the word table.
enum class HeadWidth { kHidden, kWord, kVocab, kLabels, kOne };

// One layer of a head, by the name in front of ".weight" and ".bias".
struct HeadLayer {
  std::string_view name;
  HeadWidth out = HeadWidth::kHidden;
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

enum class HeadRows { kTokens, kSequences };

// What the classes have whose names end so: layers one after the other, on every token or, of a
// whole sequence, on what spec.classifier_pooling takes from it.
struct Head {
  std::string_view class_ending;
  HeadRows rows = HeadRows::kTokens;
  std::span<const HeadLayer> layers;
  // A key, true where it is absent, that must be false for the class to have this head.
  std::string_view unless = {};
};

inline constexpr std::optional<Activation> kModelsOwn = std::nullopt;
inline constexpr HeadLayer kTokenLabels[] = {{.name = "classifier", .out = HeadWidth::kLabels}};

// RoBERTa and its kin, MPNet, ESM.
inline constexpr HeadLayer kLmHeadWords[] = {
    {.name = "lm_head.dense", .activation = Activation::kGelu},
    {.name = "lm_head.layer_norm", .norm = true},
    {.name = "lm_head.decoder", .out = HeadWidth::kVocab, .bias = "lm_head.bias"}};
inline constexpr HeadLayer kTanhLabels[] = {
    {.name = "classifier.dense", .activation = Activation::kTanh},
    {.name = "classifier.out_proj", .out = HeadWidth::kLabels}};
inline constexpr Head kLmHeadHeads[] = {
    {"ForMaskedLM", HeadRows::kTokens, kLmHeadWords},
    {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
    {"ForSequenceClassification", HeadRows::kSequences, kTanhLabels}};

// Gives a spec, all of whose tensors are named as the family's base class names them, the head of
// the class that the configuration names, and `prefix`, under which that class has its encoder, to
// all names. A class that is not among `heads`, or none, has no head: the spec stays as it is. Reads
// "architectures", and of a class with a head "tie_word_embeddings", "id2label", "num_labels" and
// the keys of its layers.
void ReadHead(ConfigReader& config, std::string_view prefix, std::span<const Head> heads,
              EncoderSpec& spec);

}  // namespace encoderd
