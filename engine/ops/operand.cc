#include "engine/ops/operand.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/operand.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;

void RoundToBf16(const float* src, int64_t count, int64_t padded, uint16_t* dst) {
  const Floats d;
  const hn::Rebind<hwy::bfloat16_t, Floats> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto* const out = reinterpret_cast<hwy::bfloat16_t*>(dst);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, src + i)), d16, out + i);
  }
  if (i < count) {
    const auto left = static_cast<size_t>(count - i);
    hn::StoreN(hn::DemoteTo(d16, hn::LoadN(d, src + i, left)), d16, out + i, left);
  }
  std::memset(dst + count, 0, static_cast<size_t>(padded - count) * sizeof(*dst));
}

float QuantizeRow(const float* src, int64_t count, int64_t padded, uint8_t bias, uint8_t* dst) {
  const Floats d;
  const hn::RebindToSigned<Floats> d32;
  const hn::Rebind<int16_t, Floats> d16;
  const hn::Rebind<int8_t, Floats> d8;
  const hn::RebindToUnsigned<decltype(d8)> du8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // 0 · x is 0 for finite values and NaN for the others, which the maximum might swallow.
  auto largest = hn::Zero(d), poison = hn::Zero(d);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto x = hn::LoadN(d, src + i, static_cast<size_t>(count - i));
    largest = hn::Max(largest, hn::Abs(x));
    poison = hn::MulAdd(x, hn::Zero(d), poison);
  }
  const float max = hn::ReduceMax(d, largest) + hn::ReduceSum(d, poison);
  constexpr float kLeast = 0x1p-100f;  // below which the quotient might not be finite
  const auto factor = hn::Set(d, max > kLeast ? 127.0f / max : 0.0f);
  const auto shift = hn::Set(du8, bias);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto left = static_cast<size_t>(count - i);
    const auto integers = hn::NearestInt(hn::Mul(hn::LoadN(d, src + i, left), factor));
    const auto bytes = hn::DemoteTo(d8, hn::DemoteTo(d16, hn::BitCast(d32, integers)));
    hn::StoreN(hn::Add(hn::BitCast(du8, bytes), shift), du8, dst + i, left);
  }
  std::memset(dst + count, bias, static_cast<size_t>(padded - count));
  return max / 127.0f;
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(RoundToBf16);
HWY_EXPORT(QuantizeRow);

void RoundToBf16(const float* src, int64_t count, int64_t padded, uint16_t* dst) {
  HWY_DYNAMIC_DISPATCH(RoundToBf16)(src, count, padded, dst);
}

float QuantizeRow(const float* src, int64_t count, int64_t padded, uint8_t bias, uint8_t* dst) {
  return HWY_DYNAMIC_DISPATCH(QuantizeRow)(src, count, padded, bias, dst);
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
