#include "engine/ops/fp32_product.h"

#include <algorithm>

#include "engine/ops/panel.h"
#include "engine/ops/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/fp32_product.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// A tile of 6 rows by 4 vectors leaves a vector of the panel and of the row their registers where
// there are 32, as with vectors of 16; where there are 16, it is 6 by 2.
constexpr int64_t kTileRows = 6;
constexpr int64_t kLanes = hn::MaxLanes(Floats());
constexpr int64_t kTileVectors = kLanes == 16 ? 4 : 2;

// Depth between two looks at what is to be fetched.
constexpr int64_t kDepthStep = 4;
constexpr int64_t kLineFloats = 16;

// What of the next panel is still to be fetched, and how much of it at a time.
class Fetcher {
 public:
  Fetcher(std::span<const float> values, int64_t steps)
      : at_(values.data()),
        end_(at_ + values.size()),
        lines_(CeilDiv(CeilDiv(static_cast<int64_t>(values.size()), kLineFloats),
                       std::max<int64_t>(steps, 1))) {}

  HWY_INLINE void Fetch() {
    constexpr int kForReading = 0, kIntoSecondLevel = 2;
    if (at_ >= end_) return;
    for (int64_t line = 0; line < lines_; ++line) {
      __builtin_prefetch(at_, kForReading, kIntoSecondLevel);
      at_ += kLineFloats;
    }
  }

 private:
  const float* at_;
  const float* end_;
  int64_t lines_;
};

template <int64_t kRows>
struct Tile {
  hn::Vec<Floats> sums[kRows][kTileVectors];

  // Adds what one column of the rows and one row of the panel give.
  HWY_INLINE void Step(const float* column, int64_t stride, const float* panel) {
    const Floats d;
    hn::Vec<Floats> weights[kTileVectors];
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kTileVectors; ++v) weights[v] = hn::Load(d, panel + v * kLanes);
    HWY_UNROLL(6)
    for (int64_t row = 0; row < kRows; ++row) {
      const auto x = hn::Set(d, column[row * stride]);
      HWY_UNROLL(4)
      for (int64_t v = 0; v < kTileVectors; ++v) {
        sums[row][v] = hn::MulAdd(x, weights[v], sums[row][v]);
      }
    }
  }
};

template <int64_t kRows>
HWY_NOINLINE void SumTile(const Fp32Block& block, int64_t row, int64_t column, Fetcher& next) {
  const Floats d;
  float* const sums = block.sums + row * kPanelColumns + column;
  Tile<kRows> tile;
  HWY_UNROLL(6)
  for (int64_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kTileVectors; ++v) {
      tile.sums[r][v] =
          block.accumulate ? hn::Load(d, sums + r * kPanelColumns + v * kLanes) : hn::Zero(d);
    }
  }
  const float* rows = block.rows + row * block.stride;
  const float* panel = block.panel + column;
  const float* const end = rows + block.depth;
  Fetcher fetcher = next;
  for (; rows + kDepthStep <= end; rows += kDepthStep, panel += kDepthStep * kPanelColumns) {
    fetcher.Fetch();
    HWY_UNROLL(4)
    for (int64_t i = 0; i < kDepthStep; ++i) {
      tile.Step(rows + i, block.stride, panel + i * kPanelColumns);
    }
  }
  for (; rows < end; ++rows, panel += kPanelColumns) tile.Step(rows, block.stride, panel);
  next = fetcher;
  HWY_UNROLL(6)
  for (int64_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kTileVectors; ++v) {
      hn::Store(tile.sums[r][v], d, sums + r * kPanelColumns + v * kLanes);
    }
  }
}

// The last rows, fewer than a whole tile.
template <int64_t kRows>
HWY_INLINE void SumRest(const Fp32Block& block, int64_t row, int64_t column, Fetcher& next) {
  if constexpr (kRows > 0) {
    if (block.count - row == kRows) {
      SumTile<kRows>(block, row, column, next);
    } else {
      SumRest<kRows - 1>(block, row, column, next);
    }
  }
}

void SumProducts(const Fp32Block& block) {
  Fetcher next(block.next, CeilDiv(block.count, kTileRows) * (block.depth / kDepthStep));
  for (int64_t column = 0; column < kPanelColumns; column += kTileVectors * kLanes) {
    int64_t row = 0;
    for (; row + kTileRows <= block.count; row += kTileRows) {
      SumTile<kTileRows>(block, row, column, next);
    }
    SumRest<kTileRows - 1>(block, row, column, next);
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
