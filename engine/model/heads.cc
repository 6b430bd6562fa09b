#include "engine/model/heads.h"

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/model/families/transformers_keys.h"
#include "engine/model/spec_json.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

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

const Head* FindHead(ConfigReader& config, std::span<const Head> heads,
                     std::string_view class_name) {
  for (const Head& head : heads) {
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

int64_t WidthOf(HeadWidth width, const EncoderSpec& spec) {
  switch (width) {
    case HeadWidth::kHidden:
      return spec.hidden_size;
    case HeadWidth::kWord:
      return spec.input_size();
    case HeadWidth::kVocab:
      return spec.vocab_size;
    case HeadWidth::kLabels:
      return static_cast<int64_t>(spec.labels.size());
    case HeadWidth::kOne:
      return 1;
  }
  return 0;
}

TensorNames NamesOf(ConfigReader& config, const HeadLayer& layer) {
  const bool has_bias =
      layer.bias_key.empty() || config.Bool(layer.bias_key, layer.bias_by_default);
  return WithBias(std::string(layer.name), has_bias);
}

Activation ActivationOf(ConfigReader& config, const HeadLayer& layer, const EncoderSpec& spec) {
  if (layer.activation_key.empty()) return layer.activation.value_or(spec.activation);
  return config.Choice(layer.activation_key, kTransformersActivations,
                       std::optional(Activation::kGelu));
}

std::vector<Step> StepsOf(ConfigReader& config, const Head& head, const EncoderSpec& spec) {
  std::vector<Step> steps;
  int64_t width = spec.hidden_size;
  for (const HeadLayer& layer : head.layers) {
    if (!layer.norm) width = WidthOf(layer.out, spec);
    steps.push_back({.kind = layer.norm ? Step::Kind::kNorm : Step::Kind::kLinear,
                     .names = NamesOf(config, layer),
                     .out = width,
                     .activation = ActivationOf(config, layer, spec)});
  }
  return steps;
}

// The word table may be the last product's matrix, and that product's bias may go by two names.
void TieToWords(const HeadLayer& layer, bool words, EncoderSpec& spec) {
  const std::string name(layer.name);
  if (words) spec.ties.push_back({name + ".weight", spec.word_embedding.weight});
  if (layer.bias.empty()) return;
  spec.ties.push_back({name + ".bias", std::string(layer.bias)});
  // A file with both holds the same numbers twice.
  spec.harmless.emplace_back(layer.bias);
}

}  // namespace

void ReadHead(ConfigReader& config, std::string_view prefix, std::span<const Head> heads,
              EncoderSpec& spec) {
  const Head* head = FindHead(config, heads, ClassOf(config));
  if (head == nullptr) return;
  AddNamePrefix(prefix, spec);
  const HeadLayer& last = head->layers.back();
  if (last.out == HeadWidth::kLabels) spec.labels = ReadLabels(config);
  (head->rows == HeadRows::kTokens ? spec.logits : spec.classifier) = StepsOf(config, *head, spec);
  if (last.out == HeadWidth::kVocab) {
    TieToWords(last, config.Bool("tie_word_embeddings", true), spec);
  }
}

}  // namespace encoderd
