// Goal: gRPC's polling threads get an event in every period, however long nobody calls.
// Method: a clock moved by hand; the beats are counted where they arrive.
#include "server/poll_heartbeat.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <string>

#include "tests/server/batching/fake_clock.h"

namespace encoderd {
namespace {

std::string ThreadName() {
  char name[16] = {};
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

// The beats that have arrived, and the thread of the last one.
class Beats {
 public:
  void Add() {
    MutexLock lock(mutex_);
    ++count_;
    thread_ = ThreadName();
    more_.NotifyAll();
  }
  void Await(int count) {
    MutexLock lock(mutex_);
    while (count_ < count) more_.Wait(mutex_);
  }
  int count() {
    MutexLock lock(mutex_);
    return count_;
  }
  std::string thread() {
    MutexLock lock(mutex_);
    return thread_;
  }

 private:
  Mutex mutex_;
  CondVar more_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string thread_ ABSL_GUARDED_BY(mutex_);
};

TEST(PollHeartbeatTest, BeatsAtTheStartAndInEveryPeriod) {
  FakeClock clock;
  Beats beats;
  PollHeartbeat heartbeat(clock, [&] { beats.Add(); });
  for (int count = 1; count <= 5; ++count) {
    beats.Await(count);
    EXPECT_EQ(beats.count(), count);
    clock.Advance(PollHeartbeat::kPeriod);
  }
}

// The reason for it is how gRPC's threads of this name wait. With others it may be of no use.
TEST(PollHeartbeatTest, ReachesTheThreadsThatPoll) {
  FakeClock clock;
  Beats beats;
  PollHeartbeat heartbeat(clock, [&] { beats.Add(); });
  beats.Await(1);
  EXPECT_EQ(beats.thread(), "nexting_thread");
}

TEST(PollHeartbeatTest, EndsWithBeatsUnderWay) {
  for (int i = 0; i < 50; ++i) {
    FakeClock clock;
    PollHeartbeat heartbeat(clock);
  }
}

}  // namespace
}  // namespace encoderd
