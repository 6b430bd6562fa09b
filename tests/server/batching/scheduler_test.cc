// Goal: calls are admitted, refused and given up by what is predicted, at the limits exactly, and a
//       wrong prediction does not last.
// Method: the scheduler alone, in one thread, told the time and what batches took.
#include "server/batching/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status_matchers.h"
#include "server/batching/policy.h"
#include "server/batching/reason.h"
#include "tests/server/batching/fakes.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kTick = absl::Nanoseconds(1);

// One second a token.
BatcherOptions OneSecondAToken() {
  return {.workers = 1,
          .max_batch_tokens = 10,
          .cost = {.per_token = 1},
          .max_queue_time = absl::Hours(1)};
}

class SchedulerTest : public ::testing::Test {
 protected:
  SchedulerTest() : scheduler_(std::in_place, OneSecondAToken()) {}

  void Use(const BatcherOptions& options) { scheduler_.emplace(options); }

  std::shared_ptr<FakeCall> MakeCall(std::vector<int64_t> tokens,
                                     absl::Duration left = absl::InfiniteDuration(),
                                     Priority priority = Priority::kInteractive) {
    return std::make_shared<FakeCall>(CallInfo{.sequences = OfTokens(tokens),
                                               .priority = priority,
                                               .arrival = now_,
                                               .deadline = now_ + left});
  }
  absl::Status Submit(std::vector<int64_t> tokens, absl::Duration left = absl::InfiniteDuration(),
                      Priority priority = Priority::kInteractive) {
    return scheduler_->Submit(MakeCall(std::move(tokens), left, priority), now_);
  }
  Scheduler::Batch Take(size_t worker = 0) { return scheduler_->Take(worker, now_); }

  // Runs what the batch has, in `actual`.
  void Run(const Scheduler::Batch& batch, absl::Duration actual, size_t worker = 0) {
    now_ += actual;
    scheduler_->Observe(batch.slots, actual);
    scheduler_->EndBatch(worker, batch.slots, now_);
  }

  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  std::optional<Scheduler> scheduler_;
};

// ---- Bounds of the queue ------------------------------------------------------------------------

TEST_F(SchedulerTest, RefusesTheCallThatWouldWaitLongerThanMaxQueueTime) {
  BatcherOptions options = OneSecondAToken();
  options.max_queue_time = absl::Seconds(5);
  Use(options);
  ASSERT_THAT(Submit({5}), IsOk());
  ASSERT_THAT(Submit({1}), IsOk());  // waits for 5 s, as long as may be
  const absl::Status refused = Submit({1});
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kResourceExhausted,
                                HasSubstr("would wait 6s, max_queue_time is 5s")));
  EXPECT_EQ(ReasonOf(refused), "QUEUE_FULL");
  EXPECT_EQ(scheduler_->Snapshot(now_).predicted_wait, absl::Seconds(6));
}

TEST_F(SchedulerTest, CountsTheRestOfTheRunningBatchesIntoTheWait) {
  BatcherOptions options = OneSecondAToken();
  options.workers = 2;
  Use(options);
  ASSERT_THAT(Submit({7}), IsOk());
  Take(0);
  EXPECT_EQ(scheduler_->Snapshot(now_).predicted_wait, absl::ZeroDuration());
  ASSERT_THAT(Submit({9}), IsOk());
  Take(1);
  EXPECT_EQ(scheduler_->Snapshot(now_).predicted_wait, absl::Seconds(7));
  now_ += absl::Seconds(3);
  EXPECT_EQ(scheduler_->Snapshot(now_).predicted_wait, absl::Seconds(4));
  // A batch that takes longer than predicted is always about to end.
  now_ += absl::Seconds(30);
  EXPECT_EQ(scheduler_->Snapshot(now_).predicted_wait, absl::ZeroDuration());
}

