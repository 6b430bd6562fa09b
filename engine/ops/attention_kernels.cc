#include "engine/ops/attention_kernels.h"

#include <algorithm>

#include "engine/ops/head_product.h"
#include "engine/tensor/rounding.h"

namespace encoderd::ops {
namespace {

size_t StepIndex(int64_t count, int64_t step) { return static_cast<size_t>((count - 1) / step); }

// Whether both products are made in vectors: no row then ends within one.
bool InVectors(const HeadFormat& format) {
  return !format.half() && format.head_dim % kHeadProductColumns == 0;
}

}  // namespace

StepKernels::StepKernels(Ukernel::Shape shape, int64_t a_number_bytes)
    : step_(shape.m), a_row_bytes_(shape.lda * a_number_bytes), c_stride_(shape.ldc) {
  for (Ukernel& kernel : kernels_) {
    kernel = Ukernel(shape);
    shape.m += step_;
  }
}

void StepKernels::Run(const std::byte* a, int64_t rows, const std::byte* b, float* c) const {
  const int64_t most = kSteps * step_;
  for (int64_t row = 0; row < rows; row += most) {
    kernels_[StepIndex(std::min(most, rows - row), step_)].Run(a + row * a_row_bytes_, b,
                                                               c + row * c_stride_);
  }
}

ScoreKernels::ScoreKernels(const HeadFormat& format, int64_t stride)
    : format_(format), stride_(stride) {
  if (InVectors(format)) return;
  const int64_t step = format.key_step();
  for (int64_t keys = step; keys <= kKeyBlock; keys += step) {
    kernels_[StepIndex(keys, step)] = StepKernels({.precision = format.precision,
                                                   .m = format.query_step(),
                                                   .n = keys,
                                                   .k = format.depth(),
                                                   .lda = format.depth(),
                                                   .ldb = kKeyBlock,
                                                   .ldc = stride,
                                                   .accumulate = false},
                                                  format.number_bytes());
  }
}

void ScoreKernels::Run(const std::byte* q, int64_t rows, const std::byte* k, int64_t keys,
                       float* scores) const {
  if (InVectors(format_)) {
    MultiplyHead({.a = reinterpret_cast<const float*>(q),
                  .a_stride = format_.head_dim,
                  .rows = rows,
                  .depth = format_.head_dim,
                  .b = reinterpret_cast<const float*>(k),
                  .b_stride = kKeyBlock,
                  .columns = RoundUp(keys, format_.key_step()),
                  .c = scores,
                  .c_stride = stride_});
    return;
  }
  kernels_[StepIndex(keys, format_.key_step())].Run(q, rows, k, scores);
}

ContextKernels::ContextKernels(const HeadFormat& format, int64_t stride)
    : format_(format), stride_(stride) {
  if (InVectors(format)) return;
  const int64_t step = format.key_step();
  for (int64_t keys = step; keys <= kKeyBlock; keys += step) {
    Ukernel::Shape shape = {
        .precision = format.precision,
        .m = format.query_step(),
        .n = format.depth(),
        .k = keys,
        .lda = stride * static_cast<int64_t>(sizeof(float)) / format.number_bytes(),
        .ldb = format.depth(),
        .ldc = format.depth(),
        .accumulate = false};
    set_[StepIndex(keys, step)] = StepKernels(shape, format.number_bytes());
    shape.accumulate = true;
    add_[StepIndex(keys, step)] = StepKernels(shape, format.number_bytes());
  }
}

void ContextKernels::Run(const std::byte* weights, int64_t rows, const std::byte* v, int64_t keys,
                         bool add, float* context) const {
  if (InVectors(format_)) {
    MultiplyHead({.a = reinterpret_cast<const float*>(weights),
                  .a_stride = stride_,
                  .rows = rows,
                  .depth = keys,
                  .b = reinterpret_cast<const float*>(v),
                  .b_stride = format_.head_dim,
                  .columns = format_.head_dim,
                  .c = context,
                  .c_stride = format_.head_dim,
                  .add = add});
    return;
  }
  const auto& kernels = add ? add_ : set_;
  kernels[StepIndex(keys, format_.key_step())].Run(weights, rows, v, context);
}

}  // namespace encoderd::ops
