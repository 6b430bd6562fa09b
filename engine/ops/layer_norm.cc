#include "engine/ops/layer_norm.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"
#include "engine/tensor/buffer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/layer_norm.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/activation-inl.h"
#include "engine/ops/rows-inl.h"
// clang-format on

#ifndef ENCODERD_OPS_LAYER_NORM_ROWS_
#define ENCODERD_OPS_LAYER_NORM_ROWS_
namespace encoderd::ops {

struct NormRows {
  const float* src;
  int64_t rows, width;
  float* dst;
  const float* weight;
  const float* bias;
  float eps;
  Activation activation;
};

}  // namespace encoderd::ops
#endif

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The sum of f(value) over a row: four sums side by side, which are added at the end.
template <class F>
HWY_INLINE float SumOf(const float* row, int64_t width, F&& f) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d), sum2 = hn::Zero(d), sum3 = hn::Zero(d);
  int64_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {
    sum0 = hn::Add(sum0, f(hn::LoadU(d, row + i)));
    sum1 = hn::Add(sum1, f(hn::LoadU(d, row + i + lanes)));
    sum2 = hn::Add(sum2, f(hn::LoadU(d, row + i + 2 * lanes)));
    sum3 = hn::Add(sum3, f(hn::LoadU(d, row + i + 3 * lanes)));
  }
  for (; i < width; i += lanes) {
    const auto left = static_cast<size_t>(width - i);
    const auto values = f(LoadRow(row + i, left));
    sum0 = hn::Add(sum0, hn::IfThenElseZero(hn::FirstN(d, left), values));
  }
  return hn::ReduceSum(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)));
}

template <class Function>
HWY_INLINE void Normalize(const NormRows& n, Function) {
  const Floats d;
  const auto count = static_cast<float>(n.width);
  for (int64_t row = 0; row < n.rows; ++row) {
    const float* const src = n.src + row * n.width;
    float* const dst = n.dst + row * n.width;
    const auto mean = hn::Set(d, SumOf(src, n.width, [](auto x) HWY_ATTR { return x; }) / count);
    const float squares = SumOf(src, n.width, [&](auto x) HWY_ATTR {
      const auto centred = hn::Sub(x, mean);
      return hn::Mul(centred, centred);
    });
    const auto factor = hn::Set(d, 1.0f / std::sqrt(squares / count + n.eps));
    ForEachVector(n.width, [&](int64_t i, size_t left) HWY_ATTR {
      const auto scaled = hn::Mul(hn::Sub(LoadRow(src + i, left), mean), factor);
      const auto y = hn::MulAdd(scaled, LoadRow(n.weight + i, left), LoadRow(n.bias + i, left));
      StoreRow(Function::Of(d, y), dst + i, left);
    });
  }
}

void NormalizeRows(const NormRows& n) {
  WithActivation(n.activation, [&](auto function) HWY_ATTR { Normalize(n, function); });
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(NormalizeRows);

struct LayerNorm::Impl {
  int64_t width = 0;
  float eps = 0;
  Activation activation = Activation::kNone;
  Buffer weight;
  Buffer bias;
};

absl::StatusOr<LayerNorm> LayerNorm::Create(const LayerNormOptions& options) {
  if (options.weight.empty() || options.weight.size() != options.bias.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.name, ": expected weight and bias of one width; got ",
                     options.weight.size(), " and ", options.bias.size(), " elements"));
  }
  auto impl = std::make_shared<Impl>();
  impl->width = static_cast<int64_t>(options.weight.size());
  impl->eps = static_cast<float>(options.eps);
  impl->activation = options.activation;
  ASSIGN_OR_RETURN(impl->weight,
                   Buffer::AllocateLasting(options.weight.size_bytes(), options.name));
  ASSIGN_OR_RETURN(impl->bias, Buffer::AllocateLasting(options.bias.size_bytes(), options.name));
  std::ranges::copy(options.weight, impl->weight.floats().begin());
  std::ranges::copy(options.bias, impl->bias.floats().begin());
  LayerNorm norm;
  norm.impl_ = std::move(impl);
  return norm;
}

size_t LayerNorm::weights_bytes() const { return impl_->weight.size() + impl_->bias.size(); }

void LayerNorm::Run(const float* src, int64_t rows, float* dst) const {
  ++ThreadOpCounts().executes;
  HWY_DYNAMIC_DISPATCH(NormalizeRows)
  ({.src = src,
    .rows = rows,
    .width = impl_->width,
    .dst = dst,
    .weight = impl_->weight.floats().data(),
    .bias = impl_->bias.floats().data(),
    .eps = impl_->eps,
    .activation = impl_->activation});
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
