// batcher.h — makes batches of the sequences of waiting calls and has worker threads run them.
//
// Role:    between the service, which submits calls, and the engine, which a Runner hides. Sees
//          neither gRPC nor the engine. What goes into a batch is decided by policy.h.
//
//   ASSIGN_OR_RETURN(auto batcher, Batcher::Start(options, SteadyClock(), metrics, make_runner));
//   absl::Status status = batcher->Submit(call);  // OK: call->Finish will come, once
//   batcher->Cancel(*call, absl::CancelledError("the caller went"));
//   batcher->Drain(absl::Seconds(20));            // then destroy it
//
// The unit of the queue is the sequence: a call may be spread over several batches and workers, and
// a batch holds sequences of many calls. A free worker takes what is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/batching/clock.h"

namespace encoderd {

enum class Priority { kInteractive = 0, kBulk = 1 };

// What the batcher knows of a call.
struct CallInfo {
  std::vector<int64_t> tokens;  // of each sequence, at least 1 each; at least one sequence
  Priority priority = Priority::kInteractive;
  absl::Time arrival;                            // by the batcher's clock, as is `deadline`
  absl::Time deadline = absl::InfiniteFuture();  // not started after this
};

struct CallTiming {
  absl::Duration queue;      // arrival to the start of the first batch; to the end if none started
  absl::Duration compute;    // start of the first batch to the end of the last
  int64_t batches = 0;       // that the call was spread over
  int64_t batch_tokens = 0;  // of the largest of them
};

// One call, shared between its owner and the batcher.
class Call {
 public:
  virtual ~Call() = default;

  // Constant from Submit on.
  virtual const CallInfo& info() const = 0;

  // The end of an accepted call: comes exactly once, from any thread, never under the batcher's
  // lock, and possibly before Submit has returned. It may call back into the batcher except for
  // Drain and Stop, and must not block: a worker waits for it.
  // After an error a worker may still be writing into what the call owns, until the last reference
  // to the call is gone; after OK none is.
  //   OK                 every sequence has run
  //   kInternal          the engine failed for this call, alone too
  //   a slot's own error what the runner said of one of the call's sequences (the first such)
  //   kDeadlineExceeded  the deadline passed while sequences were waiting
  //   kUnavailable       the batcher stopped first
  //   Cancel's status
  virtual void Finish(absl::Status status, const CallTiming& timing) = 0;
};

// One sequence of a batch.
struct Slot {
  std::shared_ptr<Call> call;
  size_t sequence = 0;  // index into call->info().tokens
  absl::Status status;  // set by Run: an error ends this slot's call and no other
};

// A thread's means to run batches: made, used and destroyed on that thread.
class Runner {
 public:
  virtual ~Runner() = default;

  // Runs all sequences of the batch. An error means that the batch as a whole failed: each of its
  // calls is then run again alone, once.
  virtual absl::Status Run(std::span<Slot> slots) = 0;
};

// What was run: one per Run of a runner.
struct BatchObservation {
  int64_t sequences = 0;
  int64_t tokens = 0;
  absl::Duration duration;
  bool failed = false;  // the whole batch
  bool retry = false;   // one call of a failed batch, alone
};

// Told of every batch, on the worker's thread, without a lock held. Thread-safe.
class BatchObserver {
 public:
  virtual ~BatchObserver() = default;
  virtual void OnBatch(const BatchObservation& batch) = 0;
};

struct WorkerSnapshot {
  std::optional<absl::Time> running_since;  // start of the running batch, absent when idle
  absl::Duration busy;                      // since the start, including the running batch
};

// One consistent look at the batcher.
struct BatcherSnapshot {
  int64_t calls_waiting = 0;      // calls with at least one sequence that has not started
  int64_t sequences_waiting = 0;  // sequences that have not started
  int64_t tokens_waiting = 0;
  int64_t calls_unfinished = 0;  // accepted and not finished
  // How long a bulk call submitted now would wait, by the rate of the latest batches; zero until a
  // first batch has been measured. What a refused caller should be told to wait.
  absl::Duration predicted_wait;
  std::vector<WorkerSnapshot> workers;
};

struct BatcherOptions {
  int workers = 1;
  int64_t max_batch_tokens = 512;  // a longer sequence runs alone
  // How long a free worker may hold back a batch that is not full. Zero: it never does.
  absl::Duration max_batch_wait = absl::ZeroDuration();
  int64_t max_queue_requests = 1024;  // calls with a sequence that has not started
  int64_t max_queue_tokens = 131072;  // tokens not started; a call with more than this never fits
  absl::Duration max_queue_time = absl::Seconds(5);  // predicted
};

// Threads:    every method may be called from any thread; Drain and Stop not from Finish or Run.
// Invariants: 1. every accepted call gets Finish exactly once;
//             2. the queue never holds more than max_queue_requests calls or max_queue_tokens
//                tokens;
//             3. a sequence of a call that has finished never enters a batch.
// Bound:      each batch takes the oldest sequence of the line that leads it, and bulk leads at
//             least one of kBulkTurn batches (policy.h) while it waits. A sequence with n others
//             ahead of it in its line therefore starts within (n + 1) · kBulkTurn batches.
// Cost:       Submit and Cancel: linear in the call's sequences; a batch: linear in its sequences
// and
//             those it passed over (policy.h).
class Batcher {
 public:
  // Makes a worker's runner, on the worker's thread.
  using RunnerFactory = std::function<absl::StatusOr<std::unique_ptr<Runner>>()>;

  // Starts the threads and waits until each has its runner. `clock` and `observer` must outlive the
  // batcher. Errors: the first runner's that could not be made.
  static absl::StatusOr<std::unique_ptr<Batcher>> Start(const BatcherOptions& options, Clock& clock,
                                                        BatchObserver& observer,
                                                        RunnerFactory factory);
  virtual ~Batcher() = default;  // stops

  // Queues all sequences of the call, or none. On error nothing is kept and Finish will not come:
  //   kInvalidArgument    no sequences, or one without tokens
  //   kUnavailable        draining or stopped
  //   kDeadlineExceeded   the deadline has passed
  //   kResourceExhausted  a queue limit; the message says which, the limit and what was found
  // REQUIRES: a call is submitted once.
  virtual absl::Status Submit(std::shared_ptr<Call> call) = 0;

  // Ends an accepted call with `status` (not OK) before this returns, and takes its waiting
  // sequences out of the queue; running ones run on and are ignored. For callers who went and for
  // alarms of deadlines. False: the call is not here (never accepted, or finished already).
  virtual bool Cancel(const Call& call, absl::Status status) = 0;

  // Refuses new calls from now on and waits until every accepted one has finished, at most
  // `timeout`. True: none is left. The others stay queued until Stop.
  virtual bool Drain(absl::Duration timeout) = 0;

  // Refuses new calls, ends every unfinished one with kUnavailable, waits for running batches and
  // ends the threads. Idempotent.
  virtual void Stop() = 0;

  virtual BatcherSnapshot Snapshot() const = 0;
};

}  // namespace encoderd
