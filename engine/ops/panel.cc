#include "engine/ops/panel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/panel.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/activation-inl.h"
#include "engine/ops/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sums of one row from `column` on, with the bias.
template <bool kInt8>
HWY_INLINE hn::Vec<Floats> Biased(const PanelBlock& block, int64_t row, int64_t column) {
  const Floats d;
  const int64_t at = row * kPanelColumns + column;
  const auto bias = hn::LoadU(d, block.bias + column);
  if constexpr (kInt8) {
    const hn::RebindToSigned<Floats> d32;
    const QuantizedRow& quantized = block.quantized[row];
    const auto sums =
        hn::ConvertTo(d, hn::LoadU(d32, static_cast<const int32_t*>(block.sums) + at));
    const auto steps =
        hn::Mul(hn::Set(d, quantized.step), hn::LoadU(d, block.column_steps + column));
    const auto from_least =
        hn::MulAdd(hn::Set(d, quantized.least), hn::LoadU(d, block.column_sums + column), bias);
    return hn::MulAdd(sums, steps, from_least);
  } else {
    return hn::Add(hn::LoadU(d, static_cast<const float*>(block.sums) + at), bias);
  }
}

template <bool kInt8, typename T, class Function>
HWY_INLINE void Finish(const PanelBlock& block, Function) {
  const Floats d;
  for (int64_t row = 0; row < block.rows; ++row) {
    T* const dst = static_cast<T*>(block.dst) + row * block.stride;
    ForEachVector(block.columns, [&](int64_t column, size_t left) HWY_ATTR {
      auto y = Function::Of(d, Biased<kInt8>(block, row, column));
      if (block.combine != Combine::kNone) {
        const T* const other = static_cast<const T*>(block.other) + row * block.stride;
        const auto with = LoadRow(other + column, left);
        y = block.combine == Combine::kAdd ? hn::Add(y, with) : hn::Mul(y, with);
      }
      StoreRow(y, dst + column, left);
    });
  }
}

void FinishPanel(const PanelBlock& block) {
  WithActivation(block.activation, [&](auto function) HWY_ATTR {
    const bool int8 = block.quantized != nullptr;
    if (block.type == RowType::kBf16) {
      const typename ForBf16<decltype(function)>::Type coarse;
      int8 ? Finish<true, uint16_t>(block, coarse) : Finish<false, uint16_t>(block, coarse);
    } else {
      int8 ? Finish<true, float>(block, function) : Finish<false, float>(block, function);
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
