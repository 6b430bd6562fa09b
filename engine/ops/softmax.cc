#include "engine/ops/softmax.h"

#include <algorithm>

#include "engine/ops/fetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/softmax.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Vec = hn::Vec<Floats>;

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// exp(x) for x ≤ 0 as 2^n · 2^f with a whole n and |f| ≤ 1/2: exactly 1 at 0, and exactly 0 from -88
// on, -∞ included. 2^f is the polynomial of the least relative error that is 1 at 0: in fp32 8e-8
// with the rounding; where the weights are to be rounded to bf16, by up to 4e-3, 1e-4 is enough.
template <Precision kPrecision>
HWY_INLINE Vec Exp(Vec x) {
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  x = hn::Max(x, hn::Set(d, -88.0f));
  const auto log2_e = hn::Set(d, 1.44269504f);
  // Adding 1.5 · 2²³ rounds to a whole number and leaves it, with 127 added, in the lowest bits:
  // shifted to the exponent's place they are 2^n, and 0 for the lowest n there is, -127.
  const auto magic = hn::Set(d, 12582912.0f + 127.0f);
  const auto shifted = hn::MulAdd(x, log2_e, magic);
  const auto f = hn::MulSub(x, log2_e, hn::Sub(shifted, magic));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  auto p = f;
  if constexpr (kPrecision == Precision::kFp32) {
    p = hn::MulAdd(hn::Set(d, 0.00015353362f), f, hn::Set(d, 0.0013398875f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.00961843692f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.0555033237f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.240226477f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.693147182f));
  } else {
    p = hn::MulAdd(hn::Set(d, 0.0550089255f), f, hn::Set(d, 0.242210954f));
    p = hn::MulAdd(p, f, hn::Set(d, 0.693282902f));
  }
  return hn::Mul(hn::MulAdd(p, f, hn::Set(d, 1.0f)), power);
}

// One row of a block.
template <bool kBias>
struct Row {
  float* scores;
  const float* bias;
  float* copy;
  int64_t keys;
  int64_t padded;

  // Keys from `key` on, none in the padding.
  HWY_INLINE size_t Left(int64_t key) const {
    return static_cast<size_t>(std::max<int64_t>(keys - key, 0));
  }

  HWY_INLINE Vec Biased(Vec score, int64_t key) const {
    if constexpr (kBias) return hn::Add(score, hn::LoadU(Floats(), bias + key));
    return score;
  }
};

// The largest score and, for each that is not finite, NaN: 0 · s is 0 for finite s and NaN for the
// others, which max and exp would swallow.
struct Largest {
  Vec max;
  Vec poison;

  HWY_INLINE void Add(Vec score, Vec biased) {
    poison = hn::MulAdd(score, hn::Zero(Floats()), poison);
    max = hn::Max(max, biased);
  }
};

template <bool kBias>
HWY_INLINE Largest FindLargest(const Row<kBias>& row) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  // Several at once: each waits for its own last step.
  const Largest none = {.max = hn::Set(d, kHidden), .poison = hn::Zero(d)};
  Largest a = none, b = none, c = none, e = none;
  const auto add = [&](int64_t key, Largest& largest) HWY_ATTR {
    const auto score = hn::LoadU(d, row.scores + key);
    largest.Add(score, row.Biased(score, key));
  };
  int64_t key = 0;
  for (; key + 4 * lanes <= row.keys; key += 4 * lanes) {
    add(key, a);
    add(key + lanes, b);
    add(key + 2 * lanes, c);
    add(key + 3 * lanes, e);
  }
  for (; key + lanes <= row.keys; key += lanes) add(key, a);
  if (key < row.keys) {
    const size_t left = row.Left(key);
    const auto score = LoadRow(row.scores + key, left);
    a.Add(score, hn::IfThenElse(hn::FirstN(d, left), row.Biased(score, key), hn::Set(d, kHidden)));
  }
  a.max = hn::Max(hn::Max(a.max, b.max), hn::Max(c.max, e.max));
  a.poison = hn::Add(hn::Add(a.poison, b.poison), hn::Add(c.poison, e.poison));
  return a;
}

