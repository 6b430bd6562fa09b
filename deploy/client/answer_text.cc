#include "deploy/client/answer_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/tensor/data_type.h"

namespace encoderd::client {
namespace {

// 8: the first rows show the kind of the values; --json gives all.
constexpr int64_t kMaxRows = 8;

std::string Counted(int64_t count, absl::string_view noun) {
  return absl::StrCat(count, " ", noun, count == 1 ? "" : "s");
}

std::string Milliseconds(absl::Duration duration) {
  return absl::StrFormat("%.2f ms", absl::ToDoubleMilliseconds(duration));
}

// The names of a tensor's columns, where it has some.
using Labels = std::span<const std::string>;

std::string Values(std::span<const float> values, int num_values, Labels labels = {}) {
  std::string text;
  const size_t shown = std::min(values.size(), static_cast<size_t>(num_values));
  for (const float value : values.first(shown)) absl::StrAppendFormat(&text, "%10.5f", value);
  if (shown < values.size()) text += " …";
  if (values.empty() || labels.size() != values.size()) return text;
  const auto best = static_cast<size_t>(std::ranges::max_element(values) - values.begin());
  return absl::StrCat(text, "  ", absl::Utf8SafeCEscape(labels[best]));
}

std::string Heading(absl::string_view name, const FloatTensor& tensor) {
  return absl::StrCat(name, "  ", std::string(DataTypeName(tensor.wire_type)), " [",
                      absl::StrJoin(tensor.shape, ", "), "]\n");
}

// Writes `rows` lines, or the first kMaxRows of them and how many there are more.
template <typename Line>
void WriteRows(int64_t rows, absl::string_view noun, std::ostream& out, const Line& line) {
  for (int64_t row = 0; row < std::min(rows, kMaxRows); ++row) out << "  " << line(row) << "\n";
  if (rows > kMaxRows) out << "  … " << Counted(rows - kMaxRows, noun) << " more\n";
}

// A tensor with a row per token: the rows of a lone sequence, or the first row of each.
void WriteTokenRows(absl::string_view name, const FloatTensor& tensor, const Answer& answer,
                    int num_values, std::ostream& out, Labels labels = {}) {
  out << Heading(name, tensor);
  if (answer.sequences() == 1) {
    WriteRows(answer.tokens(), "token", out, [&](int64_t token) {
      return absl::StrFormat("token %d:%s", token, Values(tensor.Row(token), num_values, labels));
    });
    return;
  }
  WriteRows(answer.sequences(), "sequence", out, [&](int64_t sequence) {
    const int64_t begin = answer.token_offsets[static_cast<size_t>(sequence)];
    const int64_t tokens = answer.token_offsets[static_cast<size_t>(sequence) + 1] - begin;
    const std::string head =
        absl::StrFormat("sequence %d, %s:", sequence, Counted(tokens, "token"));
    return tokens == 0 ? head : head + Values(tensor.Row(begin), num_values, labels);
  });
}

void WriteTable(absl::string_view name, const FloatTensor& tensor, absl::string_view row_noun,
                int num_values, std::ostream& out, Labels labels = {}) {
  out << Heading(name, tensor);
  WriteRows(tensor.shape[0], row_noun, out, [&](int64_t row) {
    return absl::StrFormat("%s %d:%s", row_noun, row, Values(tensor.Row(row), num_values, labels));
  });
}

void WriteMap(const AttentionMap& map, int num_values, std::ostream& out) {
  out << Heading(absl::StrFormat("attentions, sequence %d, layer %d", map.sequence, map.layer),
                 map.weights);
  if (map.weights.values.empty()) return;
  WriteRows(static_cast<int64_t>(map.heads.size()), "head", out, [&](int64_t head) {
    const std::span<const float> weights = map.Head(static_cast<size_t>(head));
    return absl::StrFormat(
        "head %d, query %d:%s", map.heads[static_cast<size_t>(head)], map.query_rows[0],
        Values(weights.first(static_cast<size_t>(map.weights.shape[2])), num_values));
  });
}

// Numbers of JSON as fp32, so that they are written with the fewest digits that give them back.
using Json =
    nlohmann::basic_json<std::map, std::vector, std::string, bool, int64_t, uint64_t, float>;

Json TensorJson(const FloatTensor& tensor) {
  return {{"dtype", std::string(DataTypeName(tensor.wire_type))},
          {"shape", tensor.shape},
          {"data", tensor.values}};
}

}  // namespace

void WriteAnswerText(const Answer& answer, absl::Duration round_trip, int num_values,
                     std::span<const std::string> labels, std::ostream& out) {
  const v1::Timing& timing = answer.timing;
  out << Counted(answer.sequences(), "sequence") << ", " << Counted(answer.tokens(), "token")
      << "; request " << absl::Utf8SafeCEscape(answer.request_id) << "; numerics id "
      << absl::Utf8SafeCEscape(answer.numerics_id) << "\n"
      << "queue " << Milliseconds(absl::Microseconds(timing.queue_us())) << ", compute "
      << Milliseconds(absl::Microseconds(timing.compute_us())) << ", round trip "
      << Milliseconds(round_trip) << "; " << Counted(timing.layers_run(), "layer") << " run in "
      << timing.batches() << (timing.batches() == 1 ? " batch" : " batches") << " of up to "
      << Counted(timing.batch_tokens(), "token") << "\n";
  if (answer.last_hidden_state.has_value()) {
    WriteTokenRows("last_hidden_state", *answer.last_hidden_state, answer, num_values, out);
  }
  for (const auto& [layer, tensor] : answer.hidden_states) {
    WriteTokenRows(absl::StrCat("hidden_states, layer ", layer), tensor, answer, num_values, out);
  }
  for (const AttentionMap& map : answer.attentions) WriteMap(map, num_values, out);
  for (size_t i = 0; i < answer.pooled.size(); ++i) {
    WriteTable(absl::StrCat("pooled[", i, "]"), answer.pooled[i], "row", num_values, out);
  }
  if (answer.logits.has_value()) {
    if (answer.logits->shape[0] == answer.tokens()) {
      WriteTokenRows("logits", *answer.logits, answer, num_values, out, labels);
    } else {
      WriteTable("logits", *answer.logits, "sequence", num_values, out, labels);
    }
  }
  for (size_t i = 0; i < answer.contacts.size(); ++i) {
    WriteTable(absl::StrCat("contacts, sequence ", i), answer.contacts[i], "row", num_values, out);
  }
}

void WriteAnswerJson(const Answer& answer, std::ostream& out) {
  Json json = {{"token_offsets", answer.token_offsets},
               {"numerics_id", answer.numerics_id},
               {"request_id", answer.request_id},
               {"timing",
                {{"queue_us", answer.timing.queue_us()},
                 {"compute_us", answer.timing.compute_us()},
                 {"batches", answer.timing.batches()},
                 {"batch_tokens", answer.timing.batch_tokens()},
                 {"layers_run", answer.timing.layers_run()}}}};
  if (answer.last_hidden_state.has_value()) {
    json["last_hidden_state"] = TensorJson(*answer.last_hidden_state);
  }
  for (const auto& [layer, tensor] : answer.hidden_states) {
    json["hidden_states"].push_back({{"layer", layer}, {"tensor", TensorJson(tensor)}});
  }
  for (const AttentionMap& map : answer.attentions) {
    json["attentions"].push_back({{"sequence", map.sequence},
                                  {"layer", map.layer},
                                  {"heads", map.heads},
                                  {"query_rows", map.query_rows},
                                  {"tensor", TensorJson(map.weights)}});
  }
  for (const FloatTensor& tensor : answer.pooled) json["pooled"].push_back(TensorJson(tensor));
  if (answer.logits.has_value()) json["logits"] = TensorJson(*answer.logits);
  for (const FloatTensor& tensor : answer.contacts) json["contacts"].push_back(TensorJson(tensor));
  // Names that a server made up need not be UTF-8.
  out << json.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
}

}  // namespace encoderd::client
