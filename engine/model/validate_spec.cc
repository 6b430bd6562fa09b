#include "engine/model/validate_spec.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/model/config_reader.h"
#include "engine/model/faults.h"
#include "engine/model/tensor_list.h"

namespace encoderd {
namespace {

// A file decides how many names there are and how long: without limits on both, reporting one that
// is missing could take hours.
constexpr size_t kMaxNameBytes = 512;
constexpr size_t kMaxListEntries = 64;

// A bias table has a number for each distance and head; trained ones end at 128.
constexpr int64_t kMaxBiasDistance = 1 << 16;

// The maths are done in fp32, where a number of the file may be infinite or 0.
bool FitsFloat(double value) {
  return std::isfinite(static_cast<float>(value)) && static_cast<float>(value) > 0;
}

class Validator {
 public:
  explicit Validator(const EncoderSpec& spec) : spec_(spec) {}

  Faults Run() {
    CheckSizes();
    if (!faults_.empty()) return std::move(faults_);  // the rest divides by them
    CheckInput();
    CheckBlocks();
    CheckPositionBias();
    CheckNorms();
    CheckNames();
    CheckSteps("logits", spec_.logits, spec_.hidden_size);
    CheckSteps("classifier", spec_.classifier, spec_.hidden_size);
    CheckSteps("pooler", spec_.pooler, spec_.hidden_size);
    CheckSteps("projection", spec_.projection, spec_.hidden_size);
    CheckLogits();
    CheckContact();
    CheckHabits();
    return std::move(faults_);
  }

 private:
  template <typename... Parts>
  void Require(bool condition, const Parts&... parts) {
    if (!condition) faults_.Add(absl::StrCat(parts...));
  }

  void CheckSize(const char* key, int64_t value, int64_t least, int64_t most = kMaxSize) {
    Require(value >= least && value <= most, key, " is ", value, "; expected ", least, " to ",
            most);
  }

  void CheckSizes() {
    const bool ids = spec_.input == InputKind::kTokenIds;
    CheckSize("vocab_size", spec_.vocab_size, ids ? 1 : 0, ids ? kMaxSize : 0);
    CheckSize("input_dim", spec_.input_dim, ids ? 0 : 1, ids ? 0 : kMaxSize);
    CheckSize("type_vocab_size", spec_.type_vocab_size, 0);
    CheckSize("max_positions", spec_.max_positions, 0);
    CheckSize("position_padding_id", spec_.position_padding_id, -1,
              std::max<int64_t>(spec_.vocab_size, 0) - 1);
    CheckSize("mask_token_id", spec_.mask_token_id, 0,
              spec_.token_dropout ? std::max<int64_t>(spec_.vocab_size, 1) - 1 : 0);
    CheckSize("word_width", spec_.word_width, 0, ids ? kMaxSize : 0);
    CheckSize("num_layers", spec_.num_layers, 1, kMaxLayers);
    Require(spec_.layer_groups == 0 ||
                (spec_.layer_groups > 0 && spec_.num_layers % spec_.layer_groups == 0),
            "layer_groups is ", spec_.layer_groups,
            "; expected 0 or a divisor of num_layers, which is ", spec_.num_layers);
    CheckSize("hidden_size", spec_.hidden_size, 1);
    CheckSize("num_heads", spec_.num_heads, 1);
    CheckSize("ffn_size", spec_.ffn_size, 0);
    Require(spec_.num_heads < 1 || spec_.hidden_size % spec_.num_heads == 0, "num_heads is ",
            spec_.num_heads, "; expected a divisor of hidden_size, which is ", spec_.hidden_size);
    Require(spec_.num_heads < 1 || (spec_.rotary_width >= 0 && spec_.rotary_width % 2 == 0 &&
                                    spec_.rotary_width <= spec_.head_dim()),
            "rotary_width is ", spec_.rotary_width, "; expected an even number from 0 to ",
            spec_.num_heads < 1 ? 0 : spec_.head_dim(), ", the size of a head");
    Require(FitsFloat(spec_.rotary_base), "rotary_base is ", spec_.rotary_base,
            "; expected a number above 0");
    Require(FitsFloat(spec_.rotary_base_local), "rotary_base_local is ", spec_.rotary_base_local,
            "; expected a number above 0");
    Require(FitsFloat(spec_.rotary_divisor), "rotary_divisor is ", spec_.rotary_divisor,
            "; expected a number above 0");
    Require(spec_.rotary_frequencies.weight.empty() || spec_.local_window == 0,
            "rotary_frequencies.weight is \"", spec_.rotary_frequencies.weight,
            "\"; expected none where blocks are local, which turn by a base of their own");
    // The families take it from the width of a head, which is then wrong already.
    const bool heads_fit = spec_.num_heads >= 1 && spec_.hidden_size >= spec_.num_heads;
    Require(!heads_fit || FitsFloat(spec_.score_scale), "score_scale is ", spec_.score_scale,
            "; expected a number above 0, such as 1/sqrt(head size)");
    CheckSize("local_window", spec_.local_window, 0);
    CheckSize("global_every", spec_.global_every, 1);
    Require((spec_.local_window > 0) == (spec_.global_every > 1), "local_window is ",
            spec_.local_window, " and global_every ", spec_.global_every,
            "; expected local_window above 0 exactly where global_every is above 1");
    Require(FitsFloat(spec_.norm_eps), "norm_eps is ", spec_.norm_eps,
            "; expected a number above 0");
  }

