// engine_runner.h — lets the batcher's workers run calls on the engine.
//
// Role:  between the batcher, which knows calls by their token counts, and the engine, which knows
//        requests; the only file that knows both.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/batching/batcher.h"
#include "server/shadow.h"

namespace encoderd {

// A call that an EngineRunner can run. What it returns stays as it is from Submit until the call
// goes; workers write the rows of the answer that belong to their sequences.
class EngineCall : public Call {
 public:
  virtual const Request& request() const = 0;
  virtual const Plan& plan() const = 0;
  virtual Answer& answer() = 0;
  // BatchItem::hidden. Asked once in every run of the call's sequences.
  virtual std::span<float> hidden() { return {}; }
};

// What the sequences of a plan cost.
std::vector<SequenceInfo> SequencesOf(const EncoderSpec& spec, const Plan& plan);

// A slot's error is a sequence's own fault, of reason NON_FINITE_RESULT.
// REQUIRES: every call of a batch is an EngineCall.
class EngineRunner : public Runner {
 public:
  // `shadow`: told of every batch and offered its sequences; null = none.
  EngineRunner(std::unique_ptr<Worker> worker, Shadow* shadow)
      : worker_(std::move(worker)), shadow_(shadow) {}

  absl::Status Run(std::span<Slot> slots, absl::FunctionRef<bool()> abandoned) override;

 private:
  void OfferToShadow();

  std::unique_ptr<Worker> worker_;
  Shadow* const shadow_;
  std::vector<BatchItem> items_;  // of the running batch; kept for its memory
};

// Makes a worker's runner and runs a sequence of the largest batch through it, so that the first
// caller does not pay for memory and kernels. `engine` and `shadow` must outlive the runners.
// Errors: those of Engine::CreateWorker, Engine::AllocateAnswer and Worker::Run; kInvalidArgument
// when the sequence's results are not finite although the weights are, with the model's folder.
absl::StatusOr<std::unique_ptr<Runner>> MakeWarmRunner(const Engine& engine,
                                                       const std::string& model_dir,
                                                       Shadow* shadow = nullptr);

}  // namespace encoderd
