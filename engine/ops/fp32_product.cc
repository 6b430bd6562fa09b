#include "engine/ops/fp32_product.h"

#include <algorithm>

#include "engine/ops/fetch.h"
#include "engine/ops/panel.h"
#include "engine/tensor/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/fp32_product.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/sum_tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {

// With these the tiles are as wide as they can be.
constexpr int64_t kTileRows = kMostSums / kMostVectors;

// Depth between two looks at what is to be fetched.
constexpr int64_t kDepthStep = 4;

// What of the next panel is still to be fetched, and how much of it at a time.
class Fetcher {
 public:
  Fetcher(std::span<const float> values, int64_t steps)
      : at_(values.data()),
        end_(at_ + values.size()),
        lines_(CeilDiv(CeilDiv(static_cast<int64_t>(values.size()), kLineFloats),
                       std::max<int64_t>(steps, 1))) {}

  HWY_INLINE void Fetch() {
    if (at_ >= end_) return;
    for (int64_t line = 0; line < lines_; ++line, at_ += kLineFloats) FetchLine(at_);
  }

 private:
  const float* at_;
  const float* end_;
  int64_t lines_;
};

template <int64_t kRows>
HWY_NOINLINE void SumRows(const Fp32Block& block, int64_t row, int64_t column, Fetcher& next) {
  float* const sums = block.sums + row * kPanelColumns + column;
  SumTile<kRows, kMostVectors> tile;
  if (block.accumulate) {
    tile.Load(sums, kPanelColumns);
  } else {
    tile.Zero();
  }
  const float* rows = block.rows + row * block.stride;
  const float* panel = block.panel + column;
  const float* const end = rows + block.depth;
  Fetcher fetcher = next;
  for (; rows + kDepthStep <= end; rows += kDepthStep, panel += kDepthStep * kPanelColumns) {
    fetcher.Fetch();
    HWY_UNROLL(4)
    for (int64_t i = 0; i < kDepthStep; ++i) {
      tile.AddProducts(rows + i, block.stride, panel + i * kPanelColumns);
    }
  }
  for (; rows < end; ++rows, panel += kPanelColumns) tile.AddProducts(rows, block.stride, panel);
  next = fetcher;
  tile.Store(sums, kPanelColumns);
}

void SumProducts(const Fp32Block& block) {
  Fetcher next(block.next, CeilDiv(block.count, kTileRows) * (block.depth / kDepthStep));
  for (int64_t column = 0; column < kPanelColumns; column += kMostVectors * kLanes) {
    ForEachTile<kTileRows>(block.count, [&](int64_t row, auto rows)
                                            HWY_ATTR { SumRows<rows>(block, row, column, next); });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(SumProducts);

void SumProducts(const Fp32Block& block) { HWY_DYNAMIC_DISPATCH(SumProducts)(block); }

}  // namespace encoderd::ops
#endif  // HWY_ONCE
