// linear.h — dst = activation(src · Wᵀ + bias), to which a tensor is added or with which one is
// multiplied: the operation that takes nearly all the time.
//
// Role:   called by the encoder's forward pass; knows nothing of layers or families.
// Source: torch.nn.Linear (PyTorch 2.6): W is [out, in].
// How:    the columns of W lie in panels. The sums of some rows and a panel are taken
//         (panel_product.h), and one vector pass (panel.h) does the rest while they are in cache.
//         In bf16 and int8 the rows are rounded first (operand.h); the sums of 8-bit products are
//         exact, and what is done with sums is done in fp32.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/activation.h"
#include "engine/ops/panel.h"
#include "engine/ops/row_buckets.h"
#include "engine/precision.h"

namespace encoderd::ops {

struct LinearOptions {
  std::string name;  // of the weight, for messages
  int64_t in = 0;
  int64_t out = 0;
  std::span<const float> weights;  // [out, in], read during Create only
  std::span<const float> bias;     // [out] or empty
  Activation activation = Activation::kNone;
  Combine combine = Combine::kNone;  // behind the activation, with the [rows, out] tensor of Run
  Precision precision = Precision::kFp32;
  RowType src_type = RowType::kFp32;
  RowType dst_type = RowType::kFp32;  // of the other tensor, too
};

// Shapes:  src [rows, in], other and dst [rows, out]; row-major, dense. Rows of src are read up to a
//          multiple of RowBuckets::kFixedRows, which is at most kPaddingRows more.
// Threads: immutable after Create; Run may be called from several threads at once with different
//          buffers.
class Linear {
 public:
  // Errors: kInvalidArgument for sizes that do not fit one another, and for sums of int8 that could
  // leave 32 bits; kResourceExhausted; kInternal when oneDNN fails. REQUIRES: RequirePrecision.
  static absl::StatusOr<Linear> Create(const LinearOptions& options, const RowBuckets& buckets);

  Linear() = default;  // only to be assigned to

  // Copies share their weights, and this.
  const void* identity() const { return impl_.get(); }
  int64_t in() const;
  int64_t out() const;
  size_t weights_bytes() const;     // packed weights and bias
  size_t scratchpad_bytes() const;  // what Run's scratchpad must hold

  // Rows of src, other and dst are of the options' types; other is read only where the result is
  // combined with it, and may be src but not dst. Errors: kInternal; dst is then unspecified.
  absl::Status Run(const void* src, int64_t rows, const void* other, void* dst,
                   std::span<std::byte> scratchpad) const;

  // What runs: "vectors f32"; "tiles bf16" or "tiles u8·s8" on a CPU with matrix tiles, on others
  // "brgemm bf16" or "brgemm u8·s8".
  std::string Implementation() const;
  // What the kernels depend on, apart from the weights: equal kinds run the same code.
  std::string Kind() const;
  // Whether one row gets the same bits in every bucket and at every place in it.
  absl::StatusOr<bool> RowsAgree() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace encoderd::ops
