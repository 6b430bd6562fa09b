// activation-inl.h — the activations on vectors, once for each instruction set.
//
// Role: private to engine/ops; included by files that Highway compiles for every target.
// NaN:  goes through each of them, so that a bad number is seen in the answer.
#include "engine/ops/activation.h"
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"

#if defined(ENCODERD_OPS_ACTIVATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ENCODERD_OPS_ACTIVATION_INL_H_
#undef ENCODERD_OPS_ACTIVATION_INL_H_
#else
#define ENCODERD_OPS_ACTIVATION_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// erf(x) as x · P(x²) / Q(x²), fitted by us to a relative error of 2·10⁻⁸ where it is not yet 1 in
// fp32; with the roundings it is within 3·10⁻⁷.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Erf(D d, V x) {
  const auto one = hn::Set(d, 1.0f);
  const V t = hn::Mul(x, x);
  V p = hn::Set(d, 2.0500785922195064e-06f);
  p = hn::MulAdd(p, t, hn::Set(d, 0.0002848828153219074f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.0037656372878700495f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.05274878814816475f));
  p = hn::MulAdd(p, t, hn::Set(d, 0.19040697813034058f));
  p = hn::MulAdd(p, t, hn::Set(d, 1.1283791065216064f));
  V q = hn::Set(d, 3.809163172263652e-05f);
  q = hn::MulAdd(q, t, hn::Set(d, 0.0011625397019088268f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.014969258569180965f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.11410932242870331f));
  q = hn::MulAdd(q, t, hn::Set(d, 0.5020765066146851f));
  q = hn::MulAdd(q, t, one);
  const V y = hn::Div(hn::Mul(x, p), q);
  const V bounded = hn::Min(hn::Max(y, hn::Neg(one)), one);
  return hn::IfThenElse(hn::Ge(hn::Abs(x), hn::Set(d, 3.92f)), hn::CopySign(one, x), bounded);
}

// 1 / (1 + exp(-x)); beyond 88, where exp would leave the numbers, the quotient is as good as 0.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Sigmoid(D d, V x) {
  const auto one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)))));
}

struct NoActivation {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D, V x) {
    return x;
  }
};

struct Relu {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x) {
    return hn::IfThenZeroElse(hn::Lt(x, hn::Zero(d)), x);
  }
};

struct Gelu {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x) {
    const V half = hn::Mul(x, hn::Set(d, 0.5f));
    return hn::MulAdd(half, Erf(d, hn::Mul(x, hn::Set(d, 0.70710678118654752f))), half);
  }
};

// The same to an absolute error of 2·10⁻⁴, less than what rounding to bf16 moves most values by, and
// without a division: x · Φ(x), where Φ is 1/2 + x · P(x²) up to 4, fitted by us to the least error
// of the product, and then 0 or 1.
struct CoarseGelu {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x) {
    const auto end = hn::Set(d, 4.0f);
    const V bounded = hn::Min(hn::Max(x, hn::Neg(end)), end);
    const V t = hn::Mul(bounded, bounded);
    V p = hn::Set(d, 2.2602064220222928e-08f);
    p = hn::MulAdd(p, t, hn::Set(d, -1.5895290061962442e-06f));
    p = hn::MulAdd(p, t, hn::Set(d, 4.7777666623005643e-05f));
    p = hn::MulAdd(p, t, hn::Set(d, -0.0008123191073536873f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.008764318190515041f));
    p = hn::MulAdd(p, t, hn::Set(d, -0.06455576419830322f));
    p = hn::MulAdd(p, t, hn::Set(d, 0.3978712260723114f));
    const V phi = hn::MulAdd(p, bounded, hn::Set(d, 0.5f));
    return hn::Mul(x, hn::Min(hn::Max(phi, hn::Zero(d)), hn::Set(d, 1.0f)));
  }
};

// x/2 · (1 + tanh u) = x · sigmoid(2u), u = √(2/π) · (x + 0.044715 · x³).
struct GeluTanh {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x) {
    const V cubic = hn::MulAdd(hn::Mul(hn::Mul(x, x), x), hn::Set(d, 0.044715f), x);
    return hn::Mul(x, Sigmoid(d, hn::Mul(cubic, hn::Set(d, 1.5957691216057308f))));
  }
};

struct Silu {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x) {
    return hn::Mul(x, Sigmoid(d, x));
  }
};

struct Tanh {
  template <class D, class V = hn::Vec<D>>
  static HWY_INLINE V Of(D d, V x) {
    return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, x));
  }
};

// What does for values that are rounded to bf16 next.
template <class Function>
struct ForBf16 {
  using Type = Function;
};
template <>
struct ForBf16<Gelu> {
  using Type = CoarseGelu;
};

// Calls f with the activation, so that loops are compiled for each.
template <typename F>
HWY_INLINE void WithActivation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::kNone:
      return f(NoActivation());
    case Activation::kRelu:
      return f(Relu());
    case Activation::kGelu:
      return f(Gelu());
    case Activation::kGeluTanh:
      return f(GeluTanh());
    case Activation::kSilu:
      return f(Silu());
    case Activation::kTanh:
      return f(Tanh());
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#endif