// Calls weigh(key, keys left) → weights for each vector, in order, and writes what it gives. For
// whole vectors of keys it says just so many, which the compiler knows.
template <Precision kPrecision, bool kBias, typename F>
HWY_INLINE void WriteWeights(const Row<kBias>& row, F&& weigh) {
  const Floats d;
  const size_t whole = hn::Lanes(d);
  const auto lanes = static_cast<int64_t>(whole);
  if constexpr (kPrecision == Precision::kFp32) {
    int64_t key = 0;
    for (; key + lanes <= row.keys; key += lanes) {
      hn::StoreU(weigh(key, whole), d, row.scores + key);
    }
    for (; key < row.padded; key += lanes) {
      hn::StoreU(weigh(key, row.Left(key)), d, row.scores + key);
    }
  } else {
    // Never ahead of what is still to be read: a weight takes half the room of a score.
    const hn::Repartition<hwy::bfloat16_t, Floats> d16;
    auto* const dst = reinterpret_cast<hwy::bfloat16_t*>(row.scores);
    int64_t key = 0;
    for (; key + 2 * lanes <= row.keys; key += 2 * lanes) {
      const auto low = weigh(key, whole), high = weigh(key + lanes, whole);
      hn::StoreU(hn::OrderedDemote2To(d16, low, high), d16, dst + key);
    }
    for (; key < row.padded; key += 2 * lanes) {
      const auto low = weigh(key, row.Left(key));
      const auto high = weigh(key + lanes, row.Left(key + lanes));
      hn::StoreU(hn::OrderedDemote2To(d16, low, high), d16, dst + key);
    }
  }
}

// Brings a row's maximum up to date. The sum takes only what is not finite.
template <bool kBias>
HWY_INLINE void RaiseMax(const Row<kBias>& row, RowState& state) {
  const Floats d;
  const Largest largest = FindLargest(row);
  const float max = std::max(state.max, hn::ReduceMax(d, largest.max));
  state.factor = 1;
  if (max > state.max && state.max != kHidden) {
    state.factor = hn::GetLane(Exp<Precision::kFp32>(hn::Set(d, state.max - max)));
  }
  state.max = max;
  state.sum = state.sum * state.factor + hn::ReduceSum(d, largest.poison);
}

// Turns a row's scores into weights and adds them to its sum. REQUIRES: its maximum is up to date.
template <Precision kPrecision, bool kBias>
HWY_INLINE void ExpRow(const Row<kBias>& row, RowState& state) {
  const Floats d;
  if (state.max == kHidden) {
    WriteWeights<kPrecision>(row, [&](int64_t, size_t) HWY_ATTR { return hn::Zero(d); });
    if (row.copy != nullptr) std::fill_n(row.copy, row.keys, 0.0f);
    return;
  }
  const auto max = hn::Set(d, state.max);
  auto sum = hn::Zero(d);
  WriteWeights<kPrecision>(row, [&](int64_t key, size_t left) HWY_ATTR {
    auto weight = Exp<kPrecision>(hn::Sub(row.Biased(hn::LoadU(d, row.scores + key), key), max));
    if (left < hn::Lanes(d)) weight = hn::IfThenElseZero(hn::FirstN(d, left), weight);
    if (row.copy != nullptr) StoreRow(weight, row.copy + key, left);
    sum = hn::Add(sum, weight);
    return weight;
  });
  state.sum += hn::ReduceSum(d, sum);
}

HWY_INLINE void FetchRow(const NextHead& next, int64_t row) {
  for (const float* const part : next.parts) {
    for (int64_t i = 0; i < next.count; i += kLineFloats) FetchLine(part + row * next.stride + i);
  }
}

