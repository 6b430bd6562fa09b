#include "engine/ops/head_product.h"

#include "engine/ops/runtime.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/head_product.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLanes = hn::MaxLanes(Floats());
// Vectors in a row of the widest tile. Beside the sums of a tile, a vector of each of its columns
// and one of a row have their registers: there are 32 where vectors are of 16, else 16.
constexpr int64_t kMostVectors = kLanes == 16 ? 4 : 2;
constexpr int64_t kMostSums = kLanes == 16 ? 24 : 12;

template <int64_t kRows, int64_t kVectors>
HWY_NOINLINE void MultiplyTile(const HeadProduct& p, int64_t row, int64_t column) {
  const Floats d;
  hn::Vec<Floats> sums[kRows][kVectors];
  HWY_UNROLL(24)
  for (int64_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const float* a = p.a + row * p.a_stride;
  const float* b = p.b + column;
  for (const float* const end = a + p.depth; a < end; ++a, b += p.b_stride) {
    hn::Vec<Floats> line[kVectors];
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kVectors; ++v) line[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(24)
    for (int64_t r = 0; r < kRows; ++r) {
      const auto x = hn::Set(d, a[r * p.a_stride]);
      HWY_UNROLL(4)
      for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = hn::MulAdd(x, line[v], sums[r][v]);
    }
  }
  float* const c = p.c + row * p.c_stride + column;
  HWY_UNROLL(24)
  for (int64_t r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kVectors; ++v) {
      float* const at = c + r * p.c_stride + v * kLanes;
      hn::StoreU(p.add ? hn::Add(sums[r][v], hn::LoadU(d, at)) : sums[r][v], d, at);
    }
  }
}

// The last rows, fewer than a whole tile.
template <int64_t kRows, int64_t kVectors>
HWY_INLINE void MultiplyRest(const HeadProduct& p, int64_t row, int64_t column) {
  if constexpr (kRows > 0) {
    if (p.rows - row == kRows) {
      MultiplyTile<kRows, kVectors>(p, row, column);
    } else {
      MultiplyRest<kRows - 1, kVectors>(p, row, column);
    }
  }
}

// From `column` on in tiles that are so many vectors wide; returns the first column left.
template <int64_t kVectors>
HWY_INLINE int64_t MultiplyColumns(const HeadProduct& p, int64_t column) {
  // A single vector has enough to do with half of the sums.
  constexpr int64_t kTileRows = kVectors == 1 ? kMostSums / 2 : kMostSums / kVectors;
  for (; column + kVectors * kLanes <= p.columns; column += kVectors * kLanes) {
    int64_t row = 0;
    for (; row + kTileRows <= p.rows; row += kTileRows) {
      MultiplyTile<kTileRows, kVectors>(p, row, column);
    }
    MultiplyRest<kTileRows - 1, kVectors>(p, row, column);
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
