#include "server/batching/batcher.h"

#include <pthread.h>

#include <algorithm>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/batching/policy.h"
#include "server/batching/queue.h"
#include "server/mutex.h"

namespace encoderd {
namespace {

// How much one batch leaves of the weight of those before it in the measured rate: the latest ten
// or so count.
constexpr double kRateDecay = 0.9;

// The end of a call, to be told without the lock.
struct Ending {
  std::shared_ptr<Call> call;
  absl::Status status;
  CallTiming timing;
};

// The slots at the front that belong to one call. REQUIRES: not empty.
std::span<Slot> FirstCall(std::span<Slot> slots) {
  size_t count = 1;
  while (count < slots.size() && slots[count].call == slots[0].call) ++count;
  return slots.first(count);
}

int64_t Tokens(std::span<const Slot> slots) {
  int64_t tokens = 0;
  for (const Slot& slot : slots) tokens += slot.call->info().tokens[slot.sequence];
  return tokens;
}

class ThreadedBatcher : public Batcher {
 public:
  ThreadedBatcher(const BatcherOptions& options, Clock& clock, BatchObserver& observer)
      : options_(options),
        clock_(clock),
        observer_(observer),
        workers_(static_cast<size_t>(options.workers)),
        idle_workers_(options.workers) {}

  ~ThreadedBatcher() override { Stop(); }

  absl::Status StartThreads(const RunnerFactory& factory);

  absl::Status Submit(std::shared_ptr<Call> call) override;
  bool Cancel(const Call& call, absl::Status status) override;
  bool Drain(absl::Duration timeout) override;
  void Stop() override;
  BatcherSnapshot Snapshot() const override;

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
    absl::Duration busy;  // of batches that have ended
  };

  void Work(size_t worker, Runner& runner);
  // Waits for work and takes it; empty when the batcher stops.
  std::vector<Slot> NextBatch(size_t worker);
  // True: there is work to start. False: the batcher stops.
  bool AwaitWork() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes the next batch for the worker; empty if all that waited had expired.
  std::vector<Slot> TakeBatch(size_t worker, std::vector<Ending>& expired)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunBatch(Runner& runner, std::span<Slot> slots);
  absl::Status RunOnce(Runner& runner, std::span<Slot> slots, bool retry);
  void EndBatch(size_t worker, std::span<Slot> slots);

  absl::Status CheckRoom(const CallInfo& info) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Duration PredictedWait(Priority priority) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsFinished(const Call& call) const;
  // Forgets the call and says how it ended; nothing if it has ended already.
  std::optional<Ending> End(const Call& call, absl::Status status)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tells the owners, then counts the calls as finished.
  void Tell(std::vector<Ending> endings) ABSL_LOCKS_EXCLUDED(mutex_);

  const BatcherOptions options_;
  Clock& clock_;
  BatchObserver& observer_;

  mutable Mutex mutex_;
  CondVar work_;      // sequences wait, or the batcher stops
  CondVar finished_;  // unfinished_ has reached 0
  CallQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<const Call*, Progress> calls_ ABSL_GUARDED_BY(mutex_);
  int64_t unfinished_ ABSL_GUARDED_BY(mutex_) = 0;  // calls_ and those being told
  std::vector<WorkerState> workers_ ABSL_GUARDED_BY(mutex_);
  int idle_workers_ ABSL_GUARDED_BY(mutex_);  // that run no batch
  double measured_tokens_ ABSL_GUARDED_BY(mutex_) = 0;
  double measured_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  Mutex threads_mutex_;  // held while joining, so that every Stop returns after the last thread
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(threads_mutex_);
};

// ---- Calls in and out ---------------------------------------------------------------------------

absl::Status ThreadedBatcher::Submit(std::shared_ptr<Call> call) {
  const CallInfo& info = call->info();
  if (info.tokens.empty()) return absl::InvalidArgumentError("a call has no sequences");
  if (std::ranges::any_of(info.tokens, [](int64_t tokens) { return tokens < 1; })) {
    return absl::InvalidArgumentError("a sequence has no tokens");
  }

  MutexLock lock(mutex_);
  if (draining_) return absl::UnavailableError("the server is shutting down");
  if (const absl::Time now = clock_.Now(); info.deadline <= now) {
    return absl::DeadlineExceededError(absl::StrCat(
        "the deadline passed ", absl::FormatDuration(now - info.deadline), " before the call"));
  }
  if (absl::Status status = CheckRoom(info); !status.ok()) return status;

  calls_[call.get()] = {.call = call, .sequences_left = info.tokens.size()};
  ++unfinished_;
  queue_.Add(std::move(call));
  work_.NotifyOne();  // that worker wakes the next, if it leaves work behind
  return absl::OkStatus();
}

absl::Status ThreadedBatcher::CheckRoom(const CallInfo& info) const {
  if (queue_.calls() >= options_.max_queue_requests) {
    return absl::ResourceExhaustedError(absl::StrCat("the queue is full: ", queue_.calls(),
                                                     " calls wait, max_queue_requests is ",
                                                     options_.max_queue_requests));
  }
  int64_t tokens = 0;
  for (int64_t sequence : info.tokens) tokens += sequence;
  if (tokens > options_.max_queue_tokens - queue_.tokens()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: the call has ", tokens, " tokens, ", queue_.tokens(),
                     " wait, max_queue_tokens is ", options_.max_queue_tokens));
  }
  if (const absl::Duration wait = PredictedWait(info.priority); wait > options_.max_queue_time) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full: the call would wait ", absl::FormatDuration(wait),
                     ", max_queue_time is ", absl::FormatDuration(options_.max_queue_time)));
  }
  return absl::OkStatus();
}

