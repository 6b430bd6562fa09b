// operation_reader.h — a checkpoint's tensors as operations that are ready to run.
//
// Role: under LoadWeights, which knows what a model consists of; this knows how one tensor, matrix
//       product, norm or stack of steps is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/checkpoint.h"
#include "engine/model/faults.h"
#include "engine/model/spec.h"
#include "engine/ops/layer_norm.h"
#include "engine/ops/linear.h"
#include "engine/ops/row_buckets.h"
#include "engine/precision.h"
#include "engine/tensor/buffer.h"
#include "engine/weights.h"

namespace encoderd {

// What a product does besides multiplying, and how it multiplies.
struct ProductKind {
  Activation activation = Activation::kNone;
  ops::Combine combine = ops::Combine::kNone;
  Precision precision = Precision::kFp32;
  ops::RowType src_type = ops::RowType::kFp32;
  ops::RowType dst_type = ops::RowType::kFp32;
};

// One way of cutting rows, and one precision of the blocks' products. The spec, the checkpoint and
// the faults must outlive it. Errors: those of the checkpoint and of the operations;
// kResourceExhausted when memory runs out.
class OperationReader {
 public:
  // As the file has it.
  struct Matrix {
    std::string name;
    int64_t in = 0;
    Buffer weights;  // [out, in]
    Buffer bias;     // [out] or empty
  };

  OperationReader(const EncoderSpec& spec, const Checkpoint& checkpoint, Precision precision,
                  ops::RowBuckets buckets, Faults& faults)
      : spec_(spec),
        checkpoint_(checkpoint),
        precision_(precision),
        buckets_(buckets),
        faults_(faults) {}

  // The tensor. Where it is not finite that is a fault: ReLU would turn a NaN that it makes into a
  // plausible 0. (A bad row of an embedding table is found in the answers that it reaches.)
  absl::StatusOr<Buffer> ReadFinite(const std::string& name) const;
  absl::Status ReadFinite(const std::string& name, std::span<float> dst) const;

  // Of products within a block; rows inside an FFN, which are the widest, are bf16 unless everything
  // is fp32.
  ProductKind InBlock(Activation activation = Activation::kNone,
                      ops::Combine combine = ops::Combine::kNone) const;
  ProductKind IntoFfn(Activation activation, ops::Combine combine = ops::Combine::kNone) const;
  ProductKind OutOfFfn(ops::Combine combine) const;

  absl::StatusOr<ops::Linear> ReadLinear(const TensorNames& names, int64_t in, int64_t out,
                                         const ProductKind& kind) const;
  // One product for matrices that share their input.
  absl::StatusOr<ops::Linear> ReadStacked(const std::vector<TensorNames>& parts, int64_t in,
                                          int64_t out, const ProductKind& kind) const;

  // The rows of the matrices `parts`, equally many of each, and their biases, one behind the other.
  absl::StatusOr<Matrix> ReadMatrix(const std::vector<TensorNames>& parts, int64_t in,
                                    int64_t out) const;
  // The product with rows [first, first + out) of the matrix.
  absl::StatusOr<ops::Linear> Build(const Matrix& matrix, int64_t first, int64_t out,
                                    const ProductKind& kind) const;

  absl::StatusOr<ops::LayerNorm> ReadNorm(const TensorNames& names,
                                          Activation activation = Activation::kNone) const;

  // A stack of steps, the first of which takes rows of `width`. Two stacks may begin alike, as a
  // classifier does with the pooler: what they share is held once.
  absl::StatusOr<std::vector<StepWeights>> ReadSteps(const std::vector<Step>& steps, int64_t width);

 private:
  void CheckFinite(const std::string& name, std::span<const float> values) const;
  ops::RowType FfnRows() const;
  absl::StatusOr<ops::Linear> ReadLinearStep(const Step& step, int64_t width);

  const EncoderSpec& spec_;
  const Checkpoint& checkpoint_;
  const Precision precision_;  // of the blocks' products
  const ops::RowBuckets buckets_;
  Faults& faults_;
  std::vector<std::pair<Step, ops::Linear>> linear_steps_;  // all that have been read
};

}  // namespace encoderd
