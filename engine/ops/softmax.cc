#include "engine/ops/softmax.h"

#include <algorithm>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/softmax.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "hwy/contrib/math/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kKeyBlockBits = 6;
static_assert(1 << kKeyBlockBits == kKeyBlock);

// At most 16 lanes, so that vectors never cross a kKeyStep.
using Floats = hn::CappedTag<float, kKeyStep>;

// Calls f(pointer, key) for each vector of the row, padding included.
template <typename F>
HWY_INLINE void ForEachVector(const ScoreRow& row, F&& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  const int64_t padded = (row.keys + kKeyStep - 1) / kKeyStep * kKeyStep;
  for (int64_t block = 0; block * kKeyBlock < padded; ++block) {
    float* const scores = row.data + block * row.block_stride;
    const int64_t width = std::min(kKeyBlock, padded - block * kKeyBlock);
    for (int64_t i = 0; i < width; i += lanes) f(scores + i, block * kKeyBlock + i);
  }
}

float ExpRow(const ScoreRow& row, const float* bias, float scale) {
  const Floats d;
  const auto scale_v = hn::Set(d, scale);
  const auto zero = hn::Zero(d);
  constexpr float kHidden = -std::numeric_limits<float>::infinity();

  // Scale, hide, find the largest. 0 · s is 0 for finite scores and NaN for the others, which max
  // and exp would swallow.
  auto largest = hn::Set(d, kHidden);
  auto poison = zero;
  ForEachVector(row, [&](float* scores, int64_t key) HWY_ATTR {
    const auto s = hn::LoadU(d, scores);
    poison = hn::MulAdd(s, zero, poison);
    const auto biased = hn::MulAdd(s, scale_v, hn::LoadU(d, bias + key));
    largest = hn::Max(largest, biased);
    hn::StoreU(biased, d, scores);
  });
  const float max = hn::ReduceMax(d, largest);
  if (max == kHidden) {
    ForEachVector(row, [&](float* scores, int64_t) HWY_ATTR { hn::StoreU(zero, d, scores); });
    return hn::ReduceSum(d, poison);
  }

  const auto max_v = hn::Set(d, max);
  auto sum = poison;
  ForEachVector(row, [&](float* scores, int64_t) HWY_ATTR {
    const auto e = hn::Exp(d, hn::Sub(hn::LoadU(d, scores), max_v));
    sum = hn::Add(sum, e);
    hn::StoreU(e, d, scores);
  });
  return hn::ReduceSum(d, sum);
}

void ScaleRow(const ScoreRow& row, float factor, float* dst) {
  const Floats d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor_v = hn::Set(d, factor);
  ForEachVector(row, [&](float* scores, int64_t key) HWY_ATTR {
    const auto scaled = hn::Mul(hn::LoadU(d, scores), factor_v);
    if (key + lanes <= row.keys) {
      hn::StoreU(scaled, d, dst + key);
    } else if (key < row.keys) {
      hn::StoreN(scaled, d, dst + key, static_cast<size_t>(row.keys - key));
    }
  });
}

void AddByRow(const RowTerms& terms, float* scores) {
  const Floats d;
  const hn::RebindToSigned<Floats> d32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto first = hn::Set(d32, terms.first_row);
  for (int64_t key = 0; key < terms.keys; key += lanes) {
    const auto rows = hn::LoadU(d32, terms.rows + key);
    const auto places = hn::Add(hn::ShiftLeft<kKeyBlockBits>(hn::Sub(rows, first)),
                                hn::Iota(d32, static_cast<int32_t>(key)));
    const auto added =
        hn::Add(hn::GatherIndex(d, terms.by_query, rows), hn::GatherIndex(d, terms.by_key, places));
    hn::StoreU(hn::Add(hn::LoadU(d, scores + key), added), d, scores + key);
  }
}

void TransposeKeys(const float* src, int64_t src_stride, int64_t rows, int64_t columns,
                   float* dst) {
  // Four rows of four columns at a time: two interleaving steps turn them round.
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> d64;
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* const in = src + r * src_stride;
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      const auto a = hn::LoadU(d, in + c), b = hn::LoadU(d, in + src_stride + c),
                 e = hn::LoadU(d, in + 2 * src_stride + c),
                 f = hn::LoadU(d, in + 3 * src_stride + c);
      const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
      const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
      const auto ef_low = hn::BitCast(d64, hn::InterleaveLower(d, e, f));
      const auto ef_high = hn::BitCast(d64, hn::InterleaveUpper(d, e, f));
      float* const out = dst + c * kKeyBlock + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ef_low)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ef_low)), d, out + kKeyBlock);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ef_high)), d,
                 out + 2 * kKeyBlock);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ef_high)), d,
                 out + 3 * kKeyBlock);
    }
    for (; c < columns; ++c) {
      for (int64_t i = 0; i < 4; ++i) dst[c * kKeyBlock + r + i] = in[i * src_stride + c];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) dst[c * kKeyBlock + r] = src[r * src_stride + c];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(ExpRow);
HWY_EXPORT(ScaleRow);
HWY_EXPORT(AddByRow);
HWY_EXPORT(TransposeKeys);

float ExpRow(const ScoreRow& row, const float* bias, float scale) {
  return HWY_DYNAMIC_DISPATCH(ExpRow)(row, bias, scale);
}

void ScaleRow(const ScoreRow& row, float factor, float* dst) {
  HWY_DYNAMIC_DISPATCH(ScaleRow)(row, factor, dst);
}

void AddByRow(const RowTerms& terms, float* scores) {
  HWY_DYNAMIC_DISPATCH(AddByRow)(terms, scores);
}

void TransposeKeys(const float* src, int64_t src_stride, int64_t rows, int64_t columns,
                   float* dst) {
  HWY_DYNAMIC_DISPATCH(TransposeKeys)(src, src_stride, rows, columns, dst);
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
