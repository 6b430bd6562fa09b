// sample_batch.h — a batch of made-up sequences, for workers to warm up with and to be timed by.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "server/batching/cost_model.h"

namespace encoderd {

// Sequences of zeros, which every model has to take.
class SampleBatch {
 public:
  struct Shape {
    int64_t sequences = 1;
    int64_t tokens = 1;  // of each
    // Of the model's blocks, the first so many run; all of them: the last hidden state is asked
    // for, else the hidden states behind them.
    int64_t blocks = 0;
  };

  // `engine` must outlive the batch. Errors: kInternal when the shape is not one that the engine
  // takes.
  static absl::StatusOr<std::unique_ptr<SampleBatch>> Create(const Engine& engine,
                                                             const Shape& shape);
  SampleBatch(const SampleBatch&) = delete;
  SampleBatch& operator=(const SampleBatch&) = delete;

  // Runs it, and says for how long that kept the thread's core busy: what else ran there meanwhile
  // does not count. Into an answer that nobody has touched, as those of calls are.
  // Errors: those of Engine::AllocateAnswer and Worker::Run.
  absl::StatusOr<absl::Duration> Run(Worker& worker);

  // What the latest run said of the first sequence with a fault, if any.
  absl::Status fault() const;

  const Work& work() const { return work_; }

 private:
  explicit SampleBatch(const Engine& engine) : engine_(engine) {}

  const Engine& engine_;
  std::vector<int32_t> ids_;
  std::vector<int64_t> vectors_shape_;
  std::vector<std::byte> vectors_;
  Request request_;
  Plan plan_;
  Work work_;
  std::vector<BatchItem> items_;
};

}  // namespace encoderd
