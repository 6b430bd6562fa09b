#include "engine/model/spec_json.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"
#include "engine/model/families.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

constexpr NamedValue<InputKind> kInputKinds[] = {{"token_ids", InputKind::kTokenIds},
                                                 {"vectors", InputKind::kVectors}};
constexpr NamedValue<PositionKind> kPositionKinds[] = {{"none", PositionKind::kNone},
                                                       {"learned", PositionKind::kLearned},
                                                       {"sinusoidal", PositionKind::kSinusoidal}};
constexpr NamedValue<PositionBiasKind> kPositionBiasKinds[] = {
    {"none", PositionBiasKind::kNone},
    {"buckets", PositionBiasKind::kBuckets},
    {"alibi", PositionBiasKind::kAlibi},
    {"disentangled", PositionBiasKind::kDisentangled}};
constexpr NamedValue<NormPlacement> kNormPlacements[] = {
    {"none", NormPlacement::kNone}, {"post", NormPlacement::kPost}, {"pre", NormPlacement::kPre}};
constexpr NamedValue<QkvLayout> kQkvLayouts[] = {{"separate", QkvLayout::kSeparate},
                                                 {"fused", QkvLayout::kFused},
                                                 {"fused_by_head", QkvLayout::kFusedByHead},
                                                 {"shared_by_heads", QkvLayout::kSharedByHeads}};
constexpr NamedValue<Activation> kActivations[] = {
    {"none", Activation::kNone},          {"relu", Activation::kRelu}, {"gelu", Activation::kGelu},
    {"gelu_tanh", Activation::kGeluTanh}, {"silu", Activation::kSilu}, {"tanh", Activation::kTanh}};
constexpr NamedValue<Gate> kGates[] = {{"none", Gate::kNone},
                                       {"first", Gate::kFirst},
                                       {"second", Gate::kSecond},
                                       {"separate", Gate::kSeparate}};
constexpr NamedValue<Pooling> kPoolings[] = {{"cls", Pooling::kCls},
                                             {"mean", Pooling::kMean},
                                             {"max", Pooling::kMax},
                                             {"pooler", Pooling::kPooler}};
constexpr NamedValue<Step::Kind> kStepKinds[] = {{"linear", Step::Kind::kLinear},
                                                 {"norm", Step::Kind::kNorm}};

enum Presence { kRequired, kOptional };