  void CheckInput() {
    const bool ids = spec_.input == InputKind::kTokenIds;
    CheckPresence("word_embedding", spec_.word_embedding, ids, "input is \"token_ids\"");
    CheckPresence("position_embedding", spec_.position_embedding,
                  spec_.positions == PositionKind::kLearned, "positions is \"learned\"");
    CheckPresence("type_embedding", spec_.type_embedding, spec_.type_vocab_size > 0,
                  "type_vocab_size is above 0");
    Require(spec_.positions != PositionKind::kNone || spec_.position_padding_id < 0,
            "position_padding_id is ", spec_.position_padding_id,
            "; expected -1 in a model without positions");
    Require(!spec_.has_positions() || spec_.max_positions > 0,
            "max_positions is 0; expected the number of positions there are");
    CheckSteps("input_steps", spec_.input_steps, spec_.input_size());
    CheckSteps("embedding_steps", spec_.embedding_steps, spec_.table_width());
    Require(!ids || spec_.embedding_size() == spec_.hidden_size,
            "word_width, input_steps and embedding_steps end with width ", spec_.embedding_size(),
            "; expected hidden_size, which is ", spec_.hidden_size);
  }

  void CheckBlocks() {
    const bool same_width = spec_.embedding_size() == spec_.hidden_size;
    Require(!spec_.residual || same_width, "residual is true, but the input's width is ",
            spec_.embedding_size(), "; expected hidden_size, which is ", spec_.hidden_size);
    Require(spec_.qkv != QkvLayout::kSharedByHeads || same_width,
            "qkv is \"shared_by_heads\", but the input's width is ", spec_.embedding_size(),
            "; expected hidden_size, which is ", spec_.hidden_size);
    Require(spec_.layer_groups == 0 || same_width, "layer_groups is ", spec_.layer_groups,
            ", but the input's width is ", spec_.embedding_size(),
            "; expected hidden_size, which is ", spec_.hidden_size);
    Require(spec_.residual || (spec_.norm == NormPlacement::kNone && spec_.ffn_size == 0),
            "residual is false; expected norm \"none\" and ffn_size 0 with it");
    Require(spec_.gate == Gate::kNone || spec_.ffn_size > 0,
            "gate is not \"none\"; expected ffn_size above 0 with it");
    Require(spec_.first_norm1 || (spec_.norm == NormPlacement::kPre && spec_.layer_groups == 0),
            "first_norm1 is false; expected norm \"pre\" and layer_groups 0 with it");
    Require(!spec_.token_dropout || spec_.input == InputKind::kTokenIds,
            "token_dropout is true; expected input \"token_ids\" with it");
    Require(spec_.default_pooling != Pooling::kPooler || !spec_.pooler.empty(),
            "default_pooling is \"pooler\"; expected steps in pooler");
    Require(spec_.default_pooling != Pooling::kPooler || spec_.projection.empty(),
            "default_pooling is \"pooler\"; expected no projection behind it");
  }

