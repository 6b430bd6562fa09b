// fake_clock.h — a clock that stands still until a test moves it.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "server/batching/clock.h"
#include "server/mutex.h"

namespace encoderd {

class FakeClock : public Clock {
 public:
  absl::Time Now() override {
    MutexLock lock(mutex_);
    return now_;
  }

  void WaitUntil(CondVar& condition, Mutex& mutex, absl::Time deadline) override {
    const Waiter waiter = {&condition, &mutex};
    {
      MutexLock lock(mutex_);
      if (now_ >= deadline) return;
      waiters_.push_back(waiter);
    }
    condition.Wait(mutex);
    MutexLock lock(mutex_);
    waiters_.erase(std::find(waiters_.begin(), waiters_.end(), waiter));
  }

  // Wakes everyone who waits; they look at the time themselves.
  void Advance(absl::Duration by) {
    std::vector<Waiter> waiters;
    {
      MutexLock lock(mutex_);
      now_ += by;
      waiters = waiters_;
    }
    for (const auto& [condition, mutex] : waiters) {
      MutexLock lock(*mutex);  // so that nobody is between looking at the time and waiting
      condition->NotifyAll();
    }
  }

 private:
  using Waiter = std::pair<CondVar*, Mutex*>;

  Mutex mutex_;
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::vector<Waiter> waiters_;
};

}  // namespace encoderd
