// watchdog.h — notices a worker that is stuck.
//
// Role:  looks at the batcher once a second and tells the health service; a stuck worker cannot be
//        helped from inside the process, so liveness asks for a restart.
#pragma once

#include <thread>

#include "absl/time/time.h"
#include "server/batching/batcher.h"
#include "server/batching/clock.h"
#include "server/health_service.h"
#include "server/mutex.h"

namespace encoderd {

// A batch that runs for longer than this is stuck. The longest one that makes sense, a sequence of
// 8192 tokens through a large model on one slow core, takes a few seconds.
constexpr absl::Duration kStuckAfter = absl::Minutes(1);

// True when a worker has been at the same batch for longer than kStuckAfter.
bool IsStuck(const BatcherSnapshot& snapshot, absl::Time now);

// Watches from its construction to its destruction. What it is given must outlive it.
class Watchdog {
 public:
  Watchdog(const Batcher& batcher, Clock& clock, HealthService& health);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void Watch();

  const Batcher& batcher_;
  Clock& clock_;
  HealthService& health_;
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace encoderd
