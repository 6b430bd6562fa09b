#include "engine/ops/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/panel.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/activation-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::CappedTag<float, 16>;

// The sums of one row from `column` on as numbers.
template <bool kInt8>
HWY_INLINE hn::Vec<Floats> Sums(const PanelBlock& block, int64_t row, int64_t column) {
  const Floats d;
  const int64_t at = row * kPanelColumns + column;
  if constexpr (kInt8) {
    const hn::RebindToSigned<Floats> d32;
    const auto sums = hn::Sub(hn::LoadU(d32, static_cast<const int32_t*>(block.sums) + at),
                              hn::LoadU(d32, block.column_offsets + column));
    const auto scale =
        hn::Mul(hn::Set(d, block.row_scales[row]), hn::LoadU(d, block.column_scales + column));
    return hn::Mul(hn::ConvertTo(d, sums), scale);
  } else {
    return hn::LoadU(d, static_cast<const float*>(block.sums) + at);
  }
}

template <bool kInt8, class Function>
HWY_INLINE void Finish(const PanelBlock& block, Function) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t row = 0; row < block.rows; ++row) {
    float* const dst = block.dst + row * block.stride;
    for (int64_t column = 0; column < block.columns; column += lanes) {
      const auto sum = Sums<kInt8>(block, row, column);
      auto y = Function::Of(d, hn::Add(sum, hn::LoadU(d, block.bias + column)));
      const auto left = static_cast<size_t>(block.columns - column);
      if (block.combine != Combine::kNone) {
        const auto with = hn::LoadN(d, block.other + row * block.stride + column, left);
        y = block.combine == Combine::kAdd ? hn::Add(y, with) : hn::Mul(y, with);
      }
      hn::StoreN(y, d, dst + column, left);
    }
  }
}

void FinishPanel(const PanelBlock& block) {
  WithActivation(block.activation, [&](auto function) HWY_ATTR {
    if (block.row_scales != nullptr) {
      Finish<true>(block, function);
    } else {
      Finish<false>(block, function);
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(FinishPanel);

void FinishPanel(const PanelBlock& block) { HWY_DYNAMIC_DISPATCH(FinishPanel)(block); }

}  // namespace encoderd::ops
#endif  // HWY_ONCE
