// panel.h — the columns of a product that are computed together, and what becomes of their sums.
//
// Role: private to engine/ops; used by linear.cc. Dispatched by Highway to the widest vectors in
//       use.
#pragma once

#include <cstdint>

#include "engine/ops/activation.h"
#include "engine/ops/operand.h"

namespace encoderd::ops {

// 64: four of the widest vectors, with which a micro-kernel fills the registers.
inline constexpr int64_t kPanelColumns = 64;

// What is done with the other tensor of a product, element by element: nothing, there is none;
// added, as residuals are; multiplied, as the two halves of a gated FFN are.
enum class Combine { kNone, kAdd, kMultiply };

// Of the rows between two operations.
enum class RowType { kFp32, kBf16 };

// dst = combine(activation(sums + bias), other) on a block of a panel.
struct PanelBlock {
  const void* sums = nullptr;  // [rows][kPanelColumns] fp32, or int32 where the rows are quantised
  int64_t rows = 0;
  int64_t columns = 0;                      // at most kPanelColumns
  const float* bias = nullptr;              // [kPanelColumns], as are those of the columns below
  const QuantizedRow* quantized = nullptr;  // [rows], of 8-bit products; else null
  const float* column_steps = nullptr;      // of the weights
  const float* column_sums = nullptr;       // of the weights, quantised: what `least` is times
  Activation activation = Activation::kNone;
  Combine combine = Combine::kNone;
  RowType type = RowType::kFp32;  // of `other` and `dst`
  const void* other = nullptr;    // rows at `stride`, as dst
  void* dst = nullptr;
  int64_t stride = 0;
};

void FinishPanel(const PanelBlock& block);

}  // namespace encoderd::ops
