// Outputs of a call: names and ranges checked, defaults and negative indices resolved, the blocks
// to run and the answer's size worked out.

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/numeric/int128.h"
#include "absl/strings/str_join.h"
#include "engine/validation_internal.h"

namespace encoderd::validation {
namespace {

std::string Element(const char* list, size_t index) {
  return absl::StrCat("outputs.", list, "[", index, "]");
}

class OutputCheck {
 public:
  OutputCheck(const EncoderSpec& spec, const OutputSpec& outputs, Faults& faults, Plan& plan)
      : spec_(spec), outputs_(outputs), faults_(faults), plan_(plan) {}

  void Run() {
    ResolveType();
    plan_.last_hidden_state = outputs_.last_hidden_state;
    ResolveHiddenStates();
    if (outputs_.attentions.has_value()) ResolveAttentions(*outputs_.attentions);
    ResolvePooled();
    ResolveLogits();
    ResolveContacts();
    CheckSomethingIsChosen();
    ResolveBlocks(spec_, plan_);
  }

 private:
  void ResolveType() {
    plan_.dtype = outputs_.dtype;
    if (outputs_.dtype != DataType::kFp64) return;
    faults_.Add(
        "UNSUPPORTED_VALUE", [] { return "outputs.dtype"; },
        [] { return "expected FP32, BF16 or FP16, got FP64"; });
  }

  void ResolveHiddenStates() {
    const int64_t count = spec_.num_layers + 1;
    plan_.hidden_layers =
        ResolveList("LAYER_OUT_OF_RANGE", "hidden_states", outputs_.hidden_states, count,
                    /*negative_from_end=*/true);
    if (outputs_.all_hidden_states) plan_.hidden_layers = UpTo(count);
  }

  void ResolveAttentions(const AttentionSpec& asked) {
    plan_.attentions = true;
    plan_.attention_layers =
        asked.layers.empty() ? UpTo(spec_.num_layers)
                             : ResolveList("LAYER_OUT_OF_RANGE", "attentions.layers", asked.layers,
                                           spec_.num_layers, /*negative_from_end=*/true);
    plan_.attention_heads = asked.heads.empty()
                                ? UpTo(spec_.num_heads)
                                : ResolveList("HEAD_OUT_OF_RANGE", "attentions.heads", asked.heads,
                                              spec_.num_heads, /*negative_from_end=*/false);
    // One list of rows holds for every sequence, so the shortest one decides what there is.
    if (const int64_t rows = ShortestSequence(); rows > 0) {
      plan_.query_rows = ResolveList("ROW_OUT_OF_RANGE", "attentions.query_rows", asked.query_rows,
                                     rows, /*negative_from_end=*/false);
    }
  }

  void ResolvePooled() {
    if (outputs_.pooled.size() > kMaxPooledOutputs) {
      faults_.Add(
          "TOO_MANY_OUTPUTS", [] { return "outputs.pooled"; },
          [&] {
            return absl::StrCat("expected at most ", kMaxPooledOutputs, " pooled outputs, got ",
                                outputs_.pooled.size());
          });
      return;
    }
    for (size_t i = 0; i < outputs_.pooled.size(); ++i) ResolvePooledOutput(i);
  }

  void ResolvePooledOutput(size_t index) {
    const PoolingSpec& asked = outputs_.pooled[index];
    const Pooling kind = asked.kind.value_or(spec_.default_pooling);
    const auto field = [&] { return Element("pooled", index); };

    std::optional<int64_t> layer;
    if (asked.layer.has_value()) {
      const auto resolved = Resolve(*asked.layer, spec_.num_layers + 1, /*negative_from_end=*/true);
      if (!resolved.has_value()) {
        AddOutOfRange(
            "LAYER_OUT_OF_RANGE", [&] { return field() + ".layer"; }, *asked.layer,
            spec_.num_layers + 1, /*negative_from_end=*/true);
        return;
      }
      layer = *resolved;
    }

    int64_t width = spec_.hidden_width(layer.value_or(spec_.num_layers));
    if (kind == Pooling::kPooler) {
      if (spec_.pooler.empty()) {
        AddUnavailable(field, "pooler");
        return;
      }
      if (layer.value_or(spec_.num_layers) != spec_.num_layers) {
        faults_.Add(
            "LAYER_OUT_OF_RANGE", [&] { return field() + ".layer"; },
            [&] {
              return absl::StrCat("the pooler reads the last layer: expected ", spec_.num_layers,
                                  " or none, got ", *asked.layer);
            });
        return;
      }
      layer.reset();
      width = WidthAfter(spec_.pooler, width);
    }

    const bool projected =
        !asked.kind.has_value() && !layer.has_value() && !spec_.projection.empty();
    if (projected) width = WidthAfter(spec_.projection, width);
    if (layer.has_value() && spec_.is_behind_final_norm(*layer)) layer.reset();

    if (asked.dimensions > width) {
      faults_.Add(
          "DIMENSIONS_OUT_OF_RANGE", [&] { return field() + ".dimensions"; },
          [&] { return absl::StrCat("expected 0 (all) to ", width, ", got ", asked.dimensions); });
      return;
    }
    plan_.pooled.push_back({.kind = kind,
                            .normalize = asked.normalize.value_or(spec_.default_normalize),
                            .layer = layer,
                            .projected = projected,
                            .dimensions = asked.dimensions == 0 ? width : asked.dimensions,
                            .index = index});
  }

