// head_packing.h — one head's q, k and v as the micro-kernels of attention read them.
//
// Role: private to engine/ops. Dispatched by Highway to the widest vectors in use.
//
//        fp32                            bf16
//   q    [rows][depth]                   [rows][depth]
//   k    [blocks][depth][kKeyBlock]      [blocks][depth / 2][kKeyBlock][2]
//   v    [tokens][depth]                 [tokens / 2][depth][2]
//
// k is turned: its keys are columns. In bf16 the kernels want two numbers of a column side by side.
// `depth` is head_dim, in bf16 with zeros up to a multiple of 32: no kernel then has to stop within
// a register or a tile, where what it reads too much might be somebody's NaN.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/operand.h"
#include "engine/precision.h"
#include "engine/tensor/rounding.h"

namespace encoderd::ops {

inline constexpr int64_t kKeyBlock = 64;  // keys that lie, and go through the kernels, together

struct HeadFormat {
  Precision precision = Precision::kFp32;  // or kBf16
  int64_t head_dim = 0;

  bool half() const { return precision == Precision::kBf16; }
  int64_t number_bytes() const { return OperandBytes(precision); }
  int64_t depth() const { return PaddedDepth(precision, head_dim); }
  int64_t row_bytes() const { return depth() * number_bytes(); }
  // Kernels exist for multiples of so many query rows and keys. Numbers of keys up to it are zeros.
  int64_t query_step() const { return half() ? 16 : 8; }
  int64_t key_step() const { return half() ? 32 : 16; }
  // Bytes of q, k or v of so many tokens.
  int64_t plane_bytes(int64_t tokens) const { return RoundUp(tokens, kKeyBlock) * row_bytes(); }
};

// src: `rows` or `tokens` rows of head_dim numbers, src_stride apart. dst: plane_bytes. `scale` is
// what all scores of the queries are multiplied with: here, and therefore nowhere else.
void PackQueries(const HeadFormat& format, const float* src, int64_t src_stride, int64_t rows,
                 float scale, std::byte* dst);
void PackKeys(const HeadFormat& format, const float* src, int64_t src_stride, int64_t tokens,
              std::byte* dst);
void PackValues(const HeadFormat& format, const float* src, int64_t src_stride, int64_t tokens,
                std::byte* dst);

// dst[c · kKeyBlock + r] = src[r · src_stride + c] for r < rows ≤ kKeyBlock, c < columns: rows become
// columns. Values are moved bit by bit.
void TransposeKeys(const float* src, int64_t src_stride, int64_t rows, int64_t columns, float* dst);

}  // namespace encoderd::ops
