#include "server/sample_batch.h"

#include <time.h>

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "engine/status_macros.h"
#include "engine/validation.h"
#include "server/engine_runner.h"

namespace encoderd {
namespace {

// Time that this thread has had a core.
absl::Duration ThreadTime() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return absl::DurationFromTimespec(time);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleBatch>> SampleBatch::Create(const Engine& engine,
                                                                 const Shape& shape) {
  const EncoderSpec& spec = engine.spec();
  std::unique_ptr<SampleBatch> batch(new SampleBatch(engine));
  batch->request_.sequences.resize(static_cast<size_t>(shape.sequences));
  if (spec.input == InputKind::kTokenIds) {
    batch->ids_.resize(static_cast<size_t>(shape.tokens));
  } else {
    batch->vectors_shape_ = {shape.tokens, spec.input_dim};
    batch->vectors_.resize(static_cast<size_t>(shape.tokens * spec.input_dim) * sizeof(float));
  }
  for (Sequence& sequence : batch->request_.sequences) {
    if (spec.input == InputKind::kTokenIds) {
      sequence.input_ids = batch->ids_;
    } else {
      sequence.inputs_embeds = InputTensor{.shape = batch->vectors_shape_, .data = batch->vectors_};
    }
  }
  if (shape.blocks == spec.num_layers) {
    batch->request_.outputs.last_hidden_state = true;
  } else {
    batch->request_.outputs.hidden_states = {static_cast<int32_t>(shape.blocks)};
  }
  auto checked =
      Validate(spec, {.max_sequence_tokens = engine.info().max_sequence_tokens}, batch->request_);
  if (const auto* faults = std::get_if<Violations>(&checked)) {
    return absl::InternalError(absl::StrCat("a batch of made-up sequences is not valid: ",
                                            faults->listed.front().description));
  }
  batch->plan_ = std::get<Plan>(std::move(checked));
  for (const SequenceInfo& sequence : SequencesOf(spec, batch->plan_)) {
    batch->work_ += WorkOf(sequence);
  }
  return batch;
}

absl::StatusOr<absl::Duration> SampleBatch::Run(Worker& worker) {
  ASSIGN_OR_RETURN(Answer answer, engine_.AllocateAnswer(plan_));
  items_.clear();
  for (size_t i = 0; i < request_.sequences.size(); ++i) {
    items_.push_back({.request = &request_, .plan = &plan_, .sequence = i, .answer = &answer});
  }
  const absl::Duration start = ThreadTime();
  RETURN_IF_ERROR(worker.Run(items_, NeverAbandoned));
  return ThreadTime() - start;
}

absl::Status SampleBatch::fault() const {
  for (const BatchItem& item : items_) {
    if (!item.status.ok()) return item.status;
  }
  return absl::OkStatus();
}

}  // namespace encoderd
