#include "engine/embedder.h"

#include <algorithm>

#include "engine/status_macros.h"
#include "engine/tensor/convert.h"

namespace encoderd {
namespace {

// Of the rows of a tile in front of `steps`; without steps they need no place of their own.
size_t BytesBefore(const std::vector<Step>& steps, int64_t width) {
  if (steps.empty()) return 0;
  return static_cast<size_t>(BatchLayout::kMaxRows * width) * sizeof(float);
}
size_t InputBytes(const EncoderSpec& spec) {
  return BytesBefore(spec.input_steps, spec.input_size());
}
size_t EmbeddedBytes(const EncoderSpec& spec) {
  return BytesBefore(spec.embedding_steps, spec.table_width());
}

// Runs src [rows, in] through the steps, as many rows at a time as `runner` takes, into dst [rows,
// out].
absl::Status RunSteps(const std::vector<StepWeights>& steps, const float* src, int64_t in,
                      int64_t rows, StepRunner& runner, float* dst, int64_t out) {
  for (int64_t row = 0; row < rows; row += StepRunner::kRows) {
    const int64_t count = std::min(StepRunner::kRows, rows - row);
    ASSIGN_OR_RETURN(const float* result, runner.Run(steps, src + row * in, count));
    std::copy_n(result, count * out, dst + row * out);
  }
  return absl::OkStatus();
}

// What every embedding but the mask token's is multiplied with where the model has token dropout:
// Lin et al. 2022 (ESM-2), as EsmEmbeddings of transformers 5.24 computes it. In training, 0.8 of
// the 0.15 of all tokens that were to be guessed were mask tokens. Tokens that `keys` hides do not
// count. Without a token to scale it is any finite number.
float DropoutScale(const Sequence& sequence, int64_t mask_token_id) {
  constexpr double kTrainingShare = 0.15 * 0.8;
  const std::span<const uint8_t> keys = sequence.mask.keys;
  int64_t seen = 0, masks = 0;
  for (size_t i = 0; i < sequence.input_ids.size(); ++i) {
    if (!keys.empty() && keys[i] == 0) continue;
    ++seen;
    if (sequence.input_ids[i] == mask_token_id) ++masks;
  }
  if (masks == seen) return static_cast<float>(1 - kTrainingShare);
  const double share = static_cast<double>(masks) / static_cast<double>(seen);
  return static_cast<float>((1 - kTrainingShare) / (1 - share));
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

int64_t Embedder::ScratchBytes(const EncoderSpec& spec) {
  return static_cast<int64_t>(InputBytes(spec) + EmbeddedBytes(spec));
}

absl::StatusOr<Embedder> Embedder::Create(const EncoderSpec& spec, const EncoderWeights& weights) {
  Embedder embedder(spec, weights);
  ASSIGN_OR_RETURN(embedder.input_, Buffer::AllocateLasting(InputBytes(spec), "input vectors"));
  ASSIGN_OR_RETURN(embedder.embedded_,
                   Buffer::AllocateLasting(EmbeddedBytes(spec), "embedded rows"));
  return embedder;
}

absl::Status Embedder::Run(const BatchLayout& layout, const Tile& tile, StepRunner& steps,
                           float* rows) {
  const std::vector<StepWeights>& before = weights_->input_steps;
  const std::vector<StepWeights>& behind = weights_->embedding_steps;
  const int64_t in = spec_->input_size(), width = spec_->table_width();
  float* const embedded = behind.empty() ? rows : embedded_.floats().data();
  float* const input = before.empty() ? embedded : input_.floats().data();
  const auto sequence_of = [&](const Segment& segment) -> const Sequence& {
    const BatchItem& item = *layout.SequenceOf(segment).item;
    return item.request->sequences[item.sequence];
  };
  for (const Segment& segment : layout.SegmentsOf(tile)) {
    WriteInput(sequence_of(segment), segment, input + segment.row * in);
  }
  if (!before.empty()) {
    RETURN_IF_ERROR(RunSteps(before, input, in, tile.rows, steps, embedded, width));
  }
  for (const Segment& segment : layout.SegmentsOf(tile)) {
    AddPositionsAndTypes(sequence_of(segment), segment, embedded + segment.row * width);
  }
  if (weights_->embedding_norm.has_value()) {
    weights_->embedding_norm->Run(embedded, tile.rows, embedded);
  }
  if (behind.empty()) return absl::OkStatus();
  return RunSteps(behind, embedded, width, tile.rows, steps, rows, spec_->embedding_size());
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
  const float scale = spec_->token_dropout ? DropoutScale(sequence, spec_->mask_token_id) : 1.0f;
  for (const int32_t id : sequence.input_ids.subspan(first, tokens)) {
    const float* const word = words + id * width;
    if (!spec_->token_dropout) {
      std::copy_n(word, width, rows);
    } else if (id == spec_->mask_token_id) {
      std::fill_n(rows, width, 0.0f);
    } else {
      std::transform(word, word + width, rows, [scale](float x) { return x * scale; });
    }
    rows += width;
  }
}

void Embedder::AddPositionsAndTypes(const Sequence& sequence, const Segment& segment,
                                    float* rows) const {
  const int64_t width = spec_->table_width();
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
