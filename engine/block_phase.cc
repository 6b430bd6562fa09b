#include "engine/block_phase.h"

#include <algorithm>

#include "engine/ops/row_buckets.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

int64_t FloatBytes(int64_t floats) { return floats * static_cast<int64_t>(sizeof(float)); }

}  // namespace

int64_t PhaseShape::GenerationRows() const {
  return BatchLayout::MaxStoredRows(limits) + helpers_of_phase() * BatchLayout::kMaxRows +
         ops::RowBuckets::kPaddingRows;
}

int64_t PhaseShape::GenerationBytes() const {
  return FloatBytes(GenerationRows() * (width + 3 * hidden));
}

// Zeroed, since what lies behind the rows in use is computed with, though never read: it must be
// neither slow nor trap.
absl::StatusOr<std::unique_ptr<Generation>> Generation::Create(const PhaseShape& shape) {
  auto generation = std::make_unique<Generation>();
  generation->first_rows_ = BatchLayout::MaxStoredRows(shape.limits);
  generation->width_ = shape.width;
  generation->qkv_width_ = 3 * shape.hidden;
  const int64_t rows = shape.GenerationRows();
  ASSIGN_OR_RETURN(
      generation->hidden_,
      Buffer::AllocateLasting(static_cast<size_t>(FloatBytes(rows * shape.width)), "hidden rows"));
  ASSIGN_OR_RETURN(generation->qkv_,
                   Buffer::AllocateLasting(static_cast<size_t>(FloatBytes(rows * 3 * shape.hidden)),
                                           "q, k and v"));
  generation->TakePages(shape);
  return generation;
}

// The pages that batches of several sequences use are taken now: memory is what it will be from the
// start, and no call waits for a page. Those of one long sequence alone are taken when it comes.
void Generation::TakePages(const PhaseShape& shape) {
  const int64_t batch_rows =
      BatchLayout::MaxStoredRows({.max_batch_tokens = shape.limits.max_batch_tokens,
                                  .max_sequence_tokens = shape.limits.max_batch_tokens});
  const auto take_rows = [&](int64_t first, int64_t rows) {
    std::fill_n(At(first).hidden, rows * width_, 0.0f);
    std::fill_n(At(first).qkv, rows * qkv_width_, 0.0f);
  };
  take_rows(0, batch_rows);
  take_rows(first_rows_, shape.GenerationRows() - first_rows_);
}

BlockPhase::BlockPhase(const PhaseShape& shape)
    : tiles(BatchLayout::MaxTiles(shape.limits), shape.helpers_of_phase()),
      bad_scores(new std::atomic<bool>[static_cast<size_t>(
          std::max<int64_t>(1, shape.limits.max_batch_tokens))]) {
  const auto max_tiles = static_cast<size_t>(BatchLayout::MaxTiles(shape.limits));
  for (auto* rows : {&input, &first, &second}) rows->reserve(max_tiles);
}

void BlockPhase::Release() {
  layout = {};
  in = {};
  out = {};
  // The phase was taken by its owner, who has let go of it.
  PoolRef<BlockPhase> last(this);
}

}  // namespace encoderd
