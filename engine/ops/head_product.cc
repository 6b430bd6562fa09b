#include "engine/ops/head_product.h"

#include "engine/ops/runtime.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/head_product.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/sum_tile-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {

template <int64_t kRows, int64_t kVectors>
HWY_NOINLINE void MultiplyRows(const HeadProduct& p, int64_t row, int64_t column) {
  SumTile<kRows, kVectors> tile;
  tile.Zero();
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b + column;
  for (const float* const end = a + p.depth; a < end; ++a, b += p.b_stride) {
    tile.AddProducts(a, p.a_stride, b);
  }
  float* const c = p.c + row * p.c_stride + column;
  if (p.add) tile.Add(c, p.c_stride);
  tile.Store(c, p.c_stride);
}

// From `column` on in tiles that are so many vectors wide; returns the first column left.
template <int64_t kVectors>
HWY_INLINE int64_t MultiplyColumns(const HeadProduct& p, int64_t column) {
  // A single vector has enough to do with half of the sums.
  constexpr int64_t kTileRows = kVectors == 1 ? kMostSums / 2 : kMostSums / kVectors;
  for (; column + kVectors * kLanes <= p.columns; column += kVectors * kLanes) {
    ForEachTile<kTileRows>(p.rows, [&](int64_t row, auto rows)
                                       HWY_ATTR { MultiplyRows<rows, kVectors>(p, row, column); });
  }
  return column;
}

void MultiplyHead(const HeadProduct& p) {
  int64_t column = 0;
  if constexpr (kMostVectors == 4) column = MultiplyColumns<4>(p, column);
  column = MultiplyColumns<2>(p, column);
  MultiplyColumns<1>(p, column);
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(MultiplyHead);

void MultiplyHead(const HeadProduct& product) {
  HWY_DYNAMIC_DISPATCH(MultiplyHead)(product);
  ++ThreadOpCounts().ukernels;
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
