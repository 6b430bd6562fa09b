#include "server/answer_steps.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/tensor/data_type.h"

namespace encoderd {
namespace {

// The plan of sequences [first, end), counted from the plan's own first one.
Plan SequencesOfPlan(const Plan& plan, size_t first, size_t end, int64_t answer_bytes) {
  Plan some = plan;
  const auto cut = [first, end](std::vector<int64_t>& offsets) {
    offsets.assign(offsets.begin() + static_cast<int64_t>(first),
                   offsets.begin() + static_cast<int64_t>(end) + 1);
    const int64_t begin = offsets.front();
    for (int64_t& offset : offsets) offset -= begin;
  };
  cut(some.token_offsets);
  cut(some.pooled_offsets);
  some.first_sequence = plan.first_sequence + first;
  some.answer_bytes = answer_bytes;
  return some;
}

int64_t LongestStretch(const std::vector<int64_t>& offsets) {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < offsets.size(); ++i) {
    longest = std::max(longest, offsets[i + 1] - offsets[i]);
  }
  return longest;
}

int64_t RowBytes(const Plan& plan, int64_t tokens) {
  return tokens * static_cast<int64_t>(DataTypeBytes(plan.dtype));
}

bool HasMap(const Plan& plan, int64_t block) {
  return plan.attentions && std::ranges::find(plan.attention_layers, static_cast<int32_t>(block)) !=
                                plan.attention_layers.end();
}

}  // namespace

LeastMemory LeastMemoryOf(const EncoderSpec& spec, const Plan& plan) {
  // One sequence, as long as the longest and with as many pooled rows as any.
  Plan longest = plan;
  const int64_t tokens = LongestStretch(plan.token_offsets);
  longest.first_sequence = 0;
  longest.token_offsets = {0, tokens};
  longest.pooled_offsets = {0, LongestStretch(plan.pooled_offsets)};

  LeastMemory least = {
      .step_bytes = plan.attentions ? RowBytes(plan, tokens) : 0,
      .hidden_bytes = tokens * spec.hidden_size * static_cast<int64_t>(sizeof(float))};
  if (plan.contacts) {
    least.step_bytes =
        std::max(least.step_bytes, ContactsPartOf(spec, longest, /*sequence=*/0).answer_bytes);
    longest = WithoutContacts(spec, std::move(longest));
  }
  const int64_t blocks = BlocksOf(longest);
  for (int64_t block = 0; block < std::max<int64_t>(blocks, 1); ++block) {
    const Plan part = PartOf(spec, longest,
                             {.sequence = 0,
                              .first_block = block,
                              .end_block = std::min(block + 1, blocks),
                              .maps = false});
    least.step_bytes = std::max(least.step_bytes, part.answer_bytes);
  }
  return least;
}

std::optional<Plan> AnswerSteps::Next() {
  if (sequence_ == sequences()) return std::nullopt;
  if (block_ == 0 && head_ == 0 && row_ == 0 && !map_given_ && !contacts_given_) {
    const int64_t bytes = Whole(sequence_).answer_bytes;
    if (bytes <= max_bytes_) return NextSequences(bytes);
    if (plan_.contacts) return NextContacts();
  }
  return NextBlocks();
}

Plan AnswerSteps::Whole(size_t sequence) const {
  return PartOf(spec_, plan_,
                {.sequence = plan_.first_sequence + sequence, .end_block = BlocksOf(plan_)});
}

// As many whole sequences as fit. `first_bytes`: of the first one's answer.
Plan AnswerSteps::NextSequences(int64_t first_bytes) {
  const size_t first = sequence_++;
  int64_t bytes = first_bytes;
  for (; sequence_ < sequences(); ++sequence_) {
    const int64_t more = Whole(sequence_).answer_bytes;
    if (more > max_bytes_ - bytes) break;
    bytes += more;
  }
  return SequencesOfPlan(plan_, first, sequence_, bytes);
}

Plan AnswerSteps::NextContacts() {
  Plan step = ContactsPartOf(spec_, plan_, plan_.first_sequence + sequence_);
  contacts_given_ = true;
  if (rest_.answer_bytes == 0) EndSequence();
  return step;
}

// As many blocks of one sequence as fit, at least one; the map of a block that is too large goes
// before it, in pieces.
Plan AnswerSteps::NextBlocks() {
  const int64_t blocks = BlocksOf(rest_);
  Part part = {.sequence = rest_.first_sequence + sequence_,
               .first_block = block_,
               .end_block = std::min(block_ + 1, blocks),
               .maps = !map_given_};
  Plan step = PartOf(spec_, rest_, part);
  if (step.answer_bytes > max_bytes_ && part.maps && HasMap(rest_, block_)) return NextOfMap();
  while (part.maps && part.end_block < blocks) {
    ++part.end_block;
    Plan more = PartOf(spec_, rest_, part);
    if (more.answer_bytes > max_bytes_) {
      --part.end_block;
      break;
    }
    step = std::move(more);
  }
  block_ = part.end_block;
  map_given_ = false;
  if (block_ == blocks) EndSequence();
  return step;
}

// Heads of the block's map as they fit, or rows of one head where a head does not.
Plan AnswerSteps::NextOfMap() {
  const int64_t tokens = rest_.token_offsets[sequence_ + 1] - rest_.token_offsets[sequence_];
  const size_t heads = rest_.attention_heads.size();
  const size_t rows =
      rest_.query_rows.empty() ? static_cast<size_t>(tokens) : rest_.query_rows.size();
  const auto rows_that_fit =
      std::max<size_t>(1, static_cast<size_t>(max_bytes_ / RowBytes(rest_, tokens)));
  MapPart part = {.sequence = rest_.first_sequence + sequence_,
                  .block = block_,
                  .first_head = head_,
                  .end_head = head_ + 1,
                  .first_row = row_,
                  .end_row = rows};
  if (row_ == 0 && rows <= rows_that_fit) {
    part.end_head = std::min(heads, head_ + rows_that_fit / rows);
  } else {
    part.end_row = std::min(rows, row_ + rows_that_fit);
  }
  row_ = part.end_row == rows ? 0 : part.end_row;
  if (row_ == 0) head_ = part.end_head;
  if (head_ == heads) {
    head_ = 0;
    map_given_ = true;
    // A block that is run for its map alone has given all it gives.
    if (rest_.last_map_only && block_ + 1 == BlocksOf(rest_)) EndSequence();
  }
  return MapPartOf(spec_, rest_, part);
}

void AnswerSteps::EndSequence() {
  ++sequence_;
  contacts_given_ = false;
  block_ = 0;
  map_given_ = false;
}

}  // namespace encoderd
