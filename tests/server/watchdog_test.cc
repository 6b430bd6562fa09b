// Goal: a worker that is stuck makes liveness fail, and nothing else does.
// Method: snapshots and clocks made by hand.
#include "server/watchdog.h"

#include <gtest/gtest.h>

#include <thread>

namespace encoderd {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'000'000);

TEST(IsStuckTest, LooksAtTheAgeOfRunningBatchesAlone) {
  BatcherSnapshot snapshot;
  EXPECT_FALSE(IsStuck(snapshot, kNow));
  snapshot.workers = {{.busy = absl::Hours(5)}, {.running_since = kNow - kStuckAfter}};
  EXPECT_FALSE(IsStuck(snapshot, kNow));
  snapshot.workers[0].running_since = kNow - kStuckAfter - absl::Nanoseconds(1);
  EXPECT_TRUE(IsStuck(snapshot, kNow));
}

// A clock that stands where it is put. Waits return at once, so that a thread that watches looks
// as often as it can.
class HandClock : public Clock {
 public:
  absl::Time Now() override {
    MutexLock lock(mutex_);
    return now_;
  }
  void WaitUntil(CondVar& condition, Mutex& mutex, absl::Time) override {
    condition.WaitFor(mutex, std::chrono::microseconds(100));
  }
  void Set(absl::Time now) {
    MutexLock lock(mutex_);
    now_ = now;
  }

 private:
  Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = kNow;
};

// A batcher whose one worker has been at the same batch since kNow.
class BusyBatcher : public Batcher {
 public:
  absl::Status Submit(std::shared_ptr<Call>) override { return absl::OkStatus(); }
  bool Cancel(const Call&, absl::Status) override { return false; }
  bool Drain(absl::Duration) override { return true; }
  void Stop() override {}
  BatcherSnapshot Snapshot() const override { return {.workers = {{.running_since = kNow}}}; }
};

TEST(WatchdogTest, TellsHealthWhenAWorkerIsStuckAndWhenItIsNot) {
  HealthService health;
  HandClock clock;
  BusyBatcher batcher;
  Watchdog watchdog(batcher, clock, health);
  const auto await_live = [&](bool live) {
    while (health.live() != live) std::this_thread::yield();
  };
  clock.Set(kNow + absl::Seconds(61));
  await_live(false);
  clock.Set(kNow + absl::Seconds(59));
  await_live(true);
}

}  // namespace
}  // namespace encoderd
