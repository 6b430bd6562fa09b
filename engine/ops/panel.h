// panel.h — the columns of a product that are computed together, and what becomes of their sums.
//
// Role: private to engine/ops; used by linear.cc. Dispatched by Highway to the widest vectors in
//       use.
#pragma once

#include <cstdint>

#include "engine/ops/activation.h"

namespace encoderd::ops {

// 64: four of the widest vectors, with which a micro-kernel fills the registers.
inline constexpr int64_t kPanelColumns = 64;

// What is done with the other tensor of a product, element by element: nothing, there is none;
// added, as residuals are; multiplied, as the two halves of a gated FFN are.
enum class Combine { kNone, kAdd, kMultiply };

// dst = combine(activation(sums + bias), other) on a block of a panel. Sums of 8-bit products are
// taken as (sum - offset) · row scale · column scale first.
struct PanelBlock {
  const void* sums = nullptr;  // [rows][kPanelColumns] fp32, or int32 where there are row scales
  int64_t rows = 0;
  int64_t columns = 0;          // at most kPanelColumns
  const float* bias = nullptr;  // [kPanelColumns], as are the two below
  const float* row_scales = nullptr;
  const float* column_scales = nullptr;
  const int32_t* column_offsets = nullptr;
  Activation activation = Activation::kNone;
  Combine combine = Combine::kNone;
  const float* other = nullptr;  // rows at `stride`, as dst
  float* dst = nullptr;
  int64_t stride = 0;
};

void FinishPanel(const PanelBlock& block);

}  // namespace encoderd::ops
