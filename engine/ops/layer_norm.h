// layer_norm.h — dst = activation((src - mean) / √(variance + eps) · weight + bias), per row.
//
// Source: torch.nn.LayerNorm (PyTorch 2.6): biased variance, eps inside the root. The mean is taken
//         first and the squares are of what is left, so that a large mean costs no digits.
// Bits:   a row is computed alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/ops/activation.h"

namespace encoderd::ops {

struct LayerNormOptions {
  std::string name;
  std::span<const float> weight;  // [width]
  std::span<const float> bias;    // [width]
  double eps = 1e-5;
  Activation activation = Activation::kNone;
};

// Shapes:  src, dst [rows, width], fp32, dense; dst may be src.
// Threads: immutable after Create; Run may be called from several threads at once with different
//          rows.
class LayerNorm {
 public:
  // Errors: kInvalidArgument for sizes that do not fit one another, kResourceExhausted.
  static absl::StatusOr<LayerNorm> Create(const LayerNormOptions& options);

  LayerNorm() = default;  // only to be assigned to

  size_t weights_bytes() const;
  void Run(const float* src, int64_t rows, float* dst) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace encoderd::ops