// The one list of a spec's fields, which the reader and the writer both walk. A field's own value
// is what it has when an optional key is absent.
template <typename Spec, typename Visitor>
void VisitSpec(Spec& spec, Visitor& visit) {
  visit.Text("family", spec.family, kOptional);

  visit.Choice("input", spec.input, kInputKinds, kRequired);
  visit.Size("vocab_size", spec.vocab_size, kOptional);
  visit.Size("type_vocab_size", spec.type_vocab_size, kOptional);
  visit.Size("input_dim", spec.input_dim, kOptional);
  visit.Choice("positions", spec.positions, kPositionKinds, kRequired);
  visit.Size("max_positions", spec.max_positions, kOptional);
  visit.Size("position_padding_id", spec.position_padding_id, kOptional, /*least=*/-1);
  visit.Bool("token_dropout", spec.token_dropout, kOptional);
  visit.Size("mask_token_id", spec.mask_token_id, kOptional);
  visit.Size("word_width", spec.word_width, kOptional);
  visit.Steps("input_steps", spec.input_steps);
  visit.Steps("embedding_steps", spec.embedding_steps);
  visit.Names("word_embedding", spec.word_embedding);
  visit.Names("position_embedding", spec.position_embedding);
  visit.Names("type_embedding", spec.type_embedding);
  visit.Names("embedding_norm", spec.embedding_norm);

  visit.Size("num_layers", spec.num_layers, kRequired);
  visit.Size("layer_groups", spec.layer_groups, kOptional);
  visit.Size("hidden_size", spec.hidden_size, kRequired);
  visit.Size("num_heads", spec.num_heads, kRequired);
  visit.Size("ffn_size", spec.ffn_size, kRequired);
  visit.Bool("residual", spec.residual, kRequired);
  visit.Choice("norm", spec.norm, kNormPlacements, kRequired);
  visit.Positive("norm_eps", spec.norm_eps, kRequired);
  visit.Choice("qkv", spec.qkv, kQkvLayouts, kRequired);
  visit.Positive("score_scale", spec.score_scale, kRequired);
  visit.Choice("position_bias", spec.position_bias, kPositionBiasKinds, kOptional);
  visit.Size("bias_buckets", spec.bias_buckets, kOptional);
  visit.Size("bias_max_distance", spec.bias_max_distance, kOptional);
  visit.Names("relative_bias", spec.relative_bias);
  visit.Names("relative_embedding", spec.relative_embedding);
  visit.Names("relative_embedding_norm", spec.relative_embedding_norm);
  visit.Names("position_key", spec.position_key);
  visit.Names("position_query", spec.position_query);
  visit.Bool("content_to_position", spec.content_to_position, kOptional);
  visit.Bool("position_to_content", spec.position_to_content, kOptional);
  visit.Size("local_window", spec.local_window, kOptional);
  visit.Size("global_every", spec.global_every, kOptional, /*least=*/1);
  visit.Choice("activation", spec.activation, kActivations, kRequired);
  visit.Choice("gate", spec.gate, kGates, kOptional);
  visit.Bool("first_norm1", spec.first_norm1, kOptional);
  visit.Size("rotary_width", spec.rotary_width, kOptional);
  visit.Positive("rotary_base", spec.rotary_base, kOptional);
  visit.Positive("rotary_base_local", spec.rotary_base_local, kOptional);
  visit.Positive("rotary_divisor", spec.rotary_divisor, kOptional);
  visit.Names("query", spec.query);
  visit.Names("key", spec.key);
  visit.Names("value", spec.value);
  visit.Names("fused_qkv", spec.fused_qkv);
  visit.Names("attention_output", spec.attention_output);
  visit.Names("norm1", spec.norm1);
  visit.Names("ffn_in", spec.ffn_in);
  visit.Names("ffn_gate", spec.ffn_gate);
  visit.Names("ffn_out", spec.ffn_out);
  visit.Names("norm2", spec.norm2);
  visit.Names("rotary_frequencies", spec.rotary_frequencies);
  visit.Names("final_norm", spec.final_norm);
  visit.Bool("final_norm_optional", spec.final_norm_optional, kOptional);
  visit.Bool("final_norm_in_hidden_states", spec.final_norm_in_hidden_states, kOptional);

  visit.Steps("logits", spec.logits);
  visit.Steps("classifier", spec.classifier);
  visit.Choice("classifier_pooling", spec.classifier_pooling, kPoolings, kOptional);
  visit.Texts("labels", spec.labels);
  visit.Steps("pooler", spec.pooler);
  visit.Bool("pooler_optional", spec.pooler_optional, kOptional);
  visit.Names("contact", spec.contact);
  visit.Size("contact_end_id", spec.contact_end_id, kOptional, /*least=*/-1);
  visit.Choice("default_pooling", spec.default_pooling, kPoolings, kOptional);
  visit.Steps("projection", spec.projection);
  visit.Bool("default_normalize", spec.default_normalize, kOptional);

  visit.Aliases("aliases", spec.aliases);
  visit.Ties("ties", spec.ties);
  visit.Texts("harmless", spec.harmless);
}

template <typename TheStep, typename Visitor>
void VisitStep(TheStep& step, Visitor& visit) {
  visit.Choice("kind", step.kind, kStepKinds, kRequired);
  visit.Names("names", step.names);
  visit.Size("out", step.out, kRequired);
  visit.Choice("activation", step.activation, kActivations, kOptional);
}

template <typename TheNames, typename Visitor>
void VisitNames(TheNames& names, Visitor& visit) {
  visit.Text("weight", names.weight, kRequired);
  visit.Text("bias", names.bias, kOptional);
}

