#include "tests/server/batching/load_simulation.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace encoderd {
namespace {

constexpr int kBlocks = 6;  // between which a worker asks whether its batch is abandoned

}  // namespace

struct LoadSimulation::SimCall : public Call {
  const CallInfo& info() const override { return call_info; }
  void Finish(absl::Status, const CallTiming&) override {}  // the simulation is told by Ending

  bool is_long = false;
  CallInfo call_info;
  size_t stream = 0;
  bool waiting = true;
  // Batches of its line within which it must start, and how many had been led when it came.
  int64_t bound = 0, led_before = 0;
};

double Report::CallsPerSecond() const {
  int64_t calls = 0;
  for (const Outcome& outcome : streams) calls += outcome.in_time;
  return static_cast<double>(calls) / seconds;
}

double Report::TokensPerSecond() const {
  int64_t tokens = 0;
  for (const Outcome& outcome : streams) tokens += outcome.tokens_in_time;
  return static_cast<double>(tokens) / seconds;
}

LoadSimulation::LoadSimulation(const Simulated& simulated)
    : simulated_(simulated),
      scheduler_(simulated.options),
      true_model_(simulated.true_cost),
      workers_(static_cast<size_t>(simulated.options.workers)) {
  report_.streams.resize(simulated.streams.size());
  report_.seconds = absl::ToDoubleSeconds(simulated.length);
}

Report LoadSimulation::Run() {
  for (size_t stream = 0; stream < simulated_.streams.size(); ++stream) {
    At(now_, [this, stream] { Arrive(stream); });
  }
  const absl::Time end = begin_ + simulated_.length;
  while (!events_.empty() && events_.top().time <= end) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    event.happen();
    Dispatch();
  }
  return report_;
}

void LoadSimulation::At(absl::Time time, std::function<void()> happen) {
  events_.push({.time = time, .order = next_order_++, .happen = std::move(happen)});
}

double LoadSimulation::Draw(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random_);
}

int64_t& LoadSimulation::Waiting(const SimCall& call) {
  LineCount& line = lines_[static_cast<size_t>(call.info().priority)];
  return call.is_long ? line.long_waiting : line.short_waiting;
}

// ---- Callers ------------------------------------------------------------------------------------

void LoadSimulation::Arrive(size_t stream) {
  const Stream& from = simulated_.streams[stream];
  At(now_ + absl::Seconds(-std::log(1 - Draw(0, 1)) / from.calls_per_second),
     [this, stream] { Arrive(stream); });

  const auto call = std::make_shared<SimCall>();
  const int64_t tokens = from.tokens(random_);
  call->stream = stream;
  call->is_long = tokens > simulated_.options.max_batch_tokens;
  call->call_info = {.sequences = {{.tokens = tokens}},
                     .priority = from.priority,
                     .arrival = now_,
                     .deadline = now_ + from.deadline};
  ++report_.streams[stream].sent;
  if (!scheduler_.Submit(call, now_).ok()) {
    ++report_.streams[stream].refused;
    return;
  }
  const LineCount& line = lines_[static_cast<size_t>(from.priority)];
  call->led_before = line.led;
  call->bound =
      call->is_long ? line.short_waiting + 2 * line.long_waiting + 2 : 2 * (line.short_waiting + 1);
  ++Waiting(*call);
  if (from.deadline == absl::InfiniteDuration()) return;
  const bool cancels = Draw(0, 1) < from.cancelled;
  At(now_ + from.deadline * (cancels ? Draw(0, 1) : 1),
     [this, call] { Leave(call, absl::CancelledError("the caller went")); });
}

void LoadSimulation::Leave(const std::shared_ptr<SimCall>& call, const absl::Status& status) {
  const auto ending = scheduler_.End(*call, status, now_);
  if (!ending) return;
  if (!call->waiting) ++report_.streams[call->stream].running_when_gone;
  Ended(*ending);
  MoveEndOfAbandoned();
}

void LoadSimulation::Ended(const Scheduler::Ending& ending) {
  auto& call = static_cast<SimCall&>(*ending.call);
  if (std::exchange(call.waiting, false)) --Waiting(call);
  if (!ending.status.ok() || now_ > call.info().deadline) return;
  Outcome& outcome = report_.streams[call.stream];
  ++outcome.in_time;
  outcome.tokens_in_time += call.info().sequences[0].tokens;
  outcome.seconds.push_back(absl::ToDoubleSeconds(now_ - call.info().arrival));
}

// ---- Workers ------------------------------------------------------------------------------------

void LoadSimulation::Dispatch() {
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    while (workers_[worker].slots.empty() && scheduler_.StartTime() <= now_) {
      Scheduler::Batch batch = scheduler_.Take(worker, now_);
      for (const auto& ending : batch.endings) Ended(ending);
      if (!batch.slots.empty()) Begin(worker, std::move(batch.slots));
    }
  }
}

void LoadSimulation::Begin(size_t worker, std::vector<Slot> slots) {
  SimWorker& state = workers_[worker];
  ++lines_[static_cast<size_t>(slots[0].call->info().priority)].led;
  ++report_.batches[static_cast<size_t>(slots[0].call->info().priority)];
  for (const Slot& slot : slots) Started(static_cast<SimCall&>(*slot.call));
  const absl::Duration time =
      true_model_.Base(WorkOf(slots)) * Draw(1 - simulated_.noise, 1 + simulated_.noise);
  state = {.slots = std::move(slots), .start = now_, .end = now_ + time, .run = state.run + 1};
  At(state.end, [this, worker, run = state.run] { EndBatch(worker, run); });
}

void LoadSimulation::Started(SimCall& call) {
  --Waiting(call);
  call.waiting = false;
  Outcome& outcome = report_.streams[call.stream];
  ++outcome.begun;
  const LineCount& line = lines_[static_cast<size_t>(call.info().priority)];
  if (line.led - call.led_before > call.bound) ++outcome.beyond_bound;
}

// A batch that nobody waits for ends with the block that it is in.
void LoadSimulation::MoveEndOfAbandoned() {
  for (size_t worker = 0; worker < workers_.size(); ++worker) {
    SimWorker& state = workers_[worker];
    if (state.slots.empty() || state.abandoned || !scheduler_.Abandoned(state.slots, now_))
      continue;
    const double blocks_done =
        absl::FDivDuration(now_ - state.start, (state.end - state.start) / kBlocks);
    const double blocks = std::ceil(blocks_done);
    if (blocks >= kBlocks) continue;
    state.abandoned = true;
    ++report_.abandoned;
    ++state.run;
    At(state.start + (state.end - state.start) / kBlocks * blocks,
       [this, worker, run = state.run] { EndBatch(worker, run); });
  }
}

void LoadSimulation::EndBatch(size_t worker, int64_t run) {
  SimWorker& state = workers_[worker];
  if (state.run != run || state.slots.empty()) return;
  std::vector<Slot> slots = std::exchange(state.slots, {});
  if (state.abandoned) {
    for (Slot& slot : slots) slot.status = absl::DeadlineExceededError("abandoned");
  } else {
    scheduler_.Observe(slots, now_ - state.start);
  }
  for (const auto& ending : scheduler_.EndBatch(worker, slots, now_)) Ended(ending);
}

}  // namespace encoderd
