#include "server/batching/scheduler.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/batching/policy.h"
#include "server/batching/reason.h"

namespace encoderd {
namespace {

int64_t TokensOf(const CallInfo& info) {
  int64_t tokens = 0;
  for (const SequenceInfo& sequence : info.sequences) tokens += sequence.tokens;
  return tokens;
}

absl::Status QueueFull(std::string_view what) {
  return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                        "the queue is full: ", absl::string_view(what.data(), what.size()))),
                    "QUEUE_FULL");
}

}  // namespace

Scheduler::Scheduler(const BatcherOptions& options)
    : options_(options),
      model_(options.cost),
      queue_({.workers = options.workers,
              .max_batch_tokens = options.max_batch_tokens,
              .predict_deadlines = options.predict_deadlines},
             model_),
      workers_(static_cast<size_t>(options.workers)),
      idle_workers_(options.workers) {}

// ---- Admission ----------------------------------------------------------------------------------

absl::Status Scheduler::Submit(std::shared_ptr<Call> call, absl::Time now) {
  const CallInfo& info = call->info();
  if (info.sequences.empty()) return absl::InvalidArgumentError("a call has no sequences");
  if (std::ranges::any_of(info.sequences, [](const SequenceInfo& s) { return s.tokens < 1; })) {
    return absl::InvalidArgumentError("a sequence has no tokens");
  }
  if (draining_ && !info.continuation) {
    return absl::UnavailableError("the server is shutting down");
  }
  const absl::Duration left = info.deadline - now;
  if (left <= absl::ZeroDuration()) {
    return absl::DeadlineExceededError(
        absl::StrCat("the deadline passed ", absl::FormatDuration(-left), " before the call"));
  }

  bool probe = false;
  if (!info.continuation) {
    if (absl::Status status = Admit(info, now, probe); !status.ok()) return status;
  }
  Accept(std::move(call), probe);
  return absl::OkStatus();
}

absl::Status Scheduler::Admit(const CallInfo& info, absl::Time now, bool& probe) {
  const absl::Duration left = info.deadline - now;
  const absl::Duration wait = PredictedWait(info.priority, now);
  const absl::Duration least = LeastTimeOf(info, options_.workers);
  const absl::Duration own = LeastTimeOf(info, work_waits() ? 1 : std::max(1, idle_workers_));
  const Prospect prospect =
      options_.predict_deadlines
          ? ProspectOf(left, least, own, wait,
                       model_.Predict(model_.BaseOfFullBatch(options_.max_batch_tokens)))
          : Prospect::kInTime;
  probe = prospect == Prospect::kHopeless && MayProbe(now);
  if (prospect == Prospect::kHopeless && !probe) {
    if (!refused_since_) refused_since_ = now;
    return absl::DeadlineExceededError(absl::StrCat(
        "the call takes ", absl::FormatDuration(least),
        " on an idle server, as predicted, and its deadline is in ", absl::FormatDuration(left)));
  }
  if (absl::Status status = CheckRoom(info, wait); !status.ok()) return status;
  if (prospect == Prospect::kNotBehindThisQueue) {
    return WithReason(absl::ResourceExhaustedError(absl::StrCat(
                          "the deadline cannot be met: it is in ", absl::FormatDuration(left),
                          ", the call would wait ", absl::FormatDuration(wait), " and take ",
                          absl::FormatDuration(own), ", as predicted")),
                      "DEADLINE_UNREACHABLE");
  }
  // The next one has to wait for as long, should this one be given up before it is measured.
  if (probe) refused_since_ = now;
  return absl::OkStatus();
}

void Scheduler::Accept(std::shared_ptr<Call> call, bool probe) {
  const Call& key = *call;
  try {
    calls_[&key] = {.call = call, .sequences_left = key.info().sequences.size()};
    queue_.Add(call, probe);
  } catch (const std::bad_alloc&) {
    queue_.Remove(key);
    calls_.erase(&key);
    throw;
  }
}

bool Scheduler::MayProbe(absl::Time now) const {
  return refused_since_ && now - *refused_since_ >= kProbeAfter && !work_waits() &&
         idle_workers_ == options_.workers;
}

absl::Status Scheduler::CheckRoom(const CallInfo& info, absl::Duration wait) const {
  if (queue_.calls() >= options_.max_queue_requests) {
    return QueueFull(absl::StrCat(queue_.calls(), " calls wait, max_queue_requests is ",
                                  options_.max_queue_requests));
  }
  const int64_t tokens = TokensOf(info);
  if (tokens > options_.max_queue_tokens - queue_.tokens()) {
    return QueueFull(absl::StrCat("the call has ", tokens, " tokens, ", queue_.tokens(),
                                  " wait, max_queue_tokens is ", options_.max_queue_tokens));
  }
  if (wait > options_.max_queue_time) {
    return QueueFull(absl::StrCat("the call would wait ", absl::FormatDuration(wait),
                                  ", max_queue_time is ",
                                  absl::FormatDuration(options_.max_queue_time)));
  }
  return absl::OkStatus();
}

absl::Duration Scheduler::PredictedWait(Priority priority, absl::Time now) const {
  std::vector<absl::Duration> running;
  running.reserve(workers_.size());
  for (const WorkerState& worker : workers_) {
    const absl::Duration rest = worker.running_since
                                    ? model_.Predict(worker.base) - (now - *worker.running_since)
                                    : absl::ZeroDuration();
    running.push_back(std::max(rest, absl::ZeroDuration()));
  }
  return TimeUntilFree(std::move(running), WorkAhead(priority, queue_.Cost(Priority::kInteractive),
                                                     queue_.Cost(Priority::kBulk)));
}

