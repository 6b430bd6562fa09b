// clock.h — the batcher's time, behind an interface so that its tests need no sleep.
#pragma once

#include "absl/time/time.h"
#include "server/mutex.h"

namespace encoderd {

class Clock {
 public:
  virtual ~Clock() = default;

  virtual absl::Time Now() = 0;

  // Gives up `mutex`, waits until `condition` is notified or Now() reaches `deadline` (possibly
  // InfiniteFuture), takes `mutex` again. May return early: wait in a loop.
  virtual void WaitUntil(CondVar& condition, Mutex& mutex, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) = 0;
};

// The process's clock: wall-clock time when it was first used, steady from then on, so that setting
// the machine's clock expires no call. A deadline given as wall-clock time is brought to it by
// clock.Now() + (deadline - absl::Now()).
Clock& SteadyClock();

}  // namespace encoderd
