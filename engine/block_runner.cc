#include "engine/block_runner.h"

#include <algorithm>
#include <string_view>

#include "engine/profile.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

constexpr int64_t kRows = BatchLayout::kMaxRows;

absl::Status Unless(absl::FunctionRef<bool()> stop) {
  return stop() ? absl::CancelledError() : absl::OkStatus();
}

// Zeroed: see Generation::Create.
absl::StatusOr<Buffer> AllocateFloats(int64_t floats, std::string_view what) {
  return Buffer::AllocateLasting(static_cast<size_t>(floats) * sizeof(float), what);
}

int64_t GateSize(const EncoderSpec& spec) { return spec.gate == Gate::kNone ? 0 : spec.ffn_size; }

// Turns q and k of the tile's first `rows` rows by their positions.
void Turn(const ops::Rotary& rotary, const BatchLayout& layout, const Tile& tile, int64_t rows,
          int64_t stride, float* qkv) {
  for (const Segment& segment : layout.SegmentsOf(tile)) {
    if (segment.row >= rows) break;
    const std::span<const int32_t> ids = layout.SequenceOf(segment).position_ids;
    for (int64_t i = 0; i < segment.tokens; ++i) {
      const int64_t token = segment.first_token + i;
      rotary.Run(ids.empty() ? token : ids[static_cast<size_t>(token)],
                 qkv + (segment.row + i) * stride);
    }
  }
}

}  // namespace

int64_t BlockRunner::ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights,
                                  int64_t max_sequence_tokens) {
  const int64_t width = spec.widest_hidden();
  const int64_t floats = kRows * (width + 4 * spec.hidden_size + spec.ffn_size + GateSize(spec));
  return floats * static_cast<int64_t>(sizeof(float)) +
         static_cast<int64_t>(weights.attention.scratch_bytes(max_sequence_tokens) +
                              weights.scratchpad_bytes());
}

absl::StatusOr<std::unique_ptr<BlockRunner>> BlockRunner::Create(const EncoderSpec& spec,
                                                                 const EncoderWeights& weights,
                                                                 int64_t max_sequence_tokens) {
  std::unique_ptr<BlockRunner> runner(new BlockRunner(spec, weights));
  const int64_t width = spec.widest_hidden();
  Scratch& scratch = runner->scratch_;
  ASSIGN_OR_RETURN(scratch.inner, AllocateFloats(kRows * width, "inner rows"));
  ASSIGN_OR_RETURN(scratch.qkv, AllocateFloats(kRows * 3 * spec.hidden_size, "q, k and v"));
  ASSIGN_OR_RETURN(scratch.context, AllocateFloats(kRows * spec.hidden_size, "attention context"));
  ASSIGN_OR_RETURN(scratch.ffn, AllocateFloats(kRows * spec.ffn_size, "FFN rows"));
  ASSIGN_OR_RETURN(scratch.gate, AllocateFloats(kRows * GateSize(spec), "FFN gate"));
  ASSIGN_OR_RETURN(
      scratch.attention,
      Buffer::AllocateLasting(weights.attention.scratch_bytes(max_sequence_tokens), "attention"));
  ASSIGN_OR_RETURN(scratch.scratchpad,
                   Buffer::AllocateLasting(weights.scratchpad_bytes(), "scratchpad"));
  constexpr int64_t kLeastPiece = ops::Attention::kPieceStep;
  runner->pieces_.reserve(static_cast<size_t>(max_sequence_tokens / kLeastPiece + 1));
  return runner;
}

