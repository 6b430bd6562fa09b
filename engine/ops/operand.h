// operand.h — rows in the number format that a product's micro-kernels read.
//
// Role: private to engine/ops; used by linear.cc and attention. Dispatched by Highway to the widest
//       vectors in use.
// 8 bits: a row has one scale, the largest magnitude in it ÷ 127 (Dettmers et al. 2022, 3: absmax
//         quantisation row by row), so that nothing has to be known of the values beforehand and a
//         row's bits depend on nothing but the row. A row that is not finite gets a scale that is
//         not, which makes every product with it not finite.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/rounding.h"
#include "engine/precision.h"

namespace encoderd::ops {

constexpr int64_t OperandBytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : precision == Precision::kBf16 ? 2 : 1;
}

// Values that rows are padded to, with zeros: whole rows of matrix tiles, and whole groups of what
// is interleaved.
constexpr int64_t PaddedDepth(Precision precision, int64_t values) {
  constexpr int64_t kTileRowBytes = 64;
  return precision == Precision::kFp32 ? values
                                       : RoundUp(values, kTileRowBytes / OperandBytes(precision));
}

// Rounds `count` values to bf16, ties to even, and writes zeros behind them up to `padded`.
void RoundToBf16(const float* src, int64_t count, int64_t padded, uint16_t* dst);

// Quantises `count` values to integers from -127 to 127 and returns their scale, 0 where all are 0;
// writes zeros behind them up to `padded`. `bias` is added to each integer, zeros too: 128 makes
// unsigned bytes of them. Finite values only count as long as all are.
float QuantizeRow(const float* src, int64_t count, int64_t padded, uint8_t bias, uint8_t* dst);

}  // namespace encoderd::ops
