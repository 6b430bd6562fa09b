#include "server/batching/batcher.h"

#include <pthread.h>

#include <algorithm>
#include <new>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/batching/reason.h"
#include "server/batching/scheduler.h"
#include "server/mutex.h"

namespace encoderd {
namespace {

using Ending = Scheduler::Ending;

// The slots at the front that belong to one call. REQUIRES: not empty.
std::span<Slot> FirstCall(std::span<Slot> slots) {
  size_t count = 1;
  while (count < slots.size() && slots[count].call == slots[0].call) ++count;
  return slots.first(count);
}

void SetAll(std::span<Slot> slots, const absl::Status& status) {
  for (Slot& slot : slots) slot.status = status;
}

// What a call hears that nobody waited for any more, unless it has been told something else.
absl::Status TooLate() {
  return absl::DeadlineExceededError("the deadline passed while the call ran");
}

absl::Status ShuttingDown() { return absl::UnavailableError("the server is shutting down"); }

class ThreadedBatcher : public Batcher {
 public:
  ThreadedBatcher(const BatcherOptions& options, Clock& clock, BatchObserver& observer)
      : workers_(options.workers), clock_(clock), observer_(observer), scheduler_(options) {}

  ~ThreadedBatcher() override { Stop(); }

  absl::Status StartThreads(const RunnerFactory& factory);

  absl::Status Submit(std::shared_ptr<Call> call) override;
  bool Cancel(const Call& call, absl::Status status) override;
  bool Drain(absl::Duration timeout) override;
  void Stop() override;
  BatcherSnapshot Snapshot() const override;

 private:
  void Work(size_t worker, Runner& runner);
  // Waits for work and takes it; empty when the batcher stops.
  std::vector<Slot> NextBatch(size_t worker);
  // True: there is work to start. False: the batcher stops.
  bool AwaitWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Runs the batch and says in the slots how it went.
  void RunBatch(Runner& runner, std::span<Slot> slots);
  absl::Status RunOnce(Runner& runner, std::span<Slot> slots, bool retry);
  bool Abandoned(std::span<const Slot> slots) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Tells the owners, then counts the calls as finished.
  void Tell(std::vector<Ending> endings) ABSL_LOCKS_EXCLUDED(mutex_);

  const int workers_;
  Clock& clock_;
  BatchObserver& observer_;

