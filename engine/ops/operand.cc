#include "engine/ops/operand.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/operand.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void RoundToBf16(const float* src, int64_t count, int64_t padded, uint16_t* dst) {
  ForEachVector(count, [&](int64_t i, size_t left)
                           HWY_ATTR { StoreRow(LoadRow(src + i, left), dst + i, left); });
  std::memset(dst + count, 0, static_cast<size_t>(padded - count) * sizeof(*dst));
}

void WidenBf16(const uint16_t* src, int64_t count, float* dst) {
  ForEachVector(count, [&](int64_t i, size_t left)
                           HWY_ATTR { StoreRow(LoadRow(src + i, left), dst + i, left); });
}

// The least and the largest value of a row, side by side in four places, which keeps the vector
// units busy. 0 · x is 0 for finite values and NaN for the others, which Min and Max might swallow.
struct Range {
  hn::Vec<Floats> least, largest, poison;

  HWY_INLINE Range()
      : least(hn::Set(Floats(), HUGE_VALF)),
        largest(hn::Set(Floats(), -HUGE_VALF)),
        poison(hn::Zero(Floats())) {}
  HWY_INLINE void Add(hn::Vec<Floats> x) {
    least = hn::Min(least, x);
    largest = hn::Max(largest, x);
    poison = hn::MulAdd(x, hn::Zero(Floats()), poison);
  }
  HWY_INLINE void Add(const Range& other) {
    least = hn::Min(least, other.least);
    largest = hn::Max(largest, other.largest);
    poison = hn::Add(poison, other.poison);
  }
};

template <typename T>
HWY_INLINE QuantizedRow Quantize(const T* src, int64_t count, int64_t padded, uint8_t* dst) {
  const Floats d;
  const hn::Rebind<uint8_t, Floats> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  Range a, b, e, f;
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const size_t whole = hn::Lanes(d);
    a.Add(LoadRow(src + i, whole));
    b.Add(LoadRow(src + i + lanes, whole));
    e.Add(LoadRow(src + i + 2 * lanes, whole));
    f.Add(LoadRow(src + i + 3 * lanes, whole));
  }
  for (; i < count; i += lanes) {
    const auto left = static_cast<size_t>(count - i);
    // What lies behind the row is a copy of its first value.
    a.Add(hn::IfThenElse(hn::FirstN(d, left), LoadRow(src + i, left), hn::Set(d, FirstOf(src))));
  }
  a.Add(b);
  e.Add(f);
  a.Add(e);
  const float least = hn::ReduceMin(d, a.least);
  const float range = hn::ReduceMax(d, a.largest) - least + hn::ReduceSum(d, a.poison);
  constexpr float kLeastRange = 0x1p-100f;  // below which the quotient might not be finite
  const auto factor = hn::Set(d, range > kLeastRange ? 255.0f / range : 0.0f);
  const auto zero = hn::Set(d, least);
  ForEachVector(count, [&](int64_t at, size_t left) HWY_ATTR {
    const auto scaled = hn::Mul(hn::Sub(LoadRow(src + at, left), zero), factor);
    const auto bytes = hn::DemoteTo(d8, hn::NearestInt(scaled));
    if (left >= hn::Lanes(d)) {
      hn::StoreU(bytes, d8, dst + at);
    } else {
      hn::StoreN(bytes, d8, dst + at, left);
    }
  });
  std::memset(dst + count, 0, static_cast<size_t>(padded - count));
  return {.least = least, .step = range / 255.0f};
}

QuantizedRow QuantizeFp32(const float* src, int64_t count, int64_t padded, uint8_t* dst) {
  return Quantize(src, count, padded, dst);
}
QuantizedRow QuantizeBf16(const uint16_t* src, int64_t count, int64_t padded, uint8_t* dst) {
  return Quantize(src, count, padded, dst);
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(RoundToBf16);
HWY_EXPORT(WidenBf16);
HWY_EXPORT(QuantizeFp32);
HWY_EXPORT(QuantizeBf16);

void RoundToBf16(const float* src, int64_t count, int64_t padded, uint16_t* dst) {
  HWY_DYNAMIC_DISPATCH(RoundToBf16)(src, count, padded, dst);
}

void WidenBf16(const uint16_t* src, int64_t count, float* dst) {
  HWY_DYNAMIC_DISPATCH(WidenBf16)(src, count, dst);
}

QuantizedRow QuantizeRow(const float* src, int64_t count, int64_t padded, uint8_t* dst) {
  return HWY_DYNAMIC_DISPATCH(QuantizeFp32)(src, count, padded, dst);
}

QuantizedRow QuantizeRow(const uint16_t* src, int64_t count, int64_t padded, uint8_t* dst) {
  return HWY_DYNAMIC_DISPATCH(QuantizeBf16)(src, count, padded, dst);
}

// At load alone, so nothing is gained by vectors.
float QuantizeWeights(const float* src, int64_t count, int64_t padded, int8_t* dst) {
  float largest = 0, poison = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::abs(src[i]));
    poison += 0 * src[i];
  }
  const float step = largest / 127.0f + poison;
  for (int64_t i = 0; i < count; ++i) {
    dst[i] = step > 0 ? static_cast<int8_t>(std::lrint(src[i] / step)) : int8_t{0};
  }
  std::memset(dst + count, 0, static_cast<size_t>(padded - count));
  return step;
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
