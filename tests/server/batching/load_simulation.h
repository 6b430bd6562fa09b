// load_simulation.h — the scheduler under a load of days in a second: a discrete-event simulation of
// callers and workers around it. One thread, no clock, the same numbers every time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/batching/scheduler.h"

namespace encoderd {

using Random = std::mt19937_64;

// A caller who sends calls of one sequence each.
struct Stream {
  double calls_per_second = 0;
  std::function<int64_t(Random&)> tokens;
  absl::Duration deadline = absl::InfiniteDuration();
  Priority priority = Priority::kInteractive;
  // The share of callers who give up after a time between nothing and their deadline.
  double cancelled = 0;
};

struct Simulated {
  BatcherOptions options;
  CostCoefficients true_cost;  // options.cost is what the scheduler believes at first
  double noise = 0.2;          // of a batch's time: up to so much longer or shorter
  absl::Duration length = absl::Seconds(120);
  std::vector<Stream> streams;
};

// Of one stream.
struct Outcome {
  int64_t sent = 0;
  int64_t refused = 0;
  int64_t begun = 0;              // calls that entered a batch
  int64_t running_when_gone = 0;  // of them, those whose caller went before the batch had ended
  int64_t in_time = 0;            // answered before the deadline
  int64_t tokens_in_time = 0;
  std::vector<double> seconds;  // arrival to answer, of those in time
  int64_t beyond_bound = 0;     // started after more batches of their line than batcher.h allows
};

struct Report {
  std::vector<Outcome> streams;
  double seconds = 0;
  int64_t batches[2] = {0, 0};  // led by each Priority
  int64_t abandoned = 0;

  double CallsPerSecond() const;   // in time, all streams
  double TokensPerSecond() const;  //   "
};

class LoadSimulation {
 public:
  explicit LoadSimulation(const Simulated& simulated);
  Report Run();

 private:
  struct SimCall;
  struct Event {
    absl::Time time;
    int64_t order = 0;  // of events at the same time
    std::function<void()> happen;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct SimWorker {
    std::vector<Slot> slots;  // empty: idle
    absl::Time start, end;
    int64_t run = 0;  // counts batches, so that an end that has been moved is not taken for another
    bool abandoned = false;
  };
  // Sequences that wait, and batches that were led, of one line.
  struct LineCount {
    int64_t short_waiting = 0, long_waiting = 0, led = 0;
  };

  void At(absl::Time time, std::function<void()> happen);
  void Arrive(size_t stream);
  void Leave(const std::shared_ptr<SimCall>& call, const absl::Status& status);
  void Dispatch();
  void Begin(size_t worker, std::vector<Slot> slots);
  void MoveEndOfAbandoned();
  void EndBatch(size_t worker, int64_t run);
  void Started(SimCall& call);
  void Ended(const Scheduler::Ending& ending);
  int64_t& Waiting(const SimCall& call);
  double Draw(double low, double high);

  const Simulated simulated_;
  Random random_{20261130};
  Scheduler scheduler_;
  const CostModel true_model_;
  const absl::Time begin_ = absl::FromUnixSeconds(1'000'000);
  absl::Time now_ = begin_;
  int64_t next_order_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<SimWorker> workers_;
  LineCount lines_[2];
  Report report_;
};

}  // namespace encoderd
