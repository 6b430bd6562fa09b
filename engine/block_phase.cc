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
// neither slow nor trap. Pages that no batch has reached stay untouched, so memory follows the
// longest sequence seen.
absl::StatusOr<std::unique_ptr<Generation>> Generation::Create(const PhaseShape& shape) {
  auto generation = std::make_unique<Generation>();
  generation->first_rows_ = BatchLayout::MaxStoredRows(shape.limits);
  generation->width_ = shape.width;
  generation->qkv_width_ = 3 * shape.hidden;
  const int64_t rows = shape.GenerationRows();
  ASSIGN_OR_RETURN(
      generation->hidden_,
      Buffer::AllocateZeroed(static_cast<size_t>(FloatBytes(rows * shape.width)), "hidden rows"));
  ASSIGN_OR_RETURN(generation->qkv_,
                   Buffer::AllocateZeroed(static_cast<size_t>(FloatBytes(rows * 3 * shape.hidden)),
                                          "q, k and v"));
  return generation;
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