  void ResolveLogits() {
    plan_.logits = outputs_.logits;
    plan_.logits_per_sequence = !spec_.classifier.empty();
    if (outputs_.logits && !spec_.has_logits()) {
      AddUnavailable([] { return std::string("outputs.logits"); }, "logits");
    }
  }

  void ResolveContacts() {
    plan_.contacts = outputs_.contacts;
    if (outputs_.contacts && !spec_.has_contacts()) {
      AddUnavailable([] { return std::string("outputs.contacts"); }, "contacts");
    }
  }

  void CheckSomethingIsChosen() {
    if (outputs_.last_hidden_state || !outputs_.hidden_states.empty() ||
        outputs_.all_hidden_states || outputs_.attentions.has_value() || !outputs_.pooled.empty() ||
        outputs_.logits || outputs_.contacts) {
      return;
    }
    faults_.Add(
        "NO_OUTPUTS", [] { return "outputs"; },
        [&] {
          return absl::StrCat(
              "nothing is asked for: expected at least one of what this model gives: ",
              absl::StrJoin(AvailableOutputs(spec_), ", "));
        });
  }

  // ---- Indices ----------------------------------------------------------------------------------

  static std::vector<int32_t> UpTo(int64_t count) {
    std::vector<int32_t> all(static_cast<size_t>(count));
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
    return all;
  }

  static std::optional<int32_t> Resolve(int32_t index, int64_t count, bool negative_from_end) {
    const int64_t resolved = index < 0 && negative_from_end ? index + count : index;
    if (resolved < 0 || resolved >= count) return std::nullopt;
    return static_cast<int32_t>(resolved);
  }

  // The caller's order, each index once.
  std::vector<int32_t> ResolveList(std::string_view reason, const char* list,
                                   const std::vector<int32_t>& asked, int64_t count,
                                   bool negative_from_end) {
    std::vector<int32_t> resolved;
    std::vector<bool> seen(static_cast<size_t>(count));
    for (size_t i = 0; i < asked.size(); ++i) {
      const auto index = Resolve(asked[i], count, negative_from_end);
      if (!index.has_value()) {
        AddOutOfRange(reason, [&] { return Element(list, i); }, asked[i], count, negative_from_end);
      } else if (!seen[static_cast<size_t>(*index)]) {
        seen[static_cast<size_t>(*index)] = true;
        resolved.push_back(*index);
      }
    }
    return resolved;
  }

  // 0 when no sequence has a length that is known.
  int64_t ShortestSequence() const {
    int64_t shortest = 0;
    for (size_t i = 0; i + 1 < plan_.token_offsets.size(); ++i) {
      const int64_t tokens = plan_.token_offsets[i + 1] - plan_.token_offsets[i];
      if (tokens > 0 && (shortest == 0 || tokens < shortest)) shortest = tokens;
    }
    return shortest;
  }

  // ---- Faults -----------------------------------------------------------------------------------

  template <typename Field>
  void AddOutOfRange(std::string_view reason, Field field, int32_t got, int64_t count,
                     bool negative_from_end) {
    faults_.Add(reason, field, [&] {
      const bool rows = reason == "ROW_OUT_OF_RANGE";
      return absl::StrCat("expected ", negative_from_end ? -count : 0, " to ", count - 1,
                          rows ? " (the shortest sequence decides)" : "", ", got ", got);
    });
  }

