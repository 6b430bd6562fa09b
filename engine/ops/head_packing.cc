#include "engine/ops/head_packing.h"

#include <algorithm>
#include <array>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/ops/head_packing.cc"
// clang-format off: the order matters
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "engine/ops/rows-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace encoderd::ops {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

HWY_NOINLINE void TransposeKeys(const float* src, int64_t src_stride, int64_t rows, int64_t columns,
                                float* dst) {
  // Four rows of four columns at a time: two interleaving steps turn them round.
  const hn::FixedTag<float, 4> d;
  const hn::Repartition<double, decltype(d)> d64;
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float* const in = src + r * src_stride;
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      const auto a = hn::LoadU(d, in + c), b = hn::LoadU(d, in + src_stride + c),
                 e = hn::LoadU(d, in + 2 * src_stride + c),
                 f = hn::LoadU(d, in + 3 * src_stride + c);
      const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(d, a, b));
      const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(d, a, b));
      const auto ef_low = hn::BitCast(d64, hn::InterleaveLower(d, e, f));
      const auto ef_high = hn::BitCast(d64, hn::InterleaveUpper(d, e, f));
      float* const out = dst + c * kKeyBlock + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_low, ef_low)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_low, ef_low)), d, out + kKeyBlock);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, ab_high, ef_high)), d,
                 out + 2 * kKeyBlock);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, ab_high, ef_high)), d,
                 out + 3 * kKeyBlock);
    }
    for (; c < columns; ++c) {
      for (int64_t i = 0; i < 4; ++i) dst[c * kKeyBlock + r + i] = in[i * src_stride + c];
    }
  }
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) dst[c * kKeyBlock + r] = src[r * src_stride + c];
  }
}

// Numbers of a row from `column` on, zeros behind its end.
HWY_INLINE hn::Vec<Floats> LoadFrom(const float* row, int64_t columns, int64_t column) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  if (column + lanes <= columns) return hn::LoadU(d, row + column);
  return hn::LoadN(d, row + column,
                   static_cast<size_t>(std::clamp<int64_t>(columns - column, 0, lanes)));
}

// A row rounded to bf16 from `first` to `end`, a multiple of 32 numbers away.
HWY_INLINE void Round(const float* row, int64_t columns, int64_t first, int64_t end, float scale,
                      hwy::bfloat16_t* dst) {
  const Floats d;
  const hn::Repartition<hwy::bfloat16_t, Floats> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto scale_v = hn::Set(d, scale);
  for (int64_t column = first; column < end; column += 2 * lanes) {
    const auto low = hn::Mul(LoadFrom(row, columns, column), scale_v);
    const auto high = hn::Mul(LoadFrom(row, columns, column + lanes), scale_v);
    hn::StoreU(hn::OrderedDemote2To(d16, low, high), d16, dst + (column - first));
  }
}

void PackQueries(const HeadFormat& format, const float* src, int64_t src_stride, int64_t rows,
                 float scale, std::byte* dst) {
  const Floats d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t columns = format.head_dim;
  for (int64_t r = 0; r < rows; ++r, src += src_stride, dst += format.row_bytes()) {
    if (format.half()) {
      Round(src, columns, 0, format.depth(), scale, reinterpret_cast<hwy::bfloat16_t*>(dst));
      continue;
    }
    auto* const out = reinterpret_cast<float*>(dst);
    int64_t c = 0;
    for (; c + lanes <= columns; c += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, src + c), hn::Set(d, scale)), d, out + c);
    }
    for (; c < columns; ++c) out[c] = src[c] * scale;
  }
}

// Columns of one block in bf16. A pair of numbers is turned as one of twice the size.
HWY_INLINE void PackKeyPairs(const HeadFormat& format, const float* src, int64_t src_stride,
                             int64_t count, float* dst) {
  constexpr int64_t kColumns = 32;
  alignas(64) std::array<float, kKeyBlock * kColumns / 2> pairs;
  for (int64_t c = 0; c < format.depth(); c += kColumns) {
    for (int64_t r = 0; r < count; ++r) {
      Round(src + r * src_stride, format.head_dim, c, c + kColumns, 1.0f,
            reinterpret_cast<hwy::bfloat16_t*>(pairs.data() + r * kColumns / 2));
    }
    TransposeKeys(pairs.data(), kColumns / 2, count, kColumns / 2, dst + c / 2 * kKeyBlock);
  }
}

