// answer_writer.h — writes what a batch's items asked for, as the pass gets to it.
//
// Role:   called by the forward pass with the hidden rows of one sequence at a time. Where a result
//         is not finite, the item's status says so.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/model/spec.h"
#include "engine/outputs.h"
#include "engine/steps.h"
#include "engine/tensor/buffer.h"
#include "engine/weights.h"

namespace encoderd {

class AnswerWriter {
 public:
  // The spec and the weights must outlive the writer. Errors: kResourceExhausted.
  static absl::StatusOr<AnswerWriter> Create(const EncoderSpec& spec,
                                             const EncoderWeights& weights);
  static int64_t ScratchBytes(const EncoderSpec& spec);

  // Sets the item's status, unless it has failed before: `output` is not finite.
  static void Fail(BatchItem& item, std::string_view output);

  // Hidden state `layer` has been computed: writes it, what is pooled from it, and the rows that a
  // later part starts from, as far as the item asks for them.
  void WriteHiddenState(BatchItem& item, const HiddenRows& hidden, int64_t layer);

  // The last hidden state, behind the final norm: writes it, and what the heads make of it. `steps`
  // is scratch. Errors: kInternal when a kernel fails.
  absl::Status WriteFinal(BatchItem& item, const HiddenRows& hidden, StepRunner& steps);

 private:
  AnswerWriter(const EncoderSpec& spec, const EncoderWeights& weights)
      : spec_(&spec), weights_(&weights) {}

  void WriteRowsOfLayer(BatchItem& item, const HiddenRows& hidden, int64_t layer);
  void WritePooledVectors(BatchItem& item, const HiddenRows& hidden, size_t output);
  absl::Status WriteThroughSteps(BatchItem& item, const HiddenRows& hidden, size_t output,
                                 StepRunner& steps);
  absl::Status WriteTokenLogits(BatchItem& item, const HiddenRows& hidden, StepRunner& steps);
  absl::Status WriteSequenceLogits(BatchItem& item, const HiddenRows& hidden, StepRunner& steps);
  std::span<const Span> RangesOf(const BatchItem& item);

  const EncoderSpec* spec_;
  const EncoderWeights* weights_;
  Buffer pooled_;  // [StepRunner::kRows, widest hidden state]
  Span whole_;     // what RangesOf points to when a sequence has no spans
};

}  // namespace encoderd