absl::Duration ThreadedBatcher::PredictedWait(Priority priority) const {
  if (measured_tokens_ <= 0) return absl::ZeroDuration();
  const double seconds_per_token = measured_seconds_ / measured_tokens_ / options_.workers;
  return absl::Seconds(static_cast<double>(queue_.TokensAhead(priority)) * seconds_per_token);
}

bool ThreadedBatcher::Cancel(const Call& call, absl::Status status) {
  std::vector<Ending> endings;
  {
    MutexLock lock(mutex_);
    if (auto ending = End(call, std::move(status))) endings.push_back(*std::move(ending));
  }
  const bool found = !endings.empty();
  Tell(std::move(endings));
  return found;
}

std::optional<Ending> ThreadedBatcher::End(const Call& call, absl::Status status) {
  const auto found = calls_.find(&call);
  if (found == calls_.end()) return std::nullopt;
  Progress progress = std::move(found->second);
  calls_.erase(found);
  queue_.Remove(call);

  const absl::Time now = clock_.Now();
  const absl::Time first_start = progress.first_start.value_or(now);
  const CallTiming timing = {.queue = first_start - call.info().arrival,
                             .compute = now - first_start,
                             .batches = progress.batches,
                             .batch_tokens = progress.batch_tokens};
  return Ending{std::move(progress.call), std::move(status), timing};
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

bool ThreadedBatcher::IsFinished(const Call& call) const {
  MutexLock lock(mutex_);
  return !calls_.contains(&call);
}

// ---- Workers ------------------------------------------------------------------------------------

absl::Status ThreadedBatcher::StartThreads(const RunnerFactory& factory) {
  absl::Status status;  // the first error
  int unreported = options_.workers;
  CondVar reported;
  {
    MutexLock lock(threads_mutex_);
    for (size_t worker = 0; worker < static_cast<size_t>(options_.workers); ++worker) {
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
    EndBatch(worker, slots);
  }
}

std::vector<Slot> ThreadedBatcher::NextBatch(size_t worker) {
  while (true) {
    std::vector<Ending> expired;
    std::vector<Slot> slots;
    {
      MutexLock lock(mutex_);
      if (!AwaitWork()) return {};
      slots = TakeBatch(worker, expired);
    }
    Tell(std::move(expired));
    if (!slots.empty()) return slots;
  }
}

bool ThreadedBatcher::AwaitWork() {
  while (!stopping_) {
    // Sleep until something waits, and then for as long as it may be held back.
    absl::Time start = absl::InfiniteFuture();
    if (queue_.sequences() > 0) {
      start = draining_ ? absl::InfinitePast()
                        : StartTime(queue_.tokens(), queue_.OldestArrival(),
                                    options_.max_batch_tokens, options_.max_batch_wait);
    }
    if (start <= clock_.Now()) return true;
    clock_.WaitUntil(work_, mutex_, start);
  }
  return false;
}

std::vector<Slot> ThreadedBatcher::TakeBatch(size_t worker, std::vector<Ending>& expired) {
  const absl::Time now = clock_.Now();
  CallQueue::Batch batch = queue_.Take(now, options_.max_batch_tokens, idle_workers_);
  for (const auto& call : batch.expired) {
    auto ending = End(*call, absl::DeadlineExceededError("the deadline passed in the queue"));
    if (ending) expired.push_back(*std::move(ending));
  }
  if (batch.slots.empty()) return {};

  --idle_workers_;
  workers_[worker].running_since = now;
  for (std::span<Slot> rest = batch.slots; !rest.empty();) {
    const std::span<Slot> own = FirstCall(rest);
    rest = rest.subspan(own.size());
    Progress& progress = calls_.at(own.front().call.get());
    if (!progress.first_start) progress.first_start = now;
    ++progress.batches;
    progress.batch_tokens = std::max(progress.batch_tokens, batch.tokens);
  }

  // One wake-up for one worker, and this one passes it on while there is work.
  if (queue_.sequences() > 0 && idle_workers_ > 0) work_.NotifyOne();
  return std::move(batch.slots);
}

void ThreadedBatcher::RunBatch(Runner& runner, std::span<Slot> slots) {
  if (RunOnce(runner, slots, /*retry=*/false).ok()) return;

  // One call may have brought the batch down: give each its chance without the others.
  for (std::span<Slot> rest = slots; !rest.empty();) {
    const std::span<Slot> own = FirstCall(rest);
    rest = rest.subspan(own.size());
    if (IsFinished(*own.front().call)) continue;
    for (Slot& slot : own) slot.status = absl::OkStatus();
    const absl::Status status = RunOnce(runner, own, /*retry=*/true);
    if (status.ok()) continue;
    for (Slot& slot : own) {
      slot.status = absl::InternalError(absl::StrCat("the engine failed: ", status.message()));
    }
  }
}

absl::Status ThreadedBatcher::RunOnce(Runner& runner, std::span<Slot> slots, bool retry) {
  const absl::Time start = clock_.Now();
  const absl::Status status = runner.Run(slots);
  const BatchObservation batch = {.sequences = static_cast<int64_t>(slots.size()),
                                  .tokens = Tokens(slots),
                                  .duration = clock_.Now() - start,
                                  .failed = !status.ok(),
                                  .retry = retry};
  observer_.OnBatch(batch);

  if (status.ok()) {
    MutexLock lock(mutex_);
    measured_tokens_ = kRateDecay * measured_tokens_ + static_cast<double>(batch.tokens);
    measured_seconds_ = kRateDecay * measured_seconds_ + absl::ToDoubleSeconds(batch.duration);
  }
  return status;
}

void ThreadedBatcher::EndBatch(size_t worker, std::span<Slot> slots) {
  std::vector<Ending> endings;
  {
    MutexLock lock(mutex_);
    WorkerState& state = workers_[worker];
    state.busy += clock_.Now() - *state.running_since;
    state.running_since.reset();
    ++idle_workers_;

    for (const Slot& slot : slots) {
      const auto progress = calls_.find(slot.call.get());
      if (progress == calls_.end()) continue;  // ended while it ran
      if (slot.status.ok() && --progress->second.sequences_left > 0) continue;
      if (auto ending = End(*slot.call, slot.status)) endings.push_back(*std::move(ending));
    }
  }
  Tell(std::move(endings));
}

// ---- The end ------------------------------------------------------------------------------------

bool ThreadedBatcher::Drain(absl::Duration timeout) {
  MutexLock lock(mutex_);
  draining_ = true;
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
    draining_ = stopping_ = true;
    while (!calls_.empty()) {
      const std::shared_ptr<Call> call = calls_.begin()->second.call;
      endings.push_back(*End(*call, absl::UnavailableError("the server is shutting down")));
    }
    work_.NotifyAll();
  }
  Tell(std::move(endings));

  MutexLock lock(threads_mutex_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

BatcherSnapshot ThreadedBatcher::Snapshot() const {
  MutexLock lock(mutex_);
  BatcherSnapshot snapshot = {.calls_waiting = queue_.calls(),
                              .sequences_waiting = queue_.sequences(),
                              .tokens_waiting = queue_.tokens(),
                              .calls_unfinished = unfinished_,
                              .predicted_wait = PredictedWait(Priority::kBulk),
                              .workers = {}};
  const absl::Time now = clock_.Now();
  for (const WorkerState& worker : workers_) {
    const absl::Duration running =
        worker.running_since ? now - *worker.running_since : absl::ZeroDuration();
    snapshot.workers.push_back({worker.running_since, worker.busy + running});
  }
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
