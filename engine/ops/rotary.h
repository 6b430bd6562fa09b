// rotary.h — rotary positions: q and k of each head turned by angles that grow with the position.
//
// Source: Su et al. 2021 (RoFormer), with the pairs of GPT-NeoX and Hugging Face transformers 5.24
//         (`rotate_half`): value i of a head is paired with value i + width / 2.
//
//   a = position · frequency[i]       dst[i]             = src[i] · cos a − src[i + width/2] · sin a
//                                     dst[i + width / 2] = src[i + width/2] · cos a + src[i] · sin a
//
// Frequencies and angles are single precision, as there: at position 8000 an angle's rounding is
// 5·10⁻⁴, and trained models have it built in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "engine/ops/attention.h"

namespace encoderd::ops {

struct RotaryOptions {
  int64_t heads = 0;
  QkvStrides strides;                  // where q and k lie in a row
  int64_t width = 0;                   // leading values of each head that are turned; even
  int64_t positions = 0;               // 0 … positions-1 can be asked for
  double base = 10000;                 // frequency[i] = base ^ (−2i / width) / divisor
  double divisor = 1;                  // above 1 where positions are scaled (NTK-aware, Peng 2023)
  std::span<const float> frequencies;  // [width / 2] in place of the base's; empty: those
};

// Threads: immutable after Create; Run may be called from several threads at once.
class Rotary {
 public:
  // Errors: kResourceExhausted.
  static absl::StatusOr<Rotary> Create(const RotaryOptions& options);

  size_t bytes() const;

  // Turns q and k of one row in place. REQUIRES: 0 ≤ position < positions.
  void Run(int64_t position, float* qkv) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace encoderd::ops
