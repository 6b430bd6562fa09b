#include "server/answer_stretches.h"

#include <algorithm>
#include <utility>

#include "engine/tensor/data_type.h"

namespace encoderd {
namespace {

size_t PlaceIn(const std::vector<int32_t>& list, int32_t value) {
  return static_cast<size_t>(std::ranges::find(list, value) - list.begin());
}

// Lists the stretches of one part.
class Stretches {
 public:
  Stretches(const Plan& whole, const Plan& part) : whole_(whole), part_(part) {}

  // A tensor whose rows are tokens, or pooled vectors: `offsets` says which.
  void AddRows(size_t tensor, const std::vector<int64_t> Plan::* offsets,
               const AnswerTensor& rows) {
    AddRows(tensor, (whole_.*offsets)[whole_.PlaceOf(part_.first_sequence)], rows);
  }
  void AddLogits(size_t tensor, const AnswerTensor& logits) {
    AddRows(tensor, whole_.FirstLogitsRow(whole_.PlaceOf(part_.first_sequence)), logits);
  }

  // All of one tensor, which may have no bytes.
  void AddWhole(size_t tensor, const AnswerTensor& whole) {
    if (whole.data.size() > 0) Add(tensor, 0, whole.data.bytes());
  }

  // A map of the part's heads and query rows, which follow each other in the whole plan's lists.
  void AddMap(size_t tensor, const AttentionMap& map) {
    const auto heads = static_cast<size_t>(map.tensor.shape[0]);
    const auto rows = static_cast<size_t>(map.tensor.shape[1]);
    const auto columns = static_cast<size_t>(map.tensor.shape[2]);
    const size_t row_bytes = columns * DataTypeBytes(part_.dtype);
    const size_t whole_rows = whole_.query_rows.empty() ? columns : whole_.query_rows.size();
    const size_t first_head = PlaceIn(whole_.attention_heads, part_.attention_heads[0]);
    size_t first_row = 0;
    if (!part_.query_rows.empty()) {
      first_row = whole_.query_rows.empty() ? static_cast<size_t>(part_.query_rows[0])
                                            : PlaceIn(whole_.query_rows, part_.query_rows[0]);
    }
    const auto offset_of = [&](size_t head) {
      return ((first_head + head) * whole_rows + first_row) * row_bytes;
    };
    if (rows == whole_rows) return Add(tensor, offset_of(0), map.tensor.data.bytes());
    for (size_t head = 0; head < heads; ++head) {
      Add(tensor, offset_of(head),
          map.tensor.data.bytes().subspan(head * rows * row_bytes, rows * row_bytes));
    }
  }

  std::vector<Stretch> Take() { return std::move(stretches_); }

 private:
  void AddRows(size_t tensor, int64_t first_row, const AnswerTensor& rows) {
    const size_t row_bytes = rows.data.size() / static_cast<size_t>(rows.shape[0]);
    Add(tensor, static_cast<size_t>(first_row) * row_bytes, rows.data.bytes());
  }
  void Add(size_t tensor, size_t offset, std::span<const std::byte> data) {
    stretches_.push_back({static_cast<uint32_t>(tensor), offset, data});
  }

  const Plan& whole_;
  const Plan& part_;
  std::vector<Stretch> stretches_;
};

}  // namespace

std::vector<Stretch> StretchesOf(const Plan& whole, const Plan& part, const Answer& answer) {
  const size_t sequences = whole.token_offsets.size() - 1;
  const size_t first_hidden = whole.last_hidden_state ? 1 : 0;
  const size_t first_map = first_hidden + whole.hidden_layers.size();
  const size_t first_pooled =
      first_map + (whole.attentions ? sequences * whole.attention_layers.size() : 0);
  const size_t logits = first_pooled + whole.pooled.size();
  const size_t first_contacts = logits + (whole.logits ? 1 : 0);

  Stretches found(whole, part);
  if (part.last_hidden_state) found.AddRows(0, &Plan::token_offsets, answer.last_hidden_state);
  for (size_t i = 0; i < part.hidden_layers.size(); ++i) {
    found.AddRows(first_hidden + PlaceIn(whole.hidden_layers, part.hidden_layers[i]),
                  &Plan::token_offsets, answer.hidden_states[i]);
  }
  for (const AttentionMap& map : answer.attentions) {
    found.AddMap(first_map + whole.PlaceOf(map.sequence) * whole.attention_layers.size() +
                     PlaceIn(whole.attention_layers, map.layer),
                 map);
  }
  for (size_t i = 0; i < part.pooled.size(); ++i) {
    found.AddRows(first_pooled + part.pooled[i].index, &Plan::pooled_offsets, answer.pooled[i]);
  }
  if (part.logits) found.AddLogits(logits, answer.logits);
  for (size_t i = 0; i < answer.contacts.size(); ++i) {
    found.AddWhole(first_contacts + whole.PlaceOf(part.first_sequence) + i, answer.contacts[i]);
  }
  return found.Take();
}

}  // namespace encoderd