  template <typename Field>
  void AddUnavailable(Field field, const char* output) {
    faults_.Add(
        "OUTPUT_UNAVAILABLE", field,
        [&] {
          return absl::StrCat("this model has no ", output,
                              "; it gives: ", absl::StrJoin(AvailableOutputs(spec_), ", "));
        },
        absl::StatusCode::kFailedPrecondition);
  }

  const EncoderSpec& spec_;
  const OutputSpec& outputs_;
  Faults& faults_;
  Plan& plan_;
};

}  // namespace

// Blocks above the highest one whose output or map is asked for are not run.
void ResolveBlocks(const EncoderSpec& spec, Plan& plan) {
  int64_t outputs_needed = plan.last_hidden_state || plan.logits ? spec.num_layers : 0;
  for (const int32_t layer : plan.hidden_layers) {
    outputs_needed = std::max<int64_t>(outputs_needed, layer);
  }
  for (const PooledOutput& pooled : plan.pooled) {
    outputs_needed = std::max(outputs_needed, pooled.layer.value_or(spec.num_layers));
  }
  int64_t maps_needed = plan.contacts ? spec.num_layers : 0;
  for (const int32_t layer : plan.attention_layers) {
    maps_needed = std::max<int64_t>(maps_needed, layer + 1);
  }
  plan.last_map_only = maps_needed > outputs_needed;
  plan.layers_run = plan.last_map_only ? maps_needed - 1 : outputs_needed;
  plan.final_norm_needed =
      plan.last_hidden_state || plan.logits ||
      std::ranges::any_of(plan.pooled, [](const PooledOutput& pooled) { return !pooled.layer; }) ||
      std::ranges::any_of(plan.hidden_layers,
                          [&](int32_t layer) { return spec.is_behind_final_norm(layer); });
}

absl::int128 AnswerBytes(const EncoderSpec& spec, const Plan& plan) {
  const int64_t tokens = plan.token_offsets.back();
  absl::int128 values = 0;
  if (plan.last_hidden_state) values += absl::int128(tokens) * spec.hidden_size;
  for (const int32_t layer : plan.hidden_layers) {
    values += absl::int128(tokens) * spec.hidden_width(layer);
  }
  const auto maps =
      absl::int128(plan.attention_layers.size()) * absl::int128(plan.attention_heads.size());
  if (plan.attentions) {
    for (size_t i = 0; i + 1 < plan.token_offsets.size(); ++i) {
      const int64_t length = plan.token_offsets[i + 1] - plan.token_offsets[i];
      const auto rows =
          plan.query_rows.empty() ? length : static_cast<int64_t>(plan.query_rows.size());
      values += maps * rows * length;
    }
  }
  for (const PooledOutput& pooled : plan.pooled) {
    values += absl::int128(plan.pooled_offsets.back()) * pooled.dimensions;
  }
  if (plan.logits && spec.has_logits()) {
    values += absl::int128(plan.LogitsRows()) * spec.logits_width();
  }
  for (size_t i = 0; plan.contacts && i + 1 < plan.token_offsets.size(); ++i) {
    const int64_t inner = ContactTokens(plan.token_offsets[i + 1] - plan.token_offsets[i]);
    values += absl::int128(inner) * inner;
  }
  return values * absl::int128(DataTypeBytes(plan.dtype));
}

void ResolveOutputs(const EncoderSpec& spec, const RequestLimits& limits, const OutputSpec& outputs,
                    Faults& faults, Plan& plan) {
  OutputCheck(spec, outputs, faults, plan).Run();
  const absl::int128 tensors = AnswerBytes(spec, plan);
  const absl::int128 bytes =
      tensors + (limits.framing_bytes == nullptr ? 0 : limits.framing_bytes(plan));
  if (bytes <= limits.max_response_bytes) {
    plan.answer_bytes = static_cast<int64_t>(tensors);
    return;
  }
  faults.Add(
      "ANSWER_TOO_LARGE", [] { return "max_response_bytes"; },
      [&] {
        return absl::StrCat(
            "the answer needs ", bytes, " bytes; expected at most ", limits.max_response_bytes,
            ": ask for fewer layers, heads or query rows, for pooled outputs, or for dtype BF16 or "
            "FP16, which halves it, or send fewer sequences, or raise max_response_bytes as far as "
            "the server allows");
      });
}

}  // namespace encoderd::validation
