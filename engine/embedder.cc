#include "engine/embedder.h"

#include <algorithm>

#include "engine/status_macros.h"
#include "engine/tensor/convert.h"

namespace encoderd {
namespace {

size_t InputBytes(const EncoderSpec& spec) {
  if (spec.input_steps.empty()) return 0;
  return static_cast<size_t>(BatchLayout::kMaxRows * spec.input_size()) * sizeof(float);
}

// The rows of the position table that the tokens of a sequence are given, from `token` on.
class PositionRows {
 public:
  PositionRows(const Sequence& sequence, int64_t padding_id, int64_t token)
      : sequence_(sequence), padding_id_(padding_id), token_(token) {
    const auto ids = sequence.input_ids.first(sequence.input_ids.empty() ? 0 : at());
    last_counted_ = padding_id + token - std::ranges::count(ids, padding_id);
  }

  // An id of -1 is no token's: all are counted, from 0.
  int64_t Next() {
    const size_t index = at();
    ++token_;
    if (!sequence_.position_ids.empty()) return sequence_.position_ids[index];
    const bool padding = !sequence_.input_ids.empty() && sequence_.input_ids[index] == padding_id_;
    return padding ? padding_id_ : ++last_counted_;
  }

 private:
  size_t at() const { return static_cast<size_t>(token_); }

  const Sequence& sequence_;
  const int64_t padding_id_;
  int64_t token_;
  int64_t last_counted_;  // row of the last token in front of token_ that is no padding
};

}  // namespace

int64_t Embedder::ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights) {
  return static_cast<int64_t>(InputBytes(spec) + weights.scratchpad_bytes());
}

absl::StatusOr<Embedder> Embedder::Create(const EncoderSpec& spec, const EncoderWeights& weights) {
  Embedder embedder(spec, weights);
  ASSIGN_OR_RETURN(embedder.input_, Buffer::AllocateZeroed(InputBytes(spec), "input vectors"));
  ASSIGN_OR_RETURN(embedder.scratchpad_,
                   Buffer::Allocate(weights.scratchpad_bytes(), "scratchpad"));
  return embedder;
}

absl::Status Embedder::Run(const BatchLayout& layout, const Tile& tile, StepRunner& steps,
                           float* rows) {
  const bool has_steps = !weights_->input_steps.empty();
  const int64_t in = spec_->input_size(), out = spec_->embedding_size();
  float* const input = has_steps ? input_.floats().data() : rows;
  const auto sequence_of = [&](const Segment& segment) -> const Sequence& {
    const BatchItem& item = *layout.SequenceOf(segment).item;
    return item.request->sequences[item.sequence];
  };
  for (const Segment& segment : layout.SegmentsOf(tile)) {
    WriteInput(sequence_of(segment), segment, input + segment.row * in);
  }
  for (int64_t row = 0; has_steps && row < tile.rows; row += StepRunner::kRows) {
    const int64_t count = std::min(StepRunner::kRows, tile.rows - row);
    ASSIGN_OR_RETURN(const float* result,
                     steps.Run(weights_->input_steps, input + row * in, count));
    std::copy_n(result, count * out, rows + row * out);
  }
  for (const Segment& segment : layout.SegmentsOf(tile)) {
    AddPositionsAndTypes(sequence_of(segment), segment, rows + segment.row * out);
  }
  if (!weights_->embedding_norm.has_value()) return absl::OkStatus();
  return weights_->embedding_norm->Run(rows, tile.rows, rows, scratchpad_.bytes());
}

void Embedder::WriteInput(const Sequence& sequence, const Segment& segment, float* rows) const {
  const int64_t width = spec_->input_size();
  const auto first = static_cast<size_t>(segment.first_token);
  const auto tokens = static_cast<size_t>(segment.tokens);
  if (const auto& embeds = sequence.inputs_embeds; embeds.has_value()) {
    const size_t row_bytes = static_cast<size_t>(width) * DataTypeBytes(embeds->dtype);
    WidenToFp32(embeds->dtype, embeds->data.subspan(first * row_bytes, tokens * row_bytes),
                {rows, tokens * static_cast<size_t>(width)});
    return;
  }
  const float* const words = weights_->words.floats().data();
  for (const int32_t id : sequence.input_ids.subspan(first, tokens)) {
    std::copy_n(words + id * width, width, rows);
    rows += width;
  }
}

void Embedder::AddPositionsAndTypes(const Sequence& sequence, const Segment& segment,
                                    float* rows) const {
  const int64_t width = spec_->embedding_size();
  auto add = [width](const float* vector, float* row) {
    for (int64_t i = 0; i < width; ++i) row[i] += vector[i];
  };
  PositionRows positions(sequence, spec_->position_padding_id, segment.first_token);
  const int64_t end = segment.first_token + segment.tokens;
  for (int64_t token = segment.first_token; token < end; ++token, rows += width) {
    const auto at = static_cast<size_t>(token);
    if (spec_->type_vocab_size > 0) {
      const int64_t type = sequence.token_type_ids.empty() ? 0 : sequence.token_type_ids[at];
      add(weights_->types.floats().data() + type * width, rows);
    }
    if (spec_->positions != PositionKind::kNone) {
      add(weights_->positions.floats().data() + positions.Next() * width, rows);
    }
  }
}

}  // namespace encoderd
