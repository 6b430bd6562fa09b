// layer_norm.h — dst = activation((src - mean) / √(variance + eps) · weight + bias), per row.
//
// Source: torch.nn.LayerNorm (PyTorch 2.6): biased variance, eps inside the root; oneDNN 3.7
//         layer_normalization with scale and shift.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/ops/activation.h"
#include "engine/ops/row_buckets.h"

namespace encoderd::ops {

struct LayerNormOptions {
  std::string name;
  std::span<const float> weight;  // [width]
  std::span<const float> bias;    // [width]
  double eps = 1e-5;
  Activation activation = Activation::kNone;
};

// Shapes:  src, dst [rows, width], fp32, dense, each with `rows` rounded up to
//          RowBuckets::kFixedRows rows (see linear.h); dst may be src.
// Threads: immutable after Create; Run may be called from several threads at once with different
//          buffers.
class LayerNorm {
 public:
  static absl::StatusOr<LayerNorm> Create(const LayerNormOptions& options,
                                          const RowBuckets& buckets);

  LayerNorm() = default;  // only to be assigned to

  size_t weights_bytes() const;
  size_t scratchpad_bytes() const;
  absl::Status Run(const float* src, int64_t rows, float* dst,
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
