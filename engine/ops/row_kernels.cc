#include "engine/ops/row_kernels.h"

#include <map>
#include <mutex>

namespace encoderd::ops {

std::shared_ptr<const RowKernels> RowKernels::Of(const RowKernelShape& shape) {
  static std::mutex mutex;
  static auto& known = *new std::map<RowKernelShape, std::weak_ptr<const RowKernels>>();
  const std::lock_guard lock(mutex);
  std::weak_ptr<const RowKernels>& entry = known[shape];
  if (auto alive = entry.lock()) return alive;
  auto made = std::make_shared<const RowKernels>(shape);
  entry = made;
  return made;
}

RowKernels::RowKernels(const RowKernelShape& shape) {
  for (size_t i = 0; i < kernels_.size(); ++i) {
    kernels_[i] = Ukernel({.precision = shape.precision,
                           .m = static_cast<int64_t>(i + 1) * RowBuckets::kStep,
                           .n = kPanelColumns,
                           .k = shape.depth,
                           .lda = shape.stride,
                           .ldb = kPanelColumns,
                           .ldc = kPanelColumns,
                           .accumulate = shape.accumulate});
  }
}

}  // namespace encoderd::ops