absl::Status BlockRunner::Run(const BlockPhase& phase, int index, const TileRows& dst, Stop stop) {
  const auto at = static_cast<size_t>(index);
  const Tile& tile = phase.layout->tiles()[at];
  const float* x = phase.input[at].hidden;
  if (phase.attend.has_value()) {
    const int64_t layer = *phase.attend;
    RETURN_IF_ERROR(Attend(phase, tile, stop));
    const int64_t rows = phase.layout->RowsBeyond(tile, 2 * layer + 1);
    if (rows == 0) return absl::OkStatus();
    RETURN_IF_ERROR(RunRowWise(BlockOf(layer), rows, x, dst.hidden, stop));
    x = dst.hidden;
  }
  if (!phase.project.has_value()) return absl::OkStatus();
  const int64_t rows = phase.layout->RowsBeyond(tile, 2 * *phase.project);
  if (rows == 0) return absl::OkStatus();
  return Project(phase, tile, rows, x, dst.qkv, stop);
}

absl::Status BlockRunner::Attend(const BlockPhase& phase, const Tile& tile, Stop stop) {
  for (const Segment& segment : phase.layout->SegmentsOf(tile)) {
    if (phase.layout->SequenceOf(segment).half_blocks <= 2 * *phase.attend) break;
    RETURN_IF_ERROR(AttendSegment(phase, tile, segment, stop));
  }
  return absl::OkStatus();
}

