// linear.h — dst = activation(src · Wᵀ + bias), to which a tensor is added or with which one is
// multiplied: the operation that takes nearly all the time.
//
// Role:   called by the encoder's forward pass; knows nothing of layers or families.
// Source: torch.nn.Linear (PyTorch 2.6): W is [out, in]. Activations: the eltwise post-ops of
//         oneDNN 3.7; gelu is the erf form. The
//         other tensor comes in by a binary post-op, cheaper than `sum`, which would need a buffer
//         of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/activation.h"
#include "engine/ops/row_buckets.h"
#include "engine/precision.h"

namespace encoderd::ops {

// What is done with the other tensor of Run, element by element: nothing, there is none; added, as
// residuals are; multiplied, as the two halves of a gated FFN are.
enum class Combine { kNone, kAdd, kMultiply };

struct LinearOptions {
  std::string name;  // of the weight, for messages
  int64_t in = 0;
  int64_t out = 0;
  std::span<const float> weights;  // [out, in], read during Create only
  std::span<const float> bias;     // [out] or empty
  Activation activation = Activation::kNone;
  Combine combine = Combine::kNone;  // behind the activation, with the [rows, out] tensor of Run
  Precision precision = Precision::kFp32;
};

// Shapes:  src [rows, in], other and dst [rows, out]; fp32, row-major, dense. The last chunk is
//          rounded up, so what lies behind the last row is read and written too: each has `rows`
//          rounded up to RowBuckets::kFixedRows rows, which is at most kPaddingRows more.
// Threads: immutable after Create; Run may be called from several threads at once with different
//          buffers.
class Linear {
 public:
  // Packs the weights into the layout that the largest bucket asks for and builds one primitive per
  // bucket on it. Errors: kInvalidArgument for sizes that do not fit one another; kInternal when
  // oneDNN fails or, on AVX-512, chooses an implementation that is not one of its brgemm kernels.
  static absl::StatusOr<Linear> Create(const LinearOptions& options, const RowBuckets& buckets);

  Linear() = default;  // only to be assigned to

  // Copies share their weights, and this.
  const void* identity() const { return impl_.get(); }
  int64_t in() const;
  int64_t out() const;
  size_t weights_bytes() const;     // packed weights and bias
  size_t scratchpad_bytes() const;  // what Run's scratchpad must hold

  // other is read only where the result is combined with it; it may be src but not dst. Errors:
  // kInternal; dst is then unspecified.
  absl::Status Run(const float* src, int64_t rows, const float* other, float* dst,
                   std::span<std::byte> scratchpad) const;

  // What the kernels depend on, apart from the weights: equal kinds run the same code.
  std::string Kind() const;
  // Whether one row gets the same bits in every bucket and at every place in it.
  absl::StatusOr<bool> RowsAgree() const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace encoderd::ops
