#include "engine/steps.h"

#include <algorithm>

#include "engine/status_macros.h"

namespace encoderd {
namespace {

size_t RowsBytes(const EncoderSpec& spec) {
  int64_t widest = 0;
  for (const auto* steps : {&spec.input_steps, &spec.embedding_steps, &spec.logits,
                            &spec.classifier, &spec.pooler, &spec.projection}) {
    for (const Step& step : *steps) widest = std::max(widest, step.out);
  }
  return static_cast<size_t>(StepRunner::kRows * widest) * sizeof(float);
}

}  // namespace

int64_t StepRunner::ScratchBytes(const EncoderSpec& spec, const EncoderWeights& weights) {
  return static_cast<int64_t>(2 * RowsBytes(spec) + weights.scratchpad_bytes());
}

absl::StatusOr<StepRunner> StepRunner::Create(const EncoderSpec& spec,
                                              const EncoderWeights& weights) {
  StepRunner runner;
  for (Buffer& rows : runner.rows_) {
    ASSIGN_OR_RETURN(rows, Buffer::AllocateLasting(RowsBytes(spec), "rows of the heads"));
  }
  ASSIGN_OR_RETURN(runner.scratchpad_,
                   Buffer::AllocateLasting(weights.scratchpad_bytes(), "scratchpad"));
  return runner;
}

absl::StatusOr<float*> StepRunner::Run(const std::vector<StepWeights>& steps, const float* src,
                                       int64_t rows) {
  float* dst = nullptr;
  for (size_t i = 0; i < steps.size(); ++i) {
    dst = rows_[i % 2].floats().data();
    if (steps[i].norm.has_value()) {
      steps[i].norm->Run(src, rows, dst);
    } else {
      RETURN_IF_ERROR(steps[i].linear->Run(src, rows, /*other=*/nullptr, dst, scratchpad_.bytes()));
    }
    src = dst;
  }
  return dst;
}

}  // namespace encoderd
