// head_product.h — a product of some rows of one head in fp32: scores of a block of keys, or what
// their weights make of a block of values.
//
// Role: private to engine/ops; used by attention_kernels.cc. Dispatched by Highway to the widest
//       vectors in use.
// How:  sums of 6 rows by 4 vectors, or 12 by 2, stay in registers for the whole depth; half as many
//       where there are half as many registers.
// Why:  with a depth of a head's width, a micro-kernel of oneDNN's takes longer to be called and to
//       begin than this takes altogether.
// Bits: see sum_tile-inl.h; what is added is added behind the chain.
#pragma once

#include <cstdint>

namespace encoderd::ops {

// Columns come in multiples of so many.
inline constexpr int64_t kHeadProductColumns = 16;

struct HeadProduct {
  const float* a = nullptr;  // [rows][depth]
  int64_t a_stride = 0;      // from one row to the next; likewise below
  int64_t rows = 0;
  int64_t depth = 0;
  const float* b = nullptr;  // [depth][columns]
  int64_t b_stride = 0;
  int64_t columns = 0;
  float* c = nullptr;  // [rows][columns]
  int64_t c_stride = 0;
  bool add = false;
};

// C = A · B, or C += A · B.
void MultiplyHead(const HeadProduct& product);

}  // namespace encoderd::ops
