// fakes.h — a call that remembers its end, an observer that remembers batches, and runners that a
// test holds and releases.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/batching/batcher.h"
#include "server/mutex.h"

namespace encoderd {

// Sequences that differ in nothing but their tokens.
inline std::vector<SequenceInfo> OfTokens(const std::vector<int64_t>& tokens) {
  std::vector<SequenceInfo> sequences;
  for (const int64_t count : tokens) sequences.push_back({.tokens = count});
  return sequences;
}

class FakeCall : public Call {
 public:
  explicit FakeCall(CallInfo info, std::string name = "call")
      : name_(std::move(name)), info_(std::move(info)) {}

  const CallInfo& info() const override { return info_; }

  void Finish(absl::Status status, const CallTiming& timing) override {
    if (on_finish) on_finish();
    MutexLock lock(mutex_);
    ++finishes_;
    status_ = std::move(status);
    timing_ = timing;
    changed_.NotifyAll();
  }

  const std::string& name() const { return name_; }

  // Waits for the end.
  absl::Status Await() {
    MutexLock lock(mutex_);
    while (finishes_ == 0) changed_.Wait(mutex_);
    return status_;
  }
  int finishes() {
    MutexLock lock(mutex_);
    return finishes_;
  }
  CallTiming timing() {
    MutexLock lock(mutex_);
    return timing_;
  }

  std::function<void()> on_finish;  // set before Submit

 private:
  const std::string name_;
  const CallInfo info_;
  Mutex mutex_;
  CondVar changed_;
  int finishes_ = 0;
  absl::Status status_ = absl::UnknownError("not finished");
  CallTiming timing_;
};

class FakeObserver : public BatchObserver {
 public:
  void OnBatch(const BatchObservation& batch) override {
    MutexLock lock(mutex_);
    batches_.push_back(batch);
  }
  std::vector<BatchObservation> batches() {
    MutexLock lock(mutex_);
    return batches_;
  }

 private:
  Mutex mutex_;
  std::vector<BatchObservation> batches_;
};

// What the runners of one batcher share: what has run, and whether it may go on.
class FakeEngine {
 public:
  using Result = std::function<absl::Status(std::span<Slot>)>;

  // A batch as "a0 a1 b0": name and index of each sequence.
  using Batches = std::vector<std::string>;

  // From now on every Run stops before its end, until Release.
  void Hold() {
    MutexLock lock(mutex_);
    held_ = true;
  }
  void Release() {
    MutexLock lock(mutex_);
    held_ = false;
    changed_.NotifyAll();
  }
  // Waits until so many Runs have begun since the start.
  void AwaitBegun(size_t runs) {
    MutexLock lock(mutex_);
    while (batches_.size() < runs) changed_.Wait(mutex_);
  }
  Batches batches() {
    MutexLock lock(mutex_);
    return batches_;
  }
  // From now on every Run asks at its end whether it is abandoned.
  void AskWhetherAbandoned() {
    MutexLock lock(mutex_);
    asks_ = true;
  }
  void set_result(Result result) {
    MutexLock lock(mutex_);
    result_ = std::move(result);
  }

  absl::Status Run(std::span<Slot> slots, absl::FunctionRef<bool()> abandoned) {
    std::string text;
    for (const Slot& slot : slots) {
      if (!text.empty()) text += ' ';
      text += static_cast<const FakeCall&>(*slot.call).name() + std::to_string(slot.sequence);
    }
    MutexLock lock(mutex_);
    batches_.push_back(std::move(text));
    changed_.NotifyAll();
    while (held_) changed_.Wait(mutex_);
    const absl::Status status = result_ ? result_(slots) : absl::OkStatus();
    return asks_ && abandoned() ? absl::CancelledError("abandoned") : status;
  }

  Batcher::RunnerFactory Factory() {
    return [this]() -> absl::StatusOr<std::unique_ptr<Runner>> {
      return std::make_unique<FakeRunner>(*this);
    };
  }

 private:
  class FakeRunner : public Runner {
   public:
    explicit FakeRunner(FakeEngine& engine) : engine_(engine) {}
    absl::Status Run(std::span<Slot> slots, absl::FunctionRef<bool()> abandoned) override {
      return engine_.Run(slots, abandoned);
    }

   private:
    FakeEngine& engine_;
  };

  Mutex mutex_;
  CondVar changed_;
  bool held_ = false;
  bool asks_ = false;
  Result result_;
  Batches batches_;
};

}  // namespace encoderd
