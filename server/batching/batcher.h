// batcher.h — makes batches of the sequences of waiting calls and has worker threads run them.
//
// Role:    between the service, which submits calls, and the engine, which a Runner hides. Sees
//          neither gRPC nor the engine. What is decided is in scheduler.h, by the rules of
//          policy.h; here are the threads.
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

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/batching/call.h"
#include "server/batching/clock.h"
#include "server/batching/cost_model.h"

namespace encoderd {

// A thread's means to run batches: made, used and destroyed on that thread.
class Runner {
 public:
  virtual ~Runner() = default;

  // Runs all sequences of the batch. `abandoned` is to be asked now and then, on this thread:
  // whether nobody waits for any of them any more; kCancelled then says that the rest was not run.
  // Another error means that the batch as a whole failed: each of its calls is then run again
  // alone, once.
  virtual absl::Status Run(std::span<Slot> slots, absl::FunctionRef<bool()> abandoned) = 0;
};

// What was run: one per Run of a runner.
struct BatchObservation {
  int64_t sequences = 0;
  int64_t tokens = 0;
  absl::Duration duration;
  absl::Duration predicted;  // of the duration, when it began; zero without a cost model
  bool failed = false;       // the whole batch
  bool retry = false;        // one call of a failed batch, alone
  bool abandoned = false;    // not run to its end, because nobody waited any more
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
  // How long a bulk call submitted now would wait, as predicted. What a refused caller should be
  // told to wait.
  absl::Duration predicted_wait;
  CostModel cost;
  int64_t max_batch_tokens = 0;
  std::vector<WorkerSnapshot> workers;
};

struct BatcherOptions {
  int workers = 1;
  int64_t max_batch_tokens = 512;  // a longer sequence runs alone
  CostCoefficients cost;           // all zero: nothing is predicted
  // Whether calls are refused and given up that are predicted to end after their deadline.
  bool predict_deadlines = true;
  // How long a free worker may hold back a batch that is not full. Zero: it never does.
  absl::Duration max_batch_wait = absl::ZeroDuration();
  int64_t max_queue_requests = 1024;  // calls with a sequence that has not started
  int64_t max_queue_tokens = 131072;  // tokens not started; a call with more than this never fits
  absl::Duration max_queue_time = absl::Seconds(5);  // predicted
};

// Threads:    every method may be called from any thread; Drain and Stop not from Finish or Run.
// Invariants: 1. every accepted call gets Finish exactly once;
//             2. the queue never holds more than max_queue_requests calls or max_queue_tokens
//                tokens, and the continuations of calls that it has accepted;
//             3. a sequence of a call that has finished never enters a batch.
// Bound:      long: longer than max_batch_tokens, and therefore alone in its batch; short: every
//             other. Each batch takes the oldest short or the oldest long sequence of the line that
//             leads it; interactive leads at least kBulkTurn - 1 of kBulkTurn batches, bulk at
//             least one, while both wait (policy.h). Of the batches that a line leads while a short
//             sequence waits in it, no two in a row have a long one. So a short sequence with n
//             short ones ahead of it starts within 2 · (n + 1) batches of its line. A long one with
//             n older ones of any length ahead of it, m of them long, starts within n + m + 2: a
//             younger short one may lead after each of the m and after a long one before them.
// Cost:       Submit and Cancel: linear in the call's sequences. A batch: linear in its sequences,
//             in those it passed over (policy.h) and in the calls it ended.
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
  //   kDeadlineExceeded   the deadline has passed, or an idle server could not meet it
  //   kResourceExhausted  a queue limit (reason.h: QUEUE_FULL), or a deadline that only a shorter
  //                       queue could meet (DEADLINE_UNREACHABLE); the message says which, the
  //                       limit and what was found. Or no memory for its place (OUT_OF_MEMORY)
  // A continuation (call.h) is refused only when the deadline has passed, after Stop, or for want
  // of memory.
  // REQUIRES: a call is submitted once.
  virtual absl::Status Submit(std::shared_ptr<Call> call) = 0;

  // Ends an accepted call with `status` (not OK) before this returns, and takes its waiting
  // sequences out of the queue; running ones are ignored, and stop where nobody else waits for
  // their batch. For callers who went and for alarms of deadlines. False: the call is not here
  // (never accepted, or finished already).
  virtual bool Cancel(const Call& call, absl::Status status) = 0;

  // Refuses new calls from now on and waits until every accepted one has finished, at most
  // `timeout`. True: none is left; continuations may still come. The others stay queued until Stop.
  virtual bool Drain(absl::Duration timeout) = 0;

  // Refuses new calls, ends every unfinished one with kUnavailable, waits for running batches and
  // ends the threads. Idempotent.
  virtual void Stop() = 0;

  virtual BatcherSnapshot Snapshot() const = 0;
};

}  // namespace encoderd
