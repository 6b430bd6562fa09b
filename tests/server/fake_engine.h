// fake_engine.h — an engine without mathematics, for tests of the server.
//
// Every number of an answer is a simple function of the sequence's own input and of its place in
// the answer, so that a test can tell whose rows it got. The engine can be held, can fail and can
// give results that are not finite, by the ids it is sent.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/time/time.h"
#include "engine/engine.h"
#include "server/mutex.h"

namespace encoderd {

// Holds workers until it is opened.
class Latch {
 public:
  void Close();
  void Open();
  // Waits while it is closed.
  void Pass();
  // Waits until `count` workers wait here.
  void AwaitWaiting(int count);

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int waiting_ ABSL_GUARDED_BY(mutex_) = 0;
};

class FakeEngine : public Engine {
 public:
  // A sequence whose first id is one of these misbehaves.
  static constexpr int32_t kFailsBatch = 13;  // Run returns kInternal
  static constexpr int32_t kNonFinite = 14;   // the sequence's own status is kInternal

  FakeEngine();

  const EncoderSpec& spec() const override { return spec_; }
  const EngineInfo& info() const override { return info_; }
  absl::StatusOr<Answer> AllocateAnswer(const Plan& plan) const override;
  absl::StatusOr<std::unique_ptr<Worker>> CreateWorker() const override;
  absl::StatusOr<std::unique_ptr<Worker>> CreateLoneWorker() const override {
    return CreateWorker();
  }

  // The value at `row` and `column` of last_hidden_state of a sequence: depends on its id there.
  static float Value(int32_t id, int64_t row, int64_t column) {
    return static_cast<float>(id) * 100 + static_cast<float>(row) + static_cast<float>(column) / 8;
  }

  Latch& latch() const { return latch_; }
  // Holds AllocateAnswer.
  Latch& allocation_latch() const { return allocation_latch_; }
  int64_t sequences_run() const { return sequences_run_; }
  // What AllocateAnswer does from now on.
  enum class Memory {
    kPlenty,
    kExhausted,  // says that there is none
    kThrows,     // throws std::bad_alloc, as a container does
  };
  void SetMemory(Memory memory) { memory_ = memory; }

  // Every sequence's result is not finite from now on.
  void SetBroken() { broken_ = true; }

  // What a run adds to each second number of a row, and for how long it keeps its core busy for each
  // token.
  void SetError(float error) { error_ = error; }
  void SetWork(absl::Duration per_token) { work_ = per_token; }

  EncoderSpec& mutable_spec() { return spec_; }
  EngineInfo& mutable_info() { return info_; }

 private:
  friend class FakeWorker;

  EncoderSpec spec_;
  EngineInfo info_;
  mutable Latch latch_;
  mutable Latch allocation_latch_;
  mutable std::atomic<int64_t> sequences_run_ = 0;
  std::atomic<Memory> memory_ = Memory::kPlenty;
  std::atomic<bool> broken_ = false;
  float error_ = 0;
  absl::Duration work_;
};

}  // namespace encoderd