TEST_F(SchedulerTest, PredictsAnInteractiveCallsWaitWithoutTheBulkBehindIt) {
  BatcherOptions options = OneSecondAToken();
  options.max_queue_time = absl::Seconds(5);
  Use(options);
  ASSERT_THAT(Submit({6}, absl::InfiniteDuration(), Priority::kBulk), IsOk());
  EXPECT_THAT(Submit({1}, absl::InfiniteDuration(), Priority::kBulk),
              StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_THAT(Submit({1}), IsOk());
}

// ---- Deadlines at admission ---------------------------------------------------------------------

TEST_F(SchedulerTest, RefusesWhatIsHopelessOnAnIdleServerAsLateAndNothingElse) {
  const absl::Status refused = Submit({10}, absl::Seconds(10) - kTick);
  EXPECT_THAT(refused, StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("10s on an idle")));
  EXPECT_THAT(Submit({10}, absl::Seconds(10)), IsOk());
}

TEST_F(SchedulerTest, CountsOnIdleCoresForALongSequenceAndOnNoBusyOnes) {
  BatcherOptions options = OneSecondAToken();
  options.workers = 2;
  Use(options);
  constexpr int64_t kLong = 2 * kMinSharedTokens;
  EXPECT_THAT(Submit({kLong}, absl::Seconds(kLong / 2) - kTick),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("1m4s on an idle")));
  // With one core running something else, a whole one is left.
  ASSERT_THAT(Submit({1}), IsOk());
  Take(0);
  EXPECT_EQ(ReasonOf(Submit({kLong}, absl::Seconds(kLong) - kTick)), "DEADLINE_UNREACHABLE");
  EXPECT_THAT(Submit({kLong}, absl::Seconds(kLong)), IsOk());
}

TEST_F(SchedulerTest, RefusesWhatOnlyTheQueueMakesLateAsOverload) {
  ASSERT_THAT(Submit({10}), IsOk());
  // A full batch, in which it will have company, and the wait with its margin.
  const absl::Duration enough = absl::Seconds(10) + absl::Seconds(10) * kWaitMargin;
  const absl::Status refused = Submit({2}, enough - kTick);
  EXPECT_THAT(refused,
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("wait 10s and take 2s")));
  EXPECT_EQ(ReasonOf(refused), "DEADLINE_UNREACHABLE");
  EXPECT_THAT(Submit({2}, enough), IsOk());
}

