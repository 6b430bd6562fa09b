// fp32_product.h — the sums of a product in fp32: some rows by one panel of columns.
//
// Role: private to engine/ops; used by panel_product.cc. Dispatched by Highway to the widest vectors
//       in use.
// How:  the sums of 6 rows stay in registers for the whole depth. Meanwhile the weights that come
//       next are fetched: a model's are larger than any cache.
// Why:  a micro-kernel of oneDNN's is as quick where everything is in L1, but waits for each panel's
//       weights, and computes rows up to the count that it is built for.
// Bits: see sum_tile-inl.h.
#pragma once

#include <cstdint>
#include <span>

namespace encoderd::ops {

struct Fp32Block {
  const float* rows = nullptr;  // [count][depth], at `stride`
  int64_t stride = 0;
  int64_t count = 0;
  int64_t depth = 0;
  const float* panel = nullptr;  // [depth][kPanelColumns], 64-byte aligned
  std::span<const float> next;   // fetched into the second-level cache; may be empty
  float* sums = nullptr;         // [count][kPanelColumns]
  bool accumulate = false;
};

// sums = rows · panel, or sums += rows · panel.
void SumProducts(const Fp32Block& block);

}  // namespace encoderd::ops
