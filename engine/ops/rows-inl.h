// rows-inl.h — walks along a row of fp32 or bf16 values in vectors of fp32, once for each
// instruction set.
//
// Role: private to engine/ops; included by files that Highway compiles for every target.
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

#if defined(ENCODERD_OPS_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENCODERD_OPS_ROWS_INL_H_
#undef ENCODERD_OPS_ROWS_INL_H_
#else
#define ENCODERD_OPS_ROWS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes, which the blocks of all kernels are multiples of.
using Floats = hn::CappedTag<float, 16>;
using Bf16s = hn::Rebind<hwy::bfloat16_t, Floats>;

// Loads and stores a vector, or the first `left` values where it has more.
HWY_INLINE hn::Vec<Floats> LoadRow(const float* src, size_t left) {
  const Floats d;
  return left >= hn::Lanes(d) ? hn::LoadU(d, src) : hn::LoadN(d, src, left);
}
HWY_INLINE hn::Vec<Floats> LoadRow(const uint16_t* src, size_t left) {
  const Floats d;
  const Bf16s d16;
  const auto* const in = reinterpret_cast<const hwy::bfloat16_t*>(src);
  return hn::PromoteTo(d, left >= hn::Lanes(d) ? hn::LoadU(d16, in) : hn::LoadN(d16, in, left));
}
HWY_INLINE void StoreRow(hn::Vec<Floats> x, float* dst, size_t left) {
  const Floats d;
  if (left >= hn::Lanes(d)) {
    hn::StoreU(x, d, dst);
  } else {
    hn::StoreN(x, d, dst, left);
  }
}
HWY_INLINE void StoreRow(hn::Vec<Floats> x, uint16_t* dst, size_t left) {
  const Bf16s d16;
  auto* const out = reinterpret_cast<hwy::bfloat16_t*>(dst);
  if (left >= hn::Lanes(Floats())) {
    hn::StoreU(hn::DemoteTo(d16, x), d16, out);
  } else {
    hn::StoreN(hn::DemoteTo(d16, x), d16, out, left);
  }
}

// The first value as a number.
HWY_INLINE float FirstOf(const float* src) { return *src; }
HWY_INLINE float FirstOf(const uint16_t* src) {
  const uint32_t bits = static_cast<uint32_t>(*src) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// Calls f(index, values left) for each vector of a row.
template <class F>
HWY_INLINE void ForEachVector(int64_t count, F&& f) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(Floats()));
  for (int64_t i = 0; i < count; i += lanes) f(i, static_cast<size_t>(count - i));
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#endif