TEST_F(SchedulerTest, SaysThatAHopelessCallIsLateHoweverLongTheQueueIs) {
  ASSERT_THAT(Submit({10, 10, 10}), IsOk());
  EXPECT_THAT(Submit({10}, absl::Seconds(9)), StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(SchedulerTest, JudgesACallOfManyStepsByAllOfThem) {
  const auto first = [this](absl::Duration left) {
    CallInfo info = MakeCall({3}, left)->info();
    info.all_steps = OfTokens({3, 4, 5});
    return std::make_shared<FakeCall>(info);
  };
  EXPECT_THAT(scheduler_->Submit(first(absl::Seconds(12) - kTick), now_),
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("takes 12s")));
  EXPECT_THAT(scheduler_->Submit(first(absl::Seconds(12)), now_), IsOk());
}

TEST_F(SchedulerTest, TakesTheRestOfAnAcceptedCallWhenItIsFullAndWhenItDrains) {
  BatcherOptions options = OneSecondAToken();
  options.max_queue_requests = 1;
  options.max_queue_tokens = 5;
  options.max_queue_time = absl::Seconds(1);
  Use(options);
  EXPECT_THAT(Submit({5}), IsOk());
  scheduler_->Drain();
  EXPECT_THAT(Submit({1}), StatusIs(absl::StatusCode::kUnavailable));
  CallInfo rest = MakeCall({5}, absl::Seconds(1))->info();
  rest.continuation = true;
  EXPECT_THAT(scheduler_->Submit(std::make_shared<FakeCall>(rest), now_), IsOk());
  now_ += absl::Seconds(1);
  EXPECT_THAT(scheduler_->Submit(std::make_shared<FakeCall>(rest), now_),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
}

TEST_F(SchedulerTest, CountsOnEveryWorkerForACallOfManySequences) {
  BatcherOptions options = OneSecondAToken();
  options.workers = 2;
  Use(options);
  EXPECT_THAT(Submit({5, 5, 5, 5}, absl::Seconds(10) - kTick),
              StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Submit({5, 5, 5, 5}, absl::Seconds(10)), IsOk());
}

TEST_F(SchedulerTest, AdmitsByTheDeadlineAloneWhenToldNotToPredict) {
  BatcherOptions options = OneSecondAToken();
  options.predict_deadlines = false;
  Use(options);
  ASSERT_THAT(Submit({10}, kTick), IsOk());
  ASSERT_THAT(Submit({10}, kTick), IsOk());
  EXPECT_THAT(Submit({10}, absl::ZeroDuration()), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_THAT(Take().slots, SizeIs(1));
}

TEST_F(SchedulerTest, RefusesNothingByAPredictionThatItDoesNotHave) {
  Use({.workers = 1});
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Submit({400}, kTick), IsOk());
}

// ---- Deadlines at the pop -----------------------------------------------------------------------

TEST_F(SchedulerTest, EndsACallAtThePopThatCannotEndInTimeAnyMore) {
  ASSERT_THAT(Submit({10}), IsOk());
  const auto late = MakeCall({2}, absl::Seconds(22));
  ASSERT_THAT(scheduler_->Submit(late, now_), IsOk());
  const Scheduler::Batch first = Take();
  now_ += absl::Seconds(21);  // the batch took longer than the 10 s predicted
  scheduler_->EndBatch(0, first.slots, now_);
  const Scheduler::Batch second = Take();
  EXPECT_THAT(second.slots, IsEmpty());
  ASSERT_THAT(second.endings, SizeIs(1));
  EXPECT_EQ(second.endings[0].call, late);
  EXPECT_THAT(second.endings[0].status,
              StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("cannot be met any more")));
  EXPECT_EQ(scheduler_->Snapshot(now_).calls_unfinished, 0);
}

TEST_F(SchedulerTest, GivesUpTheRestOfACallThatHasBegun) {
  const auto call = MakeCall({10, 10}, absl::Seconds(20));
  ASSERT_THAT(scheduler_->Submit(call, now_), IsOk());
  const Scheduler::Batch first = Take();
  ASSERT_THAT(first.slots, SizeIs(1));
  now_ += absl::Seconds(10) + kTick;
  EXPECT_THAT(scheduler_->EndBatch(0, first.slots, now_), IsEmpty());
  EXPECT_THAT(Take().endings, SizeIs(1));
  EXPECT_TRUE(scheduler_->IsFinished(*call));
}

// Its long sequence leads, since the older one of another call has expired.
TEST_F(SchedulerTest, RunsTheLongSequenceOfACallBeforeItGivesUpItsShortOnes) {
  ASSERT_THAT(Submit({20}, absl::Seconds(21)), IsOk());
  const auto call = MakeCall({11, 10, 10, 10}, absl::Seconds(70));
  ASSERT_THAT(scheduler_->Submit(call, now_), IsOk());
  now_ += absl::Seconds(45);
  const Scheduler::Batch first = Take();
  ASSERT_THAT(first.slots, SizeIs(1));
  EXPECT_EQ(first.slots[0].call, call);
  EXPECT_THAT(first.endings, SizeIs(1));  // of the other
  EXPECT_FALSE(scheduler_->IsFinished(*call));
  Run(first, absl::Seconds(11));
  const Scheduler::Batch second = Take();
  EXPECT_THAT(second.slots, IsEmpty());
  ASSERT_THAT(second.endings, SizeIs(1));
  EXPECT_EQ(second.endings[0].call, call);
  EXPECT_EQ(second.endings[0].timing.batches, 1);
}

// ---- Predictions that are wrong -----------------------------------------------------------------

// A machine that is ten times faster than the model thinks: everything looks hopeless.
TEST_F(SchedulerTest, FindsOutThatItsPredictionIsFarTooHigh) {
  int run = 0;
  int seconds = 0;
  for (; run < 10 && seconds < 60; ++seconds) {
    for (int attempt = 0; attempt < 10; ++attempt, now_ += absl::Milliseconds(100)) {
      if (!Submit({10}, absl::Seconds(2)).ok()) continue;
      const Scheduler::Batch batch = Take();
      ASSERT_THAT(batch.slots, SizeIs(1));
      Run(batch, absl::Seconds(1));
      ++run;
    }
  }
  EXPECT_LE(seconds, 20);
  EXPECT_THAT(Submit({10}, absl::Seconds(2)), IsOk());
}

TEST_F(SchedulerTest, ProbesOnlyAnIdleServerAndOnlyAfterAWhileOfRefusals) {
  const auto hopeless = [this] { return Submit({10}, absl::Seconds(5)); };
  EXPECT_FALSE(hopeless().ok());  // the first, however long nothing was measured
  now_ += kProbeAfter - kTick;
  EXPECT_FALSE(hopeless().ok());
  now_ += kTick;
  ASSERT_THAT(Submit({1}), IsOk());
  EXPECT_FALSE(hopeless().ok());  // something waits
  const Scheduler::Batch batch = Take();
  EXPECT_FALSE(hopeless().ok());  // and runs
  scheduler_->EndBatch(0, batch.slots, now_);
  ASSERT_THAT(hopeless(), IsOk());
  EXPECT_FALSE(hopeless().ok());  // one at a time

  // What has been measured is believed for another while.
  Run(Take(), absl::Seconds(10));
  EXPECT_FALSE(hopeless().ok());
  now_ += kProbeAfter - kTick;
  EXPECT_FALSE(hopeless().ok());
}

TEST_F(SchedulerTest, ProbesNoSoonerAgainWhenTheProbeIsGivenUp) {
  const auto hopeless = [this] { return MakeCall({10}, absl::Seconds(5)); };
  EXPECT_FALSE(scheduler_->Submit(hopeless(), now_).ok());
  for (int probe = 0; probe < 3; ++probe) {
    now_ += kProbeAfter - kTick;
    EXPECT_FALSE(scheduler_->Submit(hopeless(), now_).ok());
    now_ += kTick;
    const auto call = hopeless();
    ASSERT_THAT(scheduler_->Submit(call, now_), IsOk());
    ASSERT_TRUE(scheduler_->End(*call, absl::CancelledError(), now_).has_value());
  }
}

// A worker that lost its core once must not shut the door.
TEST_F(SchedulerTest, StillAdmitsWhatFitsAfterOneBatchThatTookForEver) {
  ASSERT_THAT(Submit({10}), IsOk());
  Run(Take(), absl::Hours(1));
  EXPECT_THAT(Submit({10}, absl::Seconds(12)), IsOk());
}

TEST_F(SchedulerTest, LearnsThatTheMachineIsSlower) {
  for (int batch = 0; batch < 50; ++batch) {
    ASSERT_THAT(Submit({10}), IsOk());
    Run(Take(), absl::Seconds(30));
  }
  EXPECT_THAT(Submit({10}, absl::Seconds(25)), StatusIs(absl::StatusCode::kDeadlineExceeded));
  EXPECT_NEAR(scheduler_->Snapshot(now_).cost.correction(), 3, 0.1);
}

// ---- Abandoned batches --------------------------------------------------------------------------

TEST_F(SchedulerTest, TakesABatchForAbandonedWhenEveryCallOfItHasEndedOrRunOutOfTime) {
  const auto cancelled = MakeCall({1});
  const auto brief = MakeCall({1}, absl::Seconds(8));
  ASSERT_THAT(scheduler_->Submit(cancelled, now_), IsOk());
  ASSERT_THAT(scheduler_->Submit(brief, now_), IsOk());
  const Scheduler::Batch batch = Take();
  ASSERT_THAT(batch.slots, SizeIs(2));
  EXPECT_FALSE(scheduler_->Abandoned(batch.slots, now_));
  ASSERT_TRUE(scheduler_->End(*cancelled, absl::CancelledError(), now_).has_value());
  EXPECT_FALSE(scheduler_->Abandoned(batch.slots, now_ + absl::Seconds(8) - kTick));
  EXPECT_TRUE(scheduler_->Abandoned(batch.slots, now_ + absl::Seconds(8)));
}

}  // namespace
}  // namespace encoderd