absl::Duration Scheduler::LeastTimeOf(const CallInfo& info, int cores) const {
  absl::Duration whole, longest;
  for (const SequenceInfo& sequence : info.all_steps.empty() ? info.sequences : info.all_steps) {
    whole += model_.BaseShare(sequence, options_.max_batch_tokens);
    longest = std::max(longest,
                       model_.Base(WorkOf(sequence)) / SharingCores(sequence.tokens, cores));
  }
  return model_.Predict(LeastTime(whole, longest, options_.workers));
}

// ---- Ends ---------------------------------------------------------------------------------------

std::optional<Scheduler::Ending> Scheduler::End(const Call& call, absl::Status status,
                                                absl::Time now) {
  const auto found = calls_.find(&call);
  if (found == calls_.end()) return std::nullopt;
  Progress progress = std::move(found->second);
  calls_.erase(found);
  queue_.Remove(call);

  const absl::Time first_start = progress.first_start.value_or(now);
  const CallTiming timing = {.queue = first_start - call.info().arrival,
                             .compute = now - first_start,
                             .batches = progress.batches,
                             .batch_tokens = progress.batch_tokens};
  return Ending{std::move(progress.call), std::move(status), timing};
}

std::vector<Scheduler::Ending> Scheduler::EndAll(const absl::Status& status, absl::Time now) {
  std::vector<Ending> endings;
  while (!calls_.empty()) {
    const std::shared_ptr<Call> call = calls_.begin()->second.call;
    endings.push_back(*End(*call, status, now));
  }
  return endings;
}

// ---- Batches ------------------------------------------------------------------------------------

absl::Time Scheduler::StartTime() const {
  if (!work_waits()) return absl::InfiniteFuture();
  if (draining_) return absl::InfinitePast();
  return encoderd::StartTime(queue_.tokens(), queue_.OldestArrival(), options_.max_batch_tokens,
                             options_.max_batch_wait);
}

Scheduler::Batch Scheduler::Take(size_t worker, absl::Time now) {
  CallQueue::Batch taken = queue_.Take(now, idle_workers_);
  if (!taken.slots.empty()) CountStart(worker, taken, now);
  Batch batch = {.slots = std::move(taken.slots), .endings = {}};
  const auto end = [&](const Call& call, const char* why) {
    auto ending = End(call, absl::DeadlineExceededError(why), now);
    if (ending) batch.endings.push_back(*std::move(ending));
  };
  for (const auto& call : taken.expired) end(*call, "the deadline passed in the queue");
  for (const auto& call : taken.hopeless) {
    end(*call, "the deadline cannot be met any more: what is left of the call takes longer");
  }
  return batch;
}

void Scheduler::CountStart(size_t worker, const CallQueue::Batch& taken, absl::Time now) {
  --idle_workers_;
  workers_[worker].running_since = now;
  workers_[worker].base = model_.Base(WorkOf(taken.slots));
  const Call* last = nullptr;  // slots of one call lie next to each other
  for (const Slot& slot : taken.slots) {
    if (slot.call.get() == last) continue;
    last = slot.call.get();
    Progress& progress = calls_.at(last);
    if (!progress.first_start) progress.first_start = now;
    ++progress.batches;
    progress.batch_tokens = std::max(progress.batch_tokens, taken.tokens);
  }
}

bool Scheduler::Abandoned(std::span<const Slot> slots, absl::Time now) const {
  return std::ranges::all_of(slots, [&](const Slot& slot) {
    return IsFinished(*slot.call) || slot.call->info().deadline <= now;
  });
}

absl::Duration Scheduler::Predict(std::span<const Slot> slots) const {
  return model_.Predict(model_.Base(WorkOf(slots)));
}

void Scheduler::Observe(std::span<const Slot> slots, absl::Duration actual) {
  model_.Observe(model_.Base(WorkOf(slots)), actual,
                 SharingCores(TokensOf(slots), 1 + idle_workers_));
  refused_since_.reset();
}

std::vector<Scheduler::Ending> Scheduler::EndBatch(size_t worker, std::span<const Slot> slots,
                                                   absl::Time now) {
  WorkerState& state = workers_[worker];
  state.busy += now - *state.running_since;
  state.running_since.reset();
  ++idle_workers_;

  std::vector<Ending> endings;
  for (const Slot& slot : slots) {
    const auto progress = calls_.find(slot.call.get());
    if (progress == calls_.end()) continue;  // ended while it ran
    if (slot.status.ok() && --progress->second.sequences_left > 0) continue;
    if (auto ending = End(*slot.call, slot.status, now)) endings.push_back(*std::move(ending));
  }
  return endings;
}

BatcherSnapshot Scheduler::Snapshot(absl::Time now) const {
  BatcherSnapshot snapshot = {.calls_waiting = queue_.calls(),
                              .sequences_waiting = queue_.sequences(),
                              .tokens_waiting = queue_.tokens(),
                              .calls_unfinished = static_cast<int64_t>(calls_.size()),
                              .predicted_wait = PredictedWait(Priority::kBulk, now),
                              .cost = model_,
                              .max_batch_tokens = options_.max_batch_tokens,
                              .workers = {}};
  for (const WorkerState& worker : workers_) {
    const absl::Duration running =
        worker.running_since ? now - *worker.running_since : absl::ZeroDuration();
    snapshot.workers.push_back({worker.running_since, worker.busy + running});
  }
  return snapshot;
}

}  // namespace encoderd
