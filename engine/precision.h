// precision.h — the number formats in which an encoder's matrix products run.
//
// The rows between the products (hidden states, residuals, norms, softmax) are fp32 in all of them,
// and so are the heads on top.
#pragma once

#include <array>
#include <optional>
#include <string_view>

namespace encoderd {

enum class Precision {
  kFp32,
  kBf16,  // weights and activations rounded to bfloat16, sums in fp32
  kInt8,  // weights in 8 bits with a scale per output, activations with one per row, sums exact
};

inline constexpr std::array kPrecisions = {Precision::kFp32, Precision::kBf16, Precision::kInt8};

// "fp32", "bf16" or "int8".
constexpr std::string_view PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "fp32";
    case Precision::kBf16:
      return "bf16";
    case Precision::kInt8:
      return "int8";
  }
  return "";
}

constexpr std::optional<Precision> PrecisionNamed(std::string_view name) {
  for (const Precision precision : kPrecisions) {
    if (PrecisionName(precision) == name) return precision;
  }
  return std::nullopt;
}

}  // namespace encoderd