  void CheckPositionBias() {
    const bool buckets = spec_.position_bias == PositionBiasKind::kBuckets;
    const bool disentangled = spec_.position_bias == PositionBiasKind::kDisentangled;
    CheckPresence("relative_bias", spec_.relative_bias, buckets, "position_bias is \"buckets\"");
    const int64_t largest = buckets || disentangled ? kMaxBiasDistance : 0;
    CheckSize("bias_buckets", spec_.bias_buckets, buckets ? 4 : 0, largest);
    Require(spec_.bias_buckets % 2 == 0, "bias_buckets is ", spec_.bias_buckets,
            "; expected an even number: half are for each direction");
    // The last bucket of a disentangled table begins one token before the largest distance.
    const int64_t least_of_buckets = spec_.bias_buckets / 4 + (disentangled ? 2 : 1);
    CheckSize("bias_max_distance", spec_.bias_max_distance,
              spec_.bias_buckets > 0 ? least_of_buckets
              : disentangled         ? 1
                                     : 0,
              largest);
    CheckDisentangled(disentangled);
  }

  void CheckDisentangled(bool disentangled) {
    constexpr char kWhen[] = "position_bias is \"disentangled\"";
    CheckPresence("relative_embedding", spec_.relative_embedding, disentangled, kWhen);
    for (const auto& [key, names] :
         {std::pair{"relative_embedding_norm", &spec_.relative_embedding_norm},
          {"position_key", &spec_.position_key},
          {"position_query", &spec_.position_query}}) {
      CheckPresence(key, *names, disentangled && !names->weight.empty(), kWhen);
    }
    if (!disentangled) {
      Require(spec_.content_to_position && spec_.position_to_content,
              "content_to_position or position_to_content is false; expected both true where "
              "position_bias is not \"disentangled\"");
      return;
    }
    Require(spec_.bias_buckets % 4 == 0, "bias_buckets is ", spec_.bias_buckets,
            "; expected a multiple of 4 where position_bias is \"disentangled\"");
    Require(spec_.content_to_position || spec_.position_to_content,
            "content_to_position and position_to_content are both false; expected either");
    Require(spec_.content_to_position || spec_.position_key.weight.empty(),
            "position_key.weight is \"", spec_.position_key.weight,
            "\", but content_to_position is false");
    Require(spec_.position_to_content || spec_.position_query.weight.empty(),
            "position_query.weight is \"", spec_.position_query.weight,
            "\", but position_to_content is false");
    Require(spec_.rotary_width == 0, "rotary_width is ", spec_.rotary_width, "; expected 0 where ",
            kWhen);
    Require(spec_.qkv == QkvLayout::kSeparate,
            "qkv is of another layout; expected \"separate\" where ", kWhen);
    Require(spec_.embedding_size() == spec_.hidden_size,
            "position_bias is \"disentangled\", but the input's width is ", spec_.embedding_size(),
            "; expected hidden_size, which is ", spec_.hidden_size);
  }

  void CheckNorms() {
    const bool norms = spec_.norm != NormPlacement::kNone;
    CheckPresence("norm1", spec_.norm1, norms && (spec_.first_norm1 || spec_.num_layers > 1),
                  "norm is not \"none\" and a block has it");
    CheckPresence("norm2", spec_.norm2, norms && spec_.ffn_size > 0,
                  "norm is not \"none\" and ffn_size is above 0");
    Require(!spec_.final_norm_in_hidden_states || !spec_.final_norm.weight.empty(),
            "final_norm_in_hidden_states is true; expected a name in final_norm.weight");
    Require(!spec_.final_norm_optional || !spec_.final_norm.weight.empty(),
            "final_norm_optional is true; expected a name in final_norm.weight");
  }

