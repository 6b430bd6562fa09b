#include "server/watchdog.h"

#include <algorithm>

#include "absl/log/log.h"

namespace encoderd {

bool IsStuck(const BatcherSnapshot& snapshot, absl::Time now) {
  return std::any_of(
      snapshot.workers.begin(), snapshot.workers.end(), [&](const WorkerSnapshot& worker) {
        return worker.running_since.has_value() && now - *worker.running_since > kStuckAfter;
      });
}

Watchdog::Watchdog(const Batcher& batcher, Clock& clock, HealthService& health)
    : batcher_(batcher), clock_(clock), health_(health), thread_([this] { Watch(); }) {}

Watchdog::~Watchdog() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.NotifyAll();
  thread_.join();
}

void Watchdog::Watch() {
  bool was_stuck = false;
  MutexLock lock(mutex_);
  while (!stop_) {
    const bool stuck = IsStuck(batcher_.Snapshot(), clock_.Now());
    if (stuck != was_stuck) {
      if (stuck) {
        LOG(ERROR) << "A worker is stuck. running_longer_than=" << kStuckAfter;
      } else {
        LOG(INFO) << "No worker is stuck any more.";
      }
      health_.SetLive(!stuck);
      was_stuck = stuck;
    }
    clock_.WaitUntil(stopped_, mutex_, clock_.Now() + absl::Seconds(1));
  }
}

}  // namespace encoderd