void PackKeys(const HeadFormat& format, const float* src, int64_t src_stride, int64_t tokens,
              std::byte* dst) {
  for (int64_t key = 0; key < tokens; key += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, tokens - key);
    auto* const columns = reinterpret_cast<float*>(dst + key * format.row_bytes());
    if (format.half()) {
      PackKeyPairs(format, src + key * src_stride, src_stride, count, columns);
    } else {
      TransposeKeys(src + key * src_stride, src_stride, count, format.head_dim, columns);
    }
    const int64_t padded = RoundUp(count, format.key_step());
    const int64_t lines = format.row_bytes() / static_cast<int64_t>(sizeof(float));
    for (int64_t i = 0; padded > count && i < lines; ++i) {
      std::fill(columns + i * kKeyBlock + count, columns + i * kKeyBlock + padded, 0.0f);
    }
  }
}

// dst: pairs of the numbers of two rows, of which each has so many and then zeros.
HWY_INLINE void PackValuePair(const float* first, int64_t first_columns, const float* second,
                              int64_t second_columns, int64_t depth, uint32_t* dst) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> d32;
  const hn::Rebind<hwy::bfloat16_t, Floats> d16;
  const hn::RebindToUnsigned<decltype(d16)> du16;
  const auto rounded = [&](const float* row, int64_t columns, int64_t c) HWY_ATTR {
    const auto bits = hn::BitCast(du16, hn::DemoteTo(d16, LoadFrom(row, columns, c)));
    return hn::PromoteTo(d32, bits);
  };
  for (int64_t c = 0; c < depth; c += static_cast<int64_t>(hn::Lanes(d))) {
    const auto high = hn::ShiftLeft<16>(rounded(second, second_columns, c));
    hn::StoreU(hn::Or(rounded(first, first_columns, c), high), d32, dst + c);
  }
}

void PackValues(const HeadFormat& format, const float* src, int64_t src_stride, int64_t tokens,
                std::byte* dst) {
  const int64_t padded = RoundUp(tokens, format.key_step());
  if (format.half()) {
    const int64_t depth = format.depth();
    for (int64_t t = 0; t < padded; t += 2) {
      const float* const first = src + std::min(t, tokens - 1) * src_stride;
      const float* const second = src + std::min(t + 1, tokens - 1) * src_stride;
      PackValuePair(first, t < tokens ? format.head_dim : 0, second,
                    t + 1 < tokens ? format.head_dim : 0, depth,
                    reinterpret_cast<uint32_t*>(dst + t * format.row_bytes()));
    }
    return;
  }
  const auto row_bytes = static_cast<size_t>(format.row_bytes());
  for (int64_t t = 0; t < tokens; ++t, dst += row_bytes) {
    std::memcpy(dst, src + t * src_stride, row_bytes);
  }
  std::memset(dst, 0, static_cast<size_t>(padded - tokens) * row_bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace encoderd::ops
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace encoderd::ops {

HWY_EXPORT(PackQueries);
HWY_EXPORT(PackKeys);
HWY_EXPORT(PackValues);
HWY_EXPORT(TransposeKeys);

void PackQueries(const HeadFormat& format, const float* src, int64_t src_stride, int64_t rows,
                 float scale, std::byte* dst) {
  HWY_DYNAMIC_DISPATCH(PackQueries)(format, src, src_stride, rows, scale, dst);
}

void PackKeys(const HeadFormat& format, const float* src, int64_t src_stride, int64_t tokens,
              std::byte* dst) {
  HWY_DYNAMIC_DISPATCH(PackKeys)(format, src, src_stride, tokens, dst);
}

void PackValues(const HeadFormat& format, const float* src, int64_t src_stride, int64_t tokens,
                std::byte* dst) {
  HWY_DYNAMIC_DISPATCH(PackValues)(format, src, src_stride, tokens, dst);
}

void TransposeKeys(const float* src, int64_t src_stride, int64_t rows, int64_t columns,
                   float* dst) {
  HWY_DYNAMIC_DISPATCH(TransposeKeys)(src, src_stride, rows, columns, dst);
}

}  // namespace encoderd::ops
#endif  // HWY_ONCE
