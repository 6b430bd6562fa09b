// row_kernels.h — the micro-kernels of a product, for each number of rows that they are built for.
//
// Role: private to engine/ops; used by linear.cc. The products of a model have few shapes: those
//       that are alive are shared by the whole process.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "engine/ops/panel.h"
#include "engine/ops/row_buckets.h"
#include "engine/ops/ukernel.h"
#include "engine/precision.h"

namespace encoderd::ops {

// C [rows][kPanelColumns] = A [rows][stride] · B [depth][kPanelColumns], or C += A · B.
struct RowKernelShape {
  Precision precision = Precision::kFp32;
  int64_t depth = 0;
  int64_t stride = 0;
  bool accumulate = false;

  auto operator<=>(const RowKernelShape&) const = default;
};

class RowKernels {
 public:
  // Thread-safe. Throws dnnl::error.
  static std::shared_ptr<const RowKernels> Of(const RowKernelShape& shape);

  explicit RowKernels(const RowKernelShape& shape);

  // REQUIRES: `rows` is a multiple of RowBuckets::kStep, at most RowBuckets::kMaxRows.
  const Ukernel& For(int64_t rows) const {
    return kernels_[static_cast<size_t>(rows / RowBuckets::kStep - 1)];
  }

 private:
  std::array<Ukernel, RowBuckets::kMaxRows / RowBuckets::kStep> kernels_;
};

}  // namespace encoderd::ops
