// shadow.h — how far the served precision lies from fp32 on the sequences that callers send.
//
// Role:    beside the workers. Of all sequences that they have run, one in `rate` is copied; both
//          engines then give its last_hidden_state, and the largest 1 − cosine of its tokens goes
//          into a histogram. What a sequence's batch was does not matter: its bits are the same
//          when it runs alone.
// Spare:   a thread of its own runs the samples while a worker is idle, gives up before the next
//          block when none is any more (and begins anew later), and is of the kernel's class for
//          what may run only on cores that nobody else wants. Workers never wait for it: what finds
//          no room, or a lock that is taken, is dropped and counted.
// Privacy: a sample is kept in memory until it has been compared, and goes nowhere else.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/batching/clock.h"
#include "server/metrics.h"
#include "server/mutex.h"

namespace encoderd {

// A sequence with all that its spans point to.
class OwnedSequence {
 public:
  explicit OwnedSequence(const Sequence& sequence);
  OwnedSequence(const OwnedSequence&) = delete;
  OwnedSequence& operator=(const OwnedSequence&) = delete;

  const Sequence& sequence() const { return sequence_; }

  // Bytes that a copy takes.
  static size_t BytesOf(const Sequence& sequence);

 private:
  template <typename T>
  void Keep(std::span<T>& span);

  Sequence sequence_;
  std::deque<std::vector<std::byte>> kept_;
};

struct ShadowOptions {
  int64_t rate = 1;  // one sequence in so many
  int workers = 1;   // of the batcher's
  uint64_t seed = 0;
};

class Shadow {
 public:
  // Samples that may wait beside the one under way, and the bytes of the largest that is taken.
  static constexpr size_t kMaxWaiting = 4;
  static constexpr size_t kMaxBytes = size_t{8} << 20;

  // `served` and `reference` are the same model in two precisions; they, the metrics and the clock
  // must outlive the shadow. Errors: those of Engine::CreateWorker.
  static absl::StatusOr<std::unique_ptr<Shadow>> Start(const ShadowOptions& options,
                                                       const Engine& served,
                                                       const Engine& reference, Metrics& metrics,
                                                       Clock& clock);
  ~Shadow();
  Shadow(const Shadow&) = delete;
  Shadow& operator=(const Shadow&) = delete;

  // Around each batch of a worker, on its thread.
  void BatchBegins() { busy_.fetch_add(1, std::memory_order_relaxed); }
  void BatchEnds() { busy_.fetch_sub(1, std::memory_order_relaxed); }

  // The sequence has been run; copied if it is one of the sample. Never waits.
  void Offer(const Sequence& sequence);

 private:
  Shadow(const ShadowOptions& options, const Engine& served, const Engine& reference,
         Metrics& metrics, Clock& clock)
      : options_(options),
        served_(served),
        reference_(reference),
        metrics_(metrics),
        clock_(clock) {}

  bool IsSampled();
  bool WorkerIsIdle() const { return busy_.load(std::memory_order_relaxed) < options_.workers; }
  void Work();
  // Waits for a sample; null at the end.
  std::unique_ptr<OwnedSequence> Next();
  // Waits until a worker has nothing to run. False: it is the end.
  bool AwaitIdleWorker();
  // Errors: kCancelled when no worker is idle any more; those of the engines.
  absl::Status Compare(const Sequence& sequence);

  const ShadowOptions options_;
  const Engine& served_;
  const Engine& reference_;
  Metrics& metrics_;
  Clock& clock_;
  std::unique_ptr<Worker> served_worker_;
  std::unique_ptr<Worker> reference_worker_;

  std::atomic<int> busy_ = 0;        // workers with a batch
  std::atomic<uint64_t> count_ = 0;  // of sequences offered
  std::atomic<bool> stopping_ = false;
  Mutex mutex_;
  CondVar changed_;  // a sample has come, or the end
  std::deque<std::unique_ptr<OwnedSequence>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace encoderd