  void CheckNames() {
    const bool fused = spec_.qkv == QkvLayout::kFused || spec_.qkv == QkvLayout::kFusedByHead;
    CheckPresence("fused_qkv", spec_.fused_qkv, fused, "qkv is \"fused\" or \"fused_by_head\"");
    for (const auto& [key, names] :
         {std::pair{"query", &spec_.query}, {"key", &spec_.key}, {"value", &spec_.value}}) {
      CheckPresence(key, *names, !fused, "qkv is \"separate\" or \"shared_by_heads\"");
    }
    CheckPresence("attention_output", spec_.attention_output, true, "");
    CheckPresence("ffn_in", spec_.ffn_in, spec_.ffn_size > 0, "ffn_size is above 0");
    CheckPresence("ffn_gate", spec_.ffn_gate, spec_.gate == Gate::kSeparate,
                  "gate is \"separate\"");
    CheckPresence("rotary_frequencies", spec_.rotary_frequencies,
                  !spec_.rotary_frequencies.weight.empty() && spec_.rotary_width > 0,
                  "rotary_width is above 0");
    CheckPresence("ffn_out", spec_.ffn_out, spec_.ffn_size > 0, "ffn_size is above 0");
    CheckLayerMarks();
  }

  // Names inside the blocks tell the blocks apart; names outside have nothing to tell.
  void CheckLayerMarks() {
    for (const auto& [key, names] : {std::pair{"query", &spec_.query},
                                     {"key", &spec_.key},
                                     {"value", &spec_.value},
                                     {"fused_qkv", &spec_.fused_qkv},
                                     {"position_key", &spec_.position_key},
                                     {"position_query", &spec_.position_query},
                                     {"attention_output", &spec_.attention_output},
                                     {"norm1", &spec_.norm1},
                                     {"ffn_in", &spec_.ffn_in},
                                     {"ffn_gate", &spec_.ffn_gate},
                                     {"ffn_out", &spec_.ffn_out},
                                     {"norm2", &spec_.norm2}}) {
      for (const std::string* name : {&names->weight, &names->bias}) {
        CheckLength(key, *name);
        Require(name->empty() || spec_.num_groups() == 1 || absl::StrContains(*name, "{layer}"),
                key, " names \"", *name, "\" in all ", spec_.num_groups(),
                spec_.layer_groups > 0 ? " groups" : " layers", "; expected \"{layer}\" in it");
      }
    }
    for (const auto& [key, names] : {std::pair{"word_embedding", &spec_.word_embedding},
                                     {"position_embedding", &spec_.position_embedding},
                                     {"type_embedding", &spec_.type_embedding},
                                     {"embedding_norm", &spec_.embedding_norm},
                                     {"relative_bias", &spec_.relative_bias},
                                     {"rotary_frequencies", &spec_.rotary_frequencies},
                                     {"relative_embedding", &spec_.relative_embedding},
                                     {"relative_embedding_norm", &spec_.relative_embedding_norm},
                                     {"final_norm", &spec_.final_norm},
                                     {"contact", &spec_.contact}}) {
      CheckOutside(key, *names);
    }
  }

  void CheckOutside(const std::string& key, const TensorNames& names) {
    for (const std::string* name : {&names.weight, &names.bias}) {
      CheckLength(key, *name);
      Require(!absl::StrContains(*name, "{layer}"), key, " names \"", *name,
              "\"; expected no \"{layer}\" outside the blocks");
    }
  }

  // The widths of a chain of steps that begins with `width`.
  void CheckSteps(const char* key, const std::vector<Step>& steps, int64_t width) {
    CheckEntries(key, steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::string path = absl::StrCat(key, "[", i, "]");
      CheckPresence(path + ".names", steps[i].names, true, "");
      CheckOutside(path + ".names", steps[i].names);
      CheckSize((path + ".out").c_str(), steps[i].out, 1);
      Require(steps[i].kind != Step::Kind::kNorm || steps[i].out == width, path, ".out is ",
              steps[i].out, "; expected the width that a norm is given, which is ", width);
      width = steps[i].out;
    }
  }

