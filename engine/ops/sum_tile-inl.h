// sum_tile-inl.h — the sums of some rows and some vectors of columns, in registers while a product goes
// along its depth; once for each instruction set.
//
// Role: private to engine/ops; included by files that Highway compiles for every target.
// Bits: a sum is one chain of fused multiply-adds along the depth, whatever lies beside it.
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"

#if defined(ENCODERD_OPS_SUM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENCODERD_OPS_SUM_TILE_INL_H_
#undef ENCODERD_OPS_SUM_TILE_INL_H_
#else
#define ENCODERD_OPS_SUM_TILE_INL_H_
#endif

#include "engine/ops/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kLanes = hn::MaxLanes(Floats());
// Vectors in a row of the widest tile, and in the largest. Beside the sums, a vector of each column and
// one of a row have their registers: there are 32 where vectors are of 16, else 16.
constexpr int64_t kMostVectors = kLanes == 16 ? 4 : 2;
constexpr int64_t kMostSums = 6 * kMostVectors;

template <int64_t kRows, int64_t kVectors>
class SumTile {
 public:
  HWY_INLINE void Zero() {
    ForEach([](Vec& sum, int64_t, int64_t) HWY_ATTR { sum = hn::Zero(Floats()); });
  }
  // Rows of c lie `stride` apart, likewise below.
  HWY_INLINE void Load(const float* c, int64_t stride) {
    ForEach([=](Vec& sum, int64_t row, int64_t v)
                HWY_ATTR { sum = hn::LoadU(Floats(), c + row * stride + v * kLanes); });
  }
  HWY_INLINE void Add(const float* c, int64_t stride) {
    ForEach([=](Vec& sum, int64_t row, int64_t v) HWY_ATTR {
      sum = hn::Add(sum, hn::LoadU(Floats(), c + row * stride + v * kLanes));
    });
  }
  HWY_INLINE void Store(float* c, int64_t stride) {
    ForEach([=](Vec& sum, int64_t row, int64_t v)
                HWY_ATTR { hn::StoreU(sum, Floats(), c + row * stride + v * kLanes); });
  }

  // Adds what a column of a, whose rows lie `stride` apart, gives with a row of b.
  HWY_INLINE void AddProducts(const float* a, int64_t stride, const float* b) {
    const Floats d;
    Vec columns[kVectors];
    HWY_UNROLL(4)
    for (int64_t v = 0; v < kVectors; ++v) columns[v] = hn::LoadU(d, b + v * kLanes);
    HWY_UNROLL(12)
    for (int64_t row = 0; row < kRows; ++row) {
      const auto x = hn::Set(d, a[row * stride]);
      HWY_UNROLL(4)
      for (int64_t v = 0; v < kVectors; ++v) {
        sums_[row][v] = hn::MulAdd(x, columns[v], sums_[row][v]);
      }
    }
  }

 private:
  using Vec = hn::Vec<Floats>;

  template <class F>
  HWY_INLINE void ForEach(F&& f) {
    HWY_UNROLL(12)
    for (int64_t row = 0; row < kRows; ++row) {
      HWY_UNROLL(4)
      for (int64_t v = 0; v < kVectors; ++v) f(sums_[row][v], row, v);
    }
  }

  Vec sums_[kRows][kVectors];
};

// Calls f(std::integral_constant<int64_t, rows>) where there are any: `rows` are at most kMost.
template <int64_t kMost, class F>
HWY_INLINE void WithRowsKnown(int64_t rows, F&& f) {
  if constexpr (kMost > 0) {
    if (rows == kMost) {
      f(std::integral_constant<int64_t, kMost>());
    } else {
      WithRowsKnown<kMost - 1>(rows, f);
    }
  }
}

// Calls f(first row, std::integral_constant of their number) for `rows` rows in tiles of kTileRows, and
// for the rest.
template <int64_t kTileRows, class F>
HWY_INLINE void ForEachTile(int64_t rows, F&& f) {
  int64_t row = 0;
  for (; row + kTileRows <= rows; row += kTileRows) {
    f(row, std::integral_constant<int64_t, kTileRows>());
  }
  WithRowsKnown<kTileRows - 1>(rows - row, [&](auto rest) HWY_ATTR { f(row, rest); });
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#endif
