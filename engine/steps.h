// steps.h — runs the stacks of steps in front of the blocks and behind them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/spec.h"
#include "engine/ops/row_buckets.h"
#include "engine/tensor/buffer.h"
#include "engine/weights.h"

namespace encoderd {

class StepRunner {
 public:
  // Rows at a time: the widest step is the vocabulary, and 64 rows of it are 8 MB for BERT's.
  static constexpr int64_t kRows = 64;
  static_assert(kRows % ops::RowBuckets::kFixedRows == 0, "rows are read in whole blocks");

  // Errors: kResourceExhausted.
  static absl::StatusOr<StepRunner> Create(const EncoderSpec& spec, const EncoderWeights& weights);
  static int64_t ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights);

  // Runs src [rows, width] through the steps. The result lies in scratch until the next call; src
  // is readable for `rows` rounded up to kRows rows. REQUIRES: rows ≤ kRows, and there is a step.
  absl::StatusOr<float*> Run(const std::vector<StepWeights>& steps, const float* src, int64_t rows);

 private:
  StepRunner() = default;

  // [kRows, widest step]: of the step that is read, and of the one that is written.
  Buffer rows_[2];
  Buffer scratchpad_;
};

}  // namespace encoderd