  void CheckLogits() {
    Require(spec_.logits.empty() || spec_.classifier.empty(),
            "logits and classifier both have steps; expected one of them");
    Require(spec_.classifier_pooling == Pooling::kCls || spec_.classifier_pooling == Pooling::kMean,
            "classifier_pooling is of another kind; expected \"cls\" or \"mean\"");
    const auto labels = static_cast<int64_t>(spec_.labels.size());
    const int64_t columns = spec_.has_logits() ? spec_.logits_width() : 0;
    Require(labels == 0 || labels == columns, "labels has ", labels,
            " entries; expected none or as many as the logits have columns, which is ", columns);
    for (const std::string& label : spec_.labels) CheckLength("labels", label);
  }

  void CheckContact() {
    CheckPresence("contact", spec_.contact, spec_.has_contacts(), "");
    const bool ends = spec_.has_contacts() && spec_.input == InputKind::kTokenIds;
    CheckSize("contact_end_id", spec_.contact_end_id, -1, ends ? kMaxSize : -1);
  }

  void CheckLength(const std::string& key, const std::string& name) {
    Require(name.size() <= kMaxNameBytes, key, " has a name of ", name.size(),
            " bytes; expected at most ", kMaxNameBytes);
  }

  void CheckEntries(const char* key, size_t entries) {
    Require(entries <= kMaxListEntries, key, " has ", entries, " entries; expected at most ",
            kMaxListEntries);
  }

  void CheckHabits() {
    CheckEntries("aliases", spec_.aliases.size());
    CheckEntries("harmless", spec_.harmless.size());
    CheckEntries("ties", spec_.ties.size());
    for (const Tie& tie : spec_.ties) {
      Require(!tie.tensor.empty() && !tie.same_as.empty() && tie.tensor != tie.same_as,
              "ties has \"", tie.tensor, "\" = \"", tie.same_as,
              "\"; expected two different names");
    }
    for (const SuffixAlias& alias : spec_.aliases) {
      Require(!alias.from.empty() && !alias.to.empty() && alias.from != alias.to, "aliases has \"",
              alias.from, "\" → \"", alias.to, "\"; expected two different endings");
    }
    for (const std::string& ending : spec_.harmless) {
      Require(!ending.empty(), "harmless has an empty ending; it would fit every name");
    }
  }

  // A name has to be there exactly when something needs it, and a bias never alone.
  void CheckPresence(const std::string& key, const TensorNames& names, bool needed,
                     const char* when) {
    const bool there = !names.weight.empty();
    Require(!needed || there, key, ".weight is missing",
            *when != '\0' ? "; it is needed when " : "", when);
    Require(needed || !there, key, ".weight is \"", names.weight, "\", but is used only when ",
            when);
    Require(there || names.bias.empty(), key, ".bias is \"", names.bias, "\" without a weight");
  }

  const EncoderSpec& spec_;
  Faults faults_;
};

}  // namespace

Faults SpecFaults(const EncoderSpec& spec) { return Validator(spec).Run(); }

absl::Status ValidateSpec(const EncoderSpec& spec) {
  return SpecFaults(spec).ToStatus("config.json");
}

bool CanListTensors(EncoderSpec spec) {
  if (spec.num_layers > kMaxLayers || spec.layer_groups > kMaxLayers || spec.num_heads < 1) {
    return false;
  }
  if (spec.aliases.size() > kMaxListEntries || spec.ties.size() > kMaxListEntries) return false;
  // The blocks' names are alike.
  spec.num_layers = 1;
  spec.layer_groups = 0;
  const std::vector<ExpectedTensor> tensors = ExpectedTensors(spec);
  constexpr size_t kMaxTensors = 1024;  // the valid have fewer: six stacks of up to 64 steps
  return tensors.size() <= kMaxTensors &&
         std::ranges::all_of(tensors, [](const ExpectedTensor& tensor) {
           return tensor.name.size() <= kMaxNameBytes;
         });
}

}  // namespace encoderd
