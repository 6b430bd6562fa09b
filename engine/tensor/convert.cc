#include "engine/tensor/convert.h"

#include <array>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>

namespace encoderd {
namespace {

static_assert(std::endian::native == std::endian::little,
              "weight files and answers are little-endian; so must the machine be");

// Reads `count` In's from `src`, writes convert(In)'s to `dst`. Whole blocks go through local
// arrays: the accesses are aligned whatever the spans are, and the trip count is a constant, which
// is what GCC asks for before it vectorises at -O2.
template <typename In, typename Out, Out (*convert)(In)>
void ConvertAll(const std::byte* src, std::byte* dst, size_t count) {
  constexpr size_t kBlock = 64;
  std::array<In, kBlock> in;
  std::array<Out, kBlock> out;
  size_t done = 0;
  for (; count - done >= kBlock; done += kBlock) {
    std::memcpy(in.data(), src + done * sizeof(In), sizeof(in));
    for (size_t i = 0; i < kBlock; ++i) out[i] = convert(in[i]);
    std::memcpy(dst + done * sizeof(Out), out.data(), sizeof(out));
  }
  const size_t rest = count - done;
  if (rest == 0) return;
  std::memcpy(in.data(), src + done * sizeof(In), rest * sizeof(In));
  for (size_t i = 0; i < rest; ++i) out[i] = convert(in[i]);
  std::memcpy(dst + done * sizeof(Out), out.data(), rest * sizeof(Out));
}

// The conversions below work on bit patterns.
// Exponent biases: binary32 127, binary16 15; mantissas: 23 and 10 bits.
constexpr uint32_t kFp32Infinity = 0x7f800000;
constexpr uint32_t kRebias = uint32_t{127 - 15} << 23;

uint32_t Bf16ToFp32(uint16_t half) { return uint32_t{half} << 16; }

float Fp64ToFp32(double value) { return static_cast<float>(value); }

uint32_t Fp16ToFp32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t magnitude = half & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + kRebias;
  // Infinity and NaN: the exponent of 31 becomes 255, which is one more rebias.
  const uint32_t special = normal + kRebias;
  // Subnormals are multiples of 2^-24, and every such multiple is a normal binary32.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = magnitude < 0x0400 ? subnormal : normal;
  return sign | (magnitude < 0x7c00 ? finite : special);
}

uint16_t Fp32ToBf16(uint32_t bits) {
  // Adding just under half of the last kept place, plus that place's own bit, rounds to nearest
  // even; a carry runs into the exponent, which is right up to and including infinity.
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x0040;
  return static_cast<uint16_t>((bits & 0x7fffffff) > kFp32Infinity ? quiet_nan : rounded);
}

uint16_t Fp32ToFp16(uint32_t bits) {
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  // As for bf16; whatever exceeds the largest finite value after rounding is an infinity.
  const uint32_t rounded = (magnitude + 0xfff + ((magnitude >> 13) & 1) - kRebias) >> 13;
  const uint32_t normal = rounded < 0x7c00 ? rounded : 0x7c00;
  // Below 2^-14 the last place is 2^-24, the last place of numbers in [0.5, 1): adding 0.5 lets the
  // processor round there.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
                             std::bit_cast<uint32_t>(0.5f);
  const uint32_t quiet_nan = 0x7e00 | ((magnitude >> 13) & 0x03ff);
  const uint32_t finite = magnitude < 0x38800000 ? subnormal : normal;
  return static_cast<uint16_t>(sign | (magnitude > kFp32Infinity ? quiet_nan : finite));
}

}  // namespace

void WidenToFp32(DataType type, std::span<const std::byte> src, std::span<float> dst) {
  assert(src.size() == dst.size() * DataTypeBytes(type));
  if (dst.empty()) return;
  std::byte* out = reinterpret_cast<std::byte*>(dst.data());
  switch (type) {
    case DataType::kFp32:
      std::memcpy(out, src.data(), src.size());
      return;
    case DataType::kBf16:
      return ConvertAll<uint16_t, uint32_t, Bf16ToFp32>(src.data(), out, dst.size());
    case DataType::kFp16:
      return ConvertAll<uint16_t, uint32_t, Fp16ToFp32>(src.data(), out, dst.size());
    case DataType::kFp64:
      return ConvertAll<double, float, Fp64ToFp32>(src.data(), out, dst.size());
  }
}

void NarrowFromFp32(DataType type, std::span<const float> src, std::span<std::byte> dst) {
  assert(type != DataType::kFp64 && dst.size() == src.size() * DataTypeBytes(type));
  if (src.empty()) return;
  const std::byte* in = reinterpret_cast<const std::byte*>(src.data());
  switch (type) {
    case DataType::kFp32:
      std::memcpy(dst.data(), in, dst.size());
      return;
    case DataType::kBf16:
      return ConvertAll<uint32_t, uint16_t, Fp32ToBf16>(in, dst.data(), src.size());
    case DataType::kFp16:
      return ConvertAll<uint32_t, uint16_t, Fp32ToFp16>(in, dst.data(), src.size());
    case DataType::kFp64:
      return;  // excluded by REQUIRES
  }
}

}  // namespace encoderd