  mutable Mutex mutex_;
  CondVar work_;      // sequences wait, or the batcher stops
  CondVar finished_;  // unfinished_ has reached 0
  Scheduler scheduler_ ABSL_GUARDED_BY(mutex_);
  int64_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;  // accepted and not told their end
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex threads_mutex_;  // held while joining, so that every Stop returns after the last thread
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(threads_mutex_);
};

// ---- Calls in and out ---------------------------------------------------------------------------

absl::Status ThreadedBatcher::Submit(std::shared_ptr<Call> call) {
  MutexLock lock(mutex_);
  if (stopping_) return ShuttingDown();
  try {
    if (absl::Status status = scheduler_.Submit(std::move(call), clock_.Now()); !status.ok()) {
      return status;
    }
  } catch (const std::bad_alloc&) {
    return WithReason(absl::ResourceExhaustedError("no memory for a place in the queue"),
                      "OUT_OF_MEMORY");
  }
  ++unfinished_;
  work_.NotifyOne();  // that worker wakes the next, if it leaves work behind
  return absl::OkStatus();
}

bool ThreadedBatcher::Cancel(const Call& call, absl::Status status) {
  std::vector<Ending> endings;
  {
    MutexLock lock(mutex_);
    if (auto ending = scheduler_.End(call, std::move(status), clock_.Now())) {
      endings.push_back(*std::move(ending));
    }
  }
  const bool found = !endings.empty();
  Tell(std::move(endings));
  return found;
}

void ThreadedBatcher::Tell(std::vector<Ending> endings) {
  if (endings.empty()) return;
  const auto count = static_cast<int64_t>(endings.size());
  for (Ending& ending : endings) ending.call->Finish(std::move(ending.status), ending.timing);
  endings.clear();  // the last reference to a call may be this one: drop it without the lock too

  MutexLock lock(mutex_);
  unfinished_ -= count;
  if (unfinished_ == 0) finished_.NotifyAll();
}

// ---- Workers ------------------------------------------------------------------------------------

absl::Status ThreadedBatcher::StartThreads(const RunnerFactory& factory) {
  absl::Status status;  // the first error
  int unreported = workers_;
  CondVar reported;
  {
    MutexLock lock(threads_mutex_);
    for (size_t worker = 0; worker < static_cast<size_t>(workers_); ++worker) {
      threads_.emplace_back([&, worker] {
        pthread_setname_np(pthread_self(), absl::StrCat("worker-", worker).c_str());
        absl::StatusOr<std::unique_ptr<Runner>> runner = factory();
        const bool made = runner.ok();
        {
          MutexLock report(mutex_);
          status.Update(runner.status());
          if (--unreported == 0) reported.NotifyAll();
        }
        // From here on the locals of StartThreads may be gone.
        if (made) Work(worker, **runner);
      });
    }
  }
  MutexLock lock(mutex_);
  while (unreported > 0) reported.Wait(mutex_);
  return status;
}

void ThreadedBatcher::Work(size_t worker, Runner& runner) {
  while (true) {
    std::vector<Slot> slots = NextBatch(worker);
    if (slots.empty()) return;
    RunBatch(runner, slots);
    std::vector<Ending> endings;
    {
      MutexLock lock(mutex_);
      endings = scheduler_.EndBatch(worker, slots, clock_.Now());
    }
    Tell(std::move(endings));
  }
}

std::vector<Slot> ThreadedBatcher::NextBatch(size_t worker) {
  while (true) {
    Scheduler::Batch batch;
    {
      MutexLock lock(mutex_);
      if (!AwaitWork()) return {};
      batch = scheduler_.Take(worker, clock_.Now());
      // One wake-up for one worker, and this one passes it on while there is work.
      if (scheduler_.work_waits() && scheduler_.idle_workers() > 0) work_.NotifyOne();
    }
    Tell(std::move(batch.endings));
    if (!batch.slots.empty()) return std::move(batch.slots);
  }
}

bool ThreadedBatcher::AwaitWork() {
  while (!stopping_) {
    // Sleep until something waits, and then for as long as it may be held back.
    const absl::Time start = scheduler_.StartTime();
    if (start <= clock_.Now()) return true;
    clock_.WaitUntil(work_, mutex_, start);
  }
  return false;
}

void ThreadedBatcher::RunBatch(Runner& runner, std::span<Slot> slots) {
  absl::Status status = RunOnce(runner, slots, /*retry=*/false);
  if (status.ok()) return;
  if (absl::IsCancelled(status)) return SetAll(slots, TooLate());

  // One call may have brought the batch down: give each its chance without the others.
  for (std::span<Slot> rest = slots; !rest.empty();) {
    const std::span<Slot> own = FirstCall(rest);
    rest = rest.subspan(own.size());
    SetAll(own, absl::OkStatus());
    status = Abandoned(own) ? absl::CancelledError() : RunOnce(runner, own, /*retry=*/true);
    if (absl::IsCancelled(status)) {
      SetAll(own, TooLate());
    } else if (!status.ok()) {
      SetAll(own, absl::InternalError(absl::StrCat("the engine failed: ", status.message())));
    }
  }
}

absl::Status ThreadedBatcher::RunOnce(Runner& runner, std::span<Slot> slots, bool retry) {
  BatchObservation batch = {
      .sequences = static_cast<int64_t>(slots.size()), .tokens = TokensOf(slots), .retry = retry};
  {
    MutexLock lock(mutex_);
    batch.predicted = scheduler_.Predict(slots);
  }
  const absl::Time start = clock_.Now();
  const absl::Status status = runner.Run(slots, [&] { return Abandoned(slots); });
  batch.duration = clock_.Now() - start;
  batch.abandoned = absl::IsCancelled(status);
  batch.failed = !status.ok() && !batch.abandoned;
  if (status.ok()) {
    MutexLock lock(mutex_);
    scheduler_.Observe(slots, batch.duration);
  }
  observer_.OnBatch(batch);
  return status;
}

bool ThreadedBatcher::Abandoned(std::span<const Slot> slots) const {
  MutexLock lock(mutex_);
  return scheduler_.Abandoned(slots, clock_.Now());
}

// ---- The end ------------------------------------------------------------------------------------

bool ThreadedBatcher::Drain(absl::Duration timeout) {
  MutexLock lock(mutex_);
  scheduler_.Drain();
  work_.NotifyAll();  // nothing is held back any more
  const absl::Time deadline = clock_.Now() + timeout;
  while (unfinished_ > 0 && clock_.Now() < deadline) {
    clock_.WaitUntil(finished_, mutex_, deadline);
  }
  return unfinished_ == 0;
}

void ThreadedBatcher::Stop() {
  std::vector<Ending> endings;
  {
    MutexLock lock(mutex_);
    scheduler_.Drain();
    stopping_ = true;
    endings = scheduler_.EndAll(ShuttingDown(), clock_.Now());
    work_.NotifyAll();
  }
  Tell(std::move(endings));

  MutexLock lock(threads_mutex_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

BatcherSnapshot ThreadedBatcher::Snapshot() const {
  MutexLock lock(mutex_);
  BatcherSnapshot snapshot = scheduler_.Snapshot(clock_.Now());
  snapshot.calls_unfinished = unfinished_;
  return snapshot;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Batcher>> Batcher::Start(const BatcherOptions& options, Clock& clock,
                                                        BatchObserver& observer,
                                                        RunnerFactory factory) {
  auto batcher = std::make_unique<ThreadedBatcher>(options, clock, observer);
  if (absl::Status status = batcher->StartThreads(factory); !status.ok()) return status;
  return batcher;
}

}  // namespace encoderd