absl::Status BlockRunner::AttendSegment(const BlockPhase& phase, const Tile& tile,
                                        const Segment& segment, Stop stop) {
  const PlacedSequence& sequence = phase.layout->SequenceOf(segment);
  const auto index = static_cast<size_t>(segment.sequence);
  const bool needs_context = sequence.half_blocks > 2 * *phase.attend + 1;
  const ops::MapOutput* map =
      phase.maps.empty() || phase.maps[index].dst == nullptr ? nullptr : &phase.maps[index];
  const bool contacts = phase.contacts != nullptr && phase.contacts->wanted(index);
  if (!needs_context && map == nullptr && !contacts) return absl::OkStatus();
  const auto add_row = [&](int64_t head, int64_t token, std::span<const float> weights) {
    phase.contacts->AddRow(*phase.attend,
                           {.sequence = index, .head = head, .token = token, .weights = weights});
  };
  const ops::MapRowSink each_row(add_row);

  pieces_.clear();
  const float* qkv = nullptr;
  if (tile.piece) {
    for (const Segment& piece : phase.layout->SegmentsOf(sequence)) {
      pieces_.push_back(
          {.data = phase.input[static_cast<size_t>(piece.tile)].qkv, .tokens = piece.tokens});
    }
  } else {
    qkv = phase.input[static_cast<size_t>(segment.tile)].qkv + segment.row * 3 * spec_.hidden_size;
  }
  float* const context = scratch_.context.floats().data() + segment.row * spec_.hidden_size;
  // Of q·kᵀ and of what is summed of v, where no mask leaves any out.
  const OpTimer timer(
      OpKind::kAttention,
      4.0 * static_cast<double>(segment.tokens * sequence.tokens * spec_.hidden_size));
  ASSIGN_OR_RETURN(
      const bool finite,
      weights_.attention.Run({.qkv = qkv,
                              .pieces = pieces_,
                              .tokens = sequence.tokens,
                              .first_query = segment.first_token,
                              .queries = segment.tokens,
                              .mask = &sequence.mask,
                              .window = spec_.window_of(*phase.attend),
                              .positions = BlockOf(*phase.attend).relative.floats().data(),
                              .context = needs_context ? context : nullptr,
                              .map = map,
                              .each_row = contacts ? &each_row : nullptr,
                              .stop = &stop},
                             scratch_.attention.bytes()));
  if (!finite) phase.bad_scores[index].store(true, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status BlockRunner::Multiply(OpKind kind, const ops::Linear& product, const void* src,
                                   int64_t rows, const void* other, void* dst) {
  const OpTimer timer(kind, 2.0 * static_cast<double>(rows * product.in() * product.out()));
  return product.Run(src, rows, other, dst, scratch_.scratchpad.bytes());
}

void BlockRunner::Normalize(const ops::LayerNorm& norm, const float* src, int64_t rows,
                            float* dst) {
  const OpTimer timer(OpKind::kNorm);
  norm.Run(src, rows, dst);
}

absl::Status BlockRunner::RunRowWise(const BlockWeights& block, int64_t rows, const float* x,
                                     float* dst, Stop stop) {
  const float* const context = scratch_.context.floats().data();
  float* const sum = scratch_.inner.floats().data();
  std::byte* const ffn = scratch_.ffn.data();

  RETURN_IF_ERROR(Unless(stop));
  if (!block.ffn_in.has_value()) {
    if (spec_.norm != NormPlacement::kPost) {
      return Multiply(OpKind::kAttentionOutput, block.attention_output, context, rows, x, dst);
    }
    RETURN_IF_ERROR(
        Multiply(OpKind::kAttentionOutput, block.attention_output, context, rows, x, sum));
    Normalize(*block.norm1, sum, rows, dst);
    return absl::OkStatus();
  }
  // What enters the FFN, and what is added to what leaves it.
  const float* in = sum;
  const float* residual = sum;
  RETURN_IF_ERROR(
      Multiply(OpKind::kAttentionOutput, block.attention_output, context, rows, x, sum));
  if (spec_.norm == NormPlacement::kPost) {
    Normalize(*block.norm1, sum, rows, dst);
    in = residual = dst;
  } else if (spec_.norm == NormPlacement::kPre) {
    Normalize(*block.norm2, sum, rows, dst);
    in = dst;
  }
  RETURN_IF_ERROR(RunFfnIn(block, rows, in, ffn, stop));
  RETURN_IF_ERROR(Unless(stop));
  if (spec_.norm != NormPlacement::kPost) {
    return Multiply(OpKind::kFfnOut, *block.ffn_out, ffn, rows, residual, dst);
  }
  RETURN_IF_ERROR(Multiply(OpKind::kFfnOut, *block.ffn_out, ffn, rows, residual, sum));
  Normalize(*block.norm2, sum, rows, dst);
  return absl::OkStatus();
}

absl::Status BlockRunner::RunFfnIn(const BlockWeights& block, int64_t rows, const float* x,
                                   std::byte* dst, Stop stop) {
  RETURN_IF_ERROR(Unless(stop));
  if (!block.ffn_gate.has_value()) {
    return Multiply(OpKind::kFfnIn, *block.ffn_in, x, rows, /*other=*/nullptr, dst);
  }
  std::byte* const gate = scratch_.gate.data();
  RETURN_IF_ERROR(Multiply(OpKind::kFfnIn, *block.ffn_gate, x, rows, /*other=*/nullptr, gate));
  RETURN_IF_ERROR(Unless(stop));
  return Multiply(OpKind::kFfnIn, *block.ffn_in, x, rows, /*other=*/gate, dst);
}

absl::Status BlockRunner::Project(const BlockPhase& phase, const Tile& tile, int64_t rows,
                                  const float* x, float* qkv, Stop stop) {
  const int64_t layer = *phase.project;
  const BlockWeights& block = BlockOf(layer);
  RETURN_IF_ERROR(Unless(stop));
  if (spec_.norm == NormPlacement::kPre && block.norm1.has_value()) {
    float* const normed = scratch_.inner.floats().data();
    Normalize(*block.norm1, x, rows, normed);
    x = normed;
  }
  float* const dst = tile.piece ? scratch_.qkv.floats().data() : qkv;
  // Matrices shared by the heads see each head of a token as a row of its own.
  const int64_t rows_per_token = spec_.hidden_width(layer) / block.qkv.in();
  RETURN_IF_ERROR(
      Multiply(OpKind::kQkv, block.qkv, x, rows * rows_per_token, /*other=*/nullptr, dst));
  const OpTimer timer(OpKind::kPacking);
  const auto& rotary = spec_.window_of(layer) > 0 ? weights_.rotary_local : weights_.rotary;
  if (rotary.has_value()) {
    Turn(*rotary, *phase.layout, tile, rows, /*stride=*/3 * spec_.hidden_size, dst);
  }
  if (tile.piece) weights_.attention.Pack(dst, rows, qkv);
  return absl::OkStatus();
}

}  // namespace encoderd
