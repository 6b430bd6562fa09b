// scheduler.h — the batcher without its threads: what is admitted, what a free worker runs next,
// and how each call ends.
//
// Role:    everything that batcher.cc decides, for it to lock around and to act on; a simulation
//          drives the same code. Applies policy.h to the queue, the running batches and the cost
//          model.
// Threads: none; the caller locks. Time is what the caller says it is, and never goes back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/batching/batcher.h"
#include "server/batching/call.h"
#include "server/batching/cost_model.h"
#include "server/batching/queue.h"

namespace encoderd {

class Scheduler {
 public:
  // The end of a call, to be told to its owner.
  struct Ending {
    std::shared_ptr<Call> call;
    absl::Status status;
    CallTiming timing;
  };

  struct Batch {
    std::vector<Slot> slots;      // empty: nothing to run
    std::vector<Ending> endings;  // of calls that will not be run (any more)
  };

  explicit Scheduler(const BatcherOptions& options);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // As Batcher::Submit. After std::bad_alloc nothing is kept, as after an error.
  absl::Status Submit(std::shared_ptr<Call> call, absl::Time now);

  // Forgets the call and says how it ended; nothing if it is not here.
  std::optional<Ending> End(const Call& call, absl::Status status, absl::Time now);
  std::vector<Ending> EndAll(const absl::Status& status, absl::Time now);

  // From now on calls are refused, and no batch is held back.
  void Drain() { draining_ = true; }

  // When a free worker should take a batch; InfiniteFuture when nothing waits.
  absl::Time StartTime() const;

  // The batch that a free worker runs from now on.
  Batch Take(size_t worker, absl::Time now);

  // Whether nobody waits for any of these any more.
  bool Abandoned(std::span<const Slot> slots, absl::Time now) const;
  bool IsFinished(const Call& call) const { return !calls_.contains(&call); }

  // What one worker needs for the slots, and what it did need.
  absl::Duration Predict(std::span<const Slot> slots) const;
  void Observe(std::span<const Slot> slots, absl::Duration actual);

  // The batch of this worker has ended; what each slot's status says holds for its call.
  std::vector<Ending> EndBatch(size_t worker, std::span<const Slot> slots, absl::Time now);

  bool work_waits() const { return queue_.sequences() > 0; }
  int idle_workers() const { return idle_workers_; }

  // calls_unfinished: without those whose end is still being told.
  BatcherSnapshot Snapshot(absl::Time now) const;

 private:
  // An accepted call that has not finished.
  struct Progress {
    std::shared_ptr<Call> call;
    size_t sequences_left = 0;  // not yet run
    std::optional<absl::Time> first_start;
    int64_t batches = 0;
    int64_t batch_tokens = 0;
  };
  struct WorkerState {
    std::optional<absl::Time> running_since;
    absl::Duration base;  // of the running batch, before the correction
    absl::Duration busy;  // of batches that have ended
  };

  // What the queue and the predictions say of a new call. `probe`: it is let in, though it looks
  // hopeless, for its time to be measured.
  absl::Status Admit(const CallInfo& info, absl::Time now, bool& probe);
  void Accept(std::shared_ptr<Call> call, bool probe);
  absl::Status CheckRoom(const CallInfo& info, absl::Duration wait) const;
  // How long the next call of this priority would wait for a worker.
  absl::Duration PredictedWait(Priority priority, absl::Time now) const;
  // What the call takes at the least, with so many cores for each of its sequences.
  absl::Duration LeastTimeOf(const CallInfo& info, int cores) const;
  bool MayProbe(absl::Time now) const;
  // The worker and the calls of the batch, which is not empty, have begun.
  void CountStart(size_t worker, const CallQueue::Batch& taken, absl::Time now);

  const BatcherOptions options_;
  CostModel model_;
  CallQueue queue_;
  std::unordered_map<const Call*, Progress> calls_;
  std::vector<WorkerState> workers_;
  int idle_workers_;  // that run no batch
  // When a call was first refused as hopeless since something was last measured or probed.
  std::optional<absl::Time> refused_since_;
  bool draining_ = false;
};

}  // namespace encoderd