template <typename TheAlias, typename Visitor>
void VisitAlias(TheAlias& alias, Visitor& visit) {
  visit.Text("from", alias.from, kRequired);
  visit.Text("to", alias.to, kRequired);
}

template <typename TheTie, typename Visitor>
void VisitTie(TheTie& tie, Visitor& visit) {
  visit.Text("tensor", tie.tensor, kRequired);
  visit.Text("same_as", tie.same_as, kRequired);
}

class Writer {
 public:
  void Text(const char* key, const std::string& value, Presence) {
    if (!value.empty()) object_[key] = value;
  }
  void Size(const char* key, int64_t value, Presence presence, int64_t /*least*/ = 0) {
    Put(key, value, presence);
  }
  void Positive(const char* key, double value, Presence presence) { Put(key, value, presence); }
  void Bool(const char* key, bool value, Presence presence) { Put(key, value, presence); }
  template <typename T, size_t n>
  void Choice(const char* key, T value, const NamedValue<T> (&names)[n], Presence presence) {
    for (const auto& [name, meaning] : names) {
      if (meaning == value) Put(key, name, presence);
    }
  }
  void Names(const char* key, const TensorNames& names) {
    if (names != TensorNames{}) {
      object_[key] = Nested([&names](Writer& inner) { VisitNames(names, inner); });
    }
  }
  void Steps(const char* key, const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      object_[key].push_back(Nested([&step](Writer& inner) { VisitStep(step, inner); }));
    }
  }
  void Aliases(const char* key, const std::vector<SuffixAlias>& aliases) {
    for (const SuffixAlias& alias : aliases) {
      object_[key].push_back(Nested([&alias](Writer& inner) { VisitAlias(alias, inner); }));
    }
  }
  void Ties(const char* key, const std::vector<Tie>& ties) {
    for (const Tie& tie : ties) {
      object_[key].push_back(Nested([&tie](Writer& inner) { VisitTie(tie, inner); }));
    }
  }
  void Texts(const char* key, const std::vector<std::string>& texts) {
    if (!texts.empty()) object_[key] = texts;
  }
  json Take() { return std::move(object_); }

  // Takes out the optional keys that have the same value in `other`.
  void DropEqual(const Writer& other) {
    for (const std::string& key : optional_) {
      if (object_[key] == other.object_[key]) object_.erase(key);
    }
  }

 private:
  template <typename T>
  void Put(const char* key, const T& value, Presence presence) {
    object_[key] = value;
    if (presence == kOptional) optional_.push_back(key);
  }
  template <typename Visit>
  static json Nested(Visit visit) {
    Writer inner;
    visit(inner);
    return inner.Take();
  }

  json object_ = json::object();
  std::vector<std::string> optional_;  // keys that may be absent and have a default
};

class Reader {
 public:
  explicit Reader(ConfigReader& config) : config_(config) {}

  void Text(const char* key, std::string& value, Presence presence) {
    value = config_.Text(key, Otherwise(value, presence));
  }
  void Size(const char* key, int64_t& value, Presence presence, int64_t least = 0) {
    value = config_.Size(key, Otherwise(value, presence), least);
  }
  void Positive(const char* key, double& value, Presence presence) {
    value = config_.Positive(key, Otherwise(value, presence));
  }
  void Bool(const char* key, bool& value, Presence presence) {
    value = config_.Bool(key, Otherwise(value, presence));
  }
  template <typename T, size_t n>
  void Choice(const char* key, T& value, const NamedValue<T> (&names)[n], Presence presence) {
    value = config_.Choice(key, names, Otherwise(value, presence));
  }
  void Names(const char* key, TensorNames& names) {
    if (const json* value = config_.Find(key)) {
      Nested(*value, config_.PathOf(key), [&names](Reader& inner) { VisitNames(names, inner); });
    }
  }
  void Steps(const char* key, std::vector<Step>& steps) {
    Elements(key, steps, [](Step& step, Reader& inner) { VisitStep(step, inner); });
  }
  void Aliases(const char* key, std::vector<SuffixAlias>& aliases) {
    Elements(key, aliases, [](SuffixAlias& alias, Reader& inner) { VisitAlias(alias, inner); });
  }
  void Ties(const char* key, std::vector<Tie>& ties) {
    Elements(key, ties, [](Tie& tie, Reader& inner) { VisitTie(tie, inner); });
  }
  void Texts(const char* key, std::vector<std::string>& texts) {
    const json* value = config_.Find(key);
    if (value == nullptr) return;
    const auto is_text = [](const json& text) { return text.is_string(); };
    if (value->is_array() && std::all_of(value->begin(), value->end(), is_text)) {
      texts = value->get<std::vector<std::string>>();
    } else {
      config_.Fault(key, "a list of strings");
    }
  }