template <Precision kPrecision, bool kBias>
HWY_INLINE void ExpRows(const ScoreBlock& block, RowState* states) {
  const auto row = [&](int64_t i) HWY_ATTR {
    return Row<kBias>{.scores = block.scores + i * block.stride,
                      .bias = kBias ? block.bias + i * block.bias_stride : nullptr,
                      .copy = block.copy == nullptr ? nullptr : block.copy + i * block.copy_stride,
                      .keys = block.keys,
                      .padded = block.padded};
  };
  // A few rows at a time, which are then still in cache for the second pass: what a row has to wait
  // for at the end of a pass, the CPU does meanwhile for the next.
  constexpr int64_t kRows = 8;
  for (int64_t first = 0; first < block.rows; first += kRows) {
    const int64_t end = std::min(first + kRows, block.rows);
    for (int64_t i = first; i < end; ++i) RaiseMax(row(i), states[i]);
    for (int64_t i = first; i < end; ++i) {
      FetchRow(block.next, i);
      ExpRow<kPrecision>(row(i), states[i]);
    }
  }
}

template <Precision kPrecision>
HWY_INLINE void ExpRows(const ScoreBlock& block, RowState* states) {
  if (block.bias != nullptr) {
    ExpRows<kPrecision, true>(block, states);
  } else {
    ExpRows<kPrecision, false>(block, states);
  }
}

void ExpScores(const ScoreBlock& block, Precision precision, RowState* states) {
  if (precision == Precision::kBf16) {
    ExpRows<Precision::kBf16>(block, states);
  } else {
    ExpRows<Precision::kFp32>(block, states);
  }
}

void Scale(const float* src, int64_t count, float factor, float* dst) {
  const auto factor_v = hn::Set(Floats(), factor);
  ForEachVector(count, [&](int64_t i, size_t left) HWY_ATTR {
    StoreRow(hn::Mul(LoadRow(src + i, left), factor_v), dst + i, left);
  });
}

void ScaleRows(const RowState* states, int64_t rows, const float* src, int64_t src_stride,
               int64_t count, float* dst, int64_t dst_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    if (dst == src && states[i].factor == 1) continue;
    Scale(src + i * src_stride, count, states[i].factor, dst + i * dst_stride);
  }
}

void AddByRow(const RowTerms& terms, float* scores) {
  constexpr int kByKeyBits = 6;
  static_assert(1 << kByKeyBits == kByKeyStride);
  const Floats d;
  const hn::RebindToSigned<Floats> d32;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto first = hn::Set(d32, terms.first_row);
  for (int64_t key = 0; key < terms.keys; key += lanes) {
    const auto rows = hn::LoadU(d32, terms.rows + key);
    const auto places = hn::Add(hn::ShiftLeft<kByKeyBits>(hn::Sub(rows, first)),
                                hn::Iota(d32, static_cast<int32_t>(key)));
    const auto added =
        hn::Add(hn::GatherIndex(d, terms.by_query, rows), hn::GatherIndex(d, terms.by_key, places));
    hn::StoreU(hn::Add(hn::LoadU(d, scores + key), added), d, scores + key);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(ExpScores);
HWY_EXPORT(Scale);
HWY_EXPORT(ScaleRows);
HWY_EXPORT(AddByRow);

void ExpScores(const ScoreBlock& block, Precision precision, RowState* states) {
  HWY_DYNAMIC_DISPATCH(ExpScores)(block, precision, states);
}

void Scale(const float* src, int64_t count, float factor, float* dst) {
  HWY_DYNAMIC_DISPATCH(Scale)(src, count, factor, dst);
}

void ScaleRows(const RowState* states, int64_t rows, const float* src, int64_t src_stride,
               int64_t count, float* dst, int64_t dst_stride) {
  HWY_DYNAMIC_DISPATCH(ScaleRows)(states, rows, src, src_stride, count, dst, dst_stride);
}

void AddByRow(const RowTerms& terms, float* scores) {
  HWY_DYNAMIC_DISPATCH(AddByRow)(terms, scores);
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
