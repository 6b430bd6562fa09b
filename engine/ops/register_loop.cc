#include "engine/ops/register_loop.h"

#include <cstdint>
#include <string>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/register_loop.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kSteps = 1000;
// Sums that do not wait for each other: more than two units with a latency of four cycles need.
constexpr int kSums = 12;

// Runs `step` kSteps times on kSums sums. They start from different values, or the compiler would see
// that they stay equal; what rounds cannot be gathered into fewer steps, and it does not look into the
// instructions of the others.
template <typename D, typename F>
HWY_INLINE void Repeat(D d, F&& step) {
  const auto start = [d](int i) HWY_ATTR { return hn::Set(d, static_cast<hn::TFromD<D>>(i)); };
  auto s0 = start(0), s1 = start(1), s2 = start(2), s3 = start(3), s4 = start(4), s5 = start(5);
  auto s6 = start(6), s7 = start(7), s8 = start(8), s9 = start(9), s10 = start(10), s11 = start(11);
  for (int i = 0; i < kSteps; ++i) {
    s0 = step(s0);
    s1 = step(s1);
    s2 = step(s2);
    s3 = step(s3);
    s4 = step(s4);
    s5 = step(s5);
    s6 = step(s6);
    s7 = step(s7);
    s8 = step(s8);
    s9 = step(s9);
    s10 = step(s10);
    s11 = step(s11);
  }
  const auto low = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(s4, s5));
  const auto high = hn::Add(hn::Add(hn::Add(s6, s7), hn::Add(s8, s9)), hn::Add(s10, s11));
  hwy::PreventElision(hn::GetLane(hn::Add(low, high)));
}

// Each function multiplies and adds, and returns how many operations that were; 0 where this target
// has no instruction for it.
double Fp32Steps(float one) {
  const hn::ScalableTag<float> d;
  const auto a = hn::Set(d, one), b = hn::Set(d, one);
  Repeat(d, [&](auto sum) HWY_ATTR { return hn::MulAdd(a, b, sum); });
  return 2.0 * kSteps * kSums * static_cast<double>(hn::Lanes(d));
}

double Bf16Steps([[maybe_unused]] float one) {
#if HWY_TARGET == HWY_AVX3_ZEN4 || HWY_TARGET == HWY_AVX3_SPR
  const hn::ScalableTag<float> d;
  const hn::Repartition<hwy::bfloat16_t, decltype(d)> d16;
  const auto a = hn::BitCast(d16, hn::Set(d, one)), b = hn::BitCast(d16, hn::Set(d, one));
  auto unused = hn::Zero(d);
  Repeat(d, [&](auto sum) HWY_ATTR { return hn::ReorderWidenMulAccumulate(d, a, b, sum, unused); });
  return 4.0 * kSteps * kSums * static_cast<double>(hn::Lanes(d));
#else
  return 0;
#endif
}

double Int8Steps([[maybe_unused]] float one) {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3_ZEN4 || HWY_TARGET == HWY_AVX3_SPR
  const hn::ScalableTag<int32_t> d;
  const hn::Repartition<uint8_t, decltype(d)> du8;
  const hn::Repartition<int8_t, decltype(d)> di8;
  const auto a = hn::Set(du8, static_cast<uint8_t>(one));
  const auto b = hn::Set(di8, static_cast<int8_t>(one));
  Repeat(d, [&](auto sum) HWY_ATTR { return hn::SumOfMulQuadAccumulate(d, a, b, sum); });
  return 8.0 * kSteps * kSums * static_cast<double>(hn::Lanes(d));
#else
  return 0;
#endif
}

const char* Target() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(Fp32Steps);
HWY_EXPORT(Bf16Steps);
HWY_EXPORT(Int8Steps);
HWY_EXPORT(Target);

namespace {

double Steps(Precision precision) {
  // A value that the compiler does not see.
  static volatile float one = 1;
  switch (precision) {
    case Precision::kFp32:
      return HWY_DYNAMIC_DISPATCH(Fp32Steps)(one);
    case Precision::kBf16:
      return HWY_DYNAMIC_DISPATCH(Bf16Steps)(one);
    case Precision::kInt8:
      return HWY_DYNAMIC_DISPATCH(Int8Steps)(one);
  }
  return 0;
}

}  // namespace

absl::StatusOr<RegisterLoop> VectorLoop(Precision precision) {
  const std::string target = HWY_DYNAMIC_DISPATCH(Target)();
  const double operations = Steps(precision);
  if (operations == 0) {
    return absl::UnimplementedError(target + " has no instruction that multiplies and adds " +
                                    std::string(PrecisionName(precision)));
  }
  return RegisterLoop{.run = [precision] { Steps(precision); },
                      .operations = operations,
                      .instruction = target + " vectors in registers"};
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
