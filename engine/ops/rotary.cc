#include "engine/ops/rotary.h"

#include <cmath>
#include <utility>

#include "engine/status_macros.h"
#include "engine/tensor/buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/rotary.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Turns the pairs (low[i], high[i]) by angles whose cosines and sines are given.
void TurnPairs(const float* cosines, const float* sines, int64_t pairs, float* low, float* high) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < pairs; i += lanes) {
    // A part of a vector at the end gets the bits that a whole one would.
    const auto count = static_cast<size_t>(pairs - i);
    const auto c = hn::LoadN(d, cosines + i, count), s = hn::LoadN(d, sines + i, count);
    const auto a = hn::LoadN(d, low + i, count), b = hn::LoadN(d, high + i, count);
    hn::StoreN(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, low + i, count);
    hn::StoreN(hn::MulAdd(a, s, hn::Mul(b, c)), d, high + i, count);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(TurnPairs);

struct Rotary::Impl {
  RotaryOptions options;
  Buffer table;  // [positions, width]: cosines, sines

  int64_t pairs() const { return options.width / 2; }
};

absl::StatusOr<Rotary> Rotary::Create(const RotaryOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  impl->options.frequencies = {};
  const int64_t pairs = impl->pairs();
  ASSIGN_OR_RETURN(impl->table,
                   Buffer::AllocateLasting(
                       static_cast<size_t>(options.positions * options.width) * sizeof(float),
                       "rotary positions"));
  float* const table = impl->table.floats().data();
  for (int64_t i = 0; i < pairs; ++i) {
    // Each step rounded as PyTorch rounds it.
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(options.width);
    const auto power = static_cast<float>(std::pow(options.base, static_cast<double>(exponent)));
    const float frequency = options.frequencies.empty()
                                ? 1.0f / power / static_cast<float>(options.divisor)
                                : options.frequencies[static_cast<size_t>(i)];
    for (int64_t position = 0; position < options.positions; ++position) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      table[position * options.width + i] = static_cast<float>(std::cos(angle));
      table[position * options.width + pairs + i] = static_cast<float>(std::sin(angle));
    }
  }
  Rotary rotary;
  rotary.impl_ = std::move(impl);
  return rotary;
}

size_t Rotary::bytes() const { return impl_->table.size(); }

void Rotary::Run(int64_t position, float* qkv) const {
  const RotaryOptions& options = impl_->options;
  const QkvStrides& strides = options.strides;
  const int64_t pairs = impl_->pairs();
  const float* const cosines = impl_->table.floats().data() + position * options.width;
  for (int64_t head = 0; head < options.heads; ++head) {
    for (const int64_t offset : {strides.q_offset, strides.k_offset}) {
      float* const values = qkv + head * strides.head_stride + offset;
      HWY_DYNAMIC_DISPATCH(TurnPairs)(cosines, cosines + pairs, pairs, values, values + pairs);
    }
  }
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