 private:
  template <typename T>
  static std::optional<T> Otherwise(const T& value, Presence presence) {
    return presence == kRequired ? std::nullopt : std::optional<T>(value);
  }
  template <typename Visit>
  void Nested(const json& value, std::string path, Visit visit) {
    ConfigReader nested = config_.Nested(value, std::move(path));
    Reader inner(nested);
    visit(inner);
    nested.Finish();
  }
  template <typename Element, typename Visit>
  void Elements(const char* key, std::vector<Element>& elements, Visit visit) {
    const json* value = config_.Find(key);
    if (value == nullptr) return;
    if (!value->is_array()) return config_.Fault(key, "a list of objects");
    for (const json& item : *value) {
      std::string path = absl::StrCat(config_.PathOf(key), "[", elements.size(), "]");
      Element& element = elements.emplace_back();
      Nested(item, std::move(path), [&](Reader& inner) { visit(element, inner); });
    }
  }

  ConfigReader& config_;
};

// Puts the prefix in front of every tensor's name.
class Prefixer {
 public:
  explicit Prefixer(std::string_view prefix) : prefix_(prefix) {}

  void Names(const char*, TensorNames& names) {
    for (std::string* name : {&names.weight, &names.bias}) {
      if (!name->empty()) name->insert(0, prefix_);
    }
  }
  void Steps(const char* key, std::vector<Step>& steps) {
    for (Step& step : steps) Names(key, step.names);
  }
  void Ties(const char*, std::vector<Tie>& ties) {
    for (Tie& tie : ties) {
      tie.tensor.insert(0, prefix_);
      tie.same_as.insert(0, prefix_);
    }
  }
  // Fields that name no tensor; aliases and harmless are endings of names.
  template <typename... Any>
  void Text(const char*, Any&&...) {}
  template <typename... Any>
  void Size(const char*, Any&&...) {}
  template <typename... Any>
  void Positive(const char*, Any&&...) {}
  template <typename... Any>
  void Bool(const char*, Any&&...) {}
  template <typename... Any>
  void Choice(const char*, Any&&...) {}
  template <typename... Any>
  void Aliases(const char*, Any&&...) {}
  template <typename... Any>
  void Texts(const char*, Any&&...) {}

 private:
  const std::string prefix_;
};

}  // namespace

void AddNamePrefix(std::string_view prefix, EncoderSpec& spec) {
  Prefixer prefixer(prefix);
  VisitSpec(spec, prefixer);
}

json SpecToJson(const EncoderSpec& spec) {
  Writer writer;
  VisitSpec(spec, writer);
  const EncoderSpec absent;
  Writer defaults;
  VisitSpec(absent, defaults);
  writer.DropEqual(defaults);
  json object = writer.Take();
  object["model_type"] = "custom";
  return object;
}

EncoderSpec CustomSpec(ConfigReader& config) {
  EncoderSpec spec;
  spec.family = "custom";
  Reader reader(config);
  VisitSpec(spec, reader);
  config.Only("model_type", "custom");
  return spec;
}

}  // namespace encoderd
