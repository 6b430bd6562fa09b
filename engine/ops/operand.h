// operand.h — rows in the number format that a product's micro-kernels read.
//
// Role: private to engine/ops; used by linear.cc and attention. Dispatched by Highway to the widest
//       vectors in use.
// 8 bits: a row of activations is spread over 256 steps from its least value to its largest, so that
//         nothing has to be known of the values beforehand, a row's bits depend on nothing but the
//         row, and skewed rows, as GELU gives them, lose no step. A column of weights has steps on
//         either side of 0 (Dettmers et al. 2022, 2: absmax and zero-point quantisation).
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/precision.h"
#include "engine/tensor/rounding.h"

namespace encoderd::ops {

constexpr int64_t OperandBytes(Precision precision) {
  return precision == Precision::kFp32 ? 4 : precision == Precision::kBf16 ? 2 : 1;
}

// Of a matrix tile.
inline constexpr int64_t kTileRowBytes = 64;

// Values that rows are padded to, with zeros: whole rows of matrix tiles, and whole groups of what
// is interleaved.
constexpr int64_t PaddedDepth(Precision precision, int64_t values) {
  return precision == Precision::kFp32 ? values
                                       : RoundUp(values, kTileRowBytes / OperandBytes(precision));
}

// Rounds `count` values to bf16, ties to even, and writes zeros behind them up to `padded`.
void RoundToBf16(const float* src, int64_t count, int64_t padded, uint16_t* dst);

// Back again, exactly.
void WidenBf16(const uint16_t* src, int64_t count, float* dst);

// The values are least + step · (what is stored).
struct QuantizedRow {
  float least = 0;
  float step = 0;
};

// Quantises `count` values, fp32 or bf16, to 0 … 255 and writes zeros behind them up to `padded`.
// Where any is not finite the step is not either, and so is no product with the row.
QuantizedRow QuantizeRow(const float* src, int64_t count, int64_t padded, uint8_t* dst);
QuantizedRow QuantizeRow(const uint16_t* src, int64_t count, int64_t padded, uint8_t* dst);

// Quantises `count` weights to -127 … 127 and returns the step, which is not finite where any weight
// is not; writes zeros behind them up to `padded`.
float QuantizeWeights(const float* src, int64_t count, int64_t padded, int8_t* dst);

}  // namespace encoderd::ops
