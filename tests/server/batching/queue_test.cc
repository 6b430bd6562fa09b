// Goal: sequences leave the queue in the order and in the company that the policy says, and its
//       counts are those of what is in it.
// Method: one queue filled and emptied by hand, in one thread.
#include "server/batching/queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/batching/policy.h"
#include "tests/server/batching/fakes.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Time kNow = absl::UnixEpoch();

std::shared_ptr<FakeCall> MakeCall(std::string name, std::vector<int64_t> tokens,
                                   Priority priority = Priority::kInteractive,
                                   absl::Time deadline = absl::InfiniteFuture()) {
  return std::make_shared<FakeCall>(CallInfo{.sequences = OfTokens(tokens),
                                             .priority = priority,
                                             .arrival = kNow,
                                             .deadline = deadline},
                                    std::move(name));
}

struct OwnModel {
  CostModel own_model;
};

// A queue with a cost model of its own: by default one that predicts nothing.
class TestQueue : private OwnModel, public CallQueue {
 public:
  explicit TestQueue(int64_t max_batch_tokens, const CostCoefficients& cost = {},
                     bool predict_deadlines = true)
      : OwnModel{CostModel(cost)},
        CallQueue({.workers = 1,
                   .max_batch_tokens = max_batch_tokens,
                   .predict_deadlines = predict_deadlines},
                  own_model) {}
};

// The next batch when so many workers are idle, by names.
std::vector<std::string> TakeNames(CallQueue& queue, int idle_workers = 1) {
  std::vector<std::string> names;
  for (const Slot& slot : queue.Take(kNow, idle_workers).slots) {
    names.push_back(static_cast<const FakeCall&>(*slot.call).name() +
                    std::to_string(slot.sequence));
  }
  return names;
}

TEST(CallQueueTest, GivesNothingWhenEmpty) {
  TestQueue queue(512);
  const CallQueue::Batch batch = queue.Take(kNow, 1);
  EXPECT_THAT(batch.slots, IsEmpty());
  EXPECT_THAT(batch.expired, IsEmpty());
  EXPECT_EQ(queue.OldestArrival(), absl::InfiniteFuture());
}

TEST(CallQueueTest, FillsABatchExactly) {
  TestQueue queue(512);
  queue.Add(MakeCall("a", {100, 200}));
  queue.Add(MakeCall("b", {212, 1}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0", "a1", "b0"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("b1"));
}

TEST(CallQueueTest, LeavesTheOneThatWouldBeOneTokenOver) {
  TestQueue queue(512);
  queue.Add(MakeCall("a", {500}));
  queue.Add(MakeCall("b", {13}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("b0"));
}

TEST(CallQueueTest, RunsASequenceLongerThanABatchAloneAndInItsTurn) {
  TestQueue queue(512);
  queue.Add(MakeCall("a", {10}));
  queue.Add(MakeCall("long", {513}));
  queue.Add(MakeCall("b", {10}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0", "b0"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("long0"));
}

TEST(CallQueueTest, RunsALongSequenceEvenIfShortOnesKeepComing) {
  TestQueue queue(512);
  queue.Add(MakeCall("a", {10}));
  queue.Add(MakeCall("long", {4096}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0"));
  queue.Add(MakeCall("b", {10}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("long0"));
}

TEST(CallQueueTest, LetsAShortSequenceWaitForOneOfTwoLongOnes) {
  TestQueue queue(512);
  queue.Add(MakeCall("long", {4096, 4096, 4096}));
  queue.Add(MakeCall("short", {10}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("long0"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("short0"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("long1"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("long2"));
}

// The bound of batcher.h, n + m + 2 batches for n older ones, m of them long, less the one for a
// long one that led before.
TEST(CallQueueTest, LetsALongSequenceWaitForItsElders) {
  TestQueue queue(512);
  queue.Add(MakeCall("old", {400, 400}));
  queue.Add(MakeCall("long", {4096, 4096, 4096}));
  std::string order;
  for (int batch = 0; batch < 7; ++batch) {
    queue.Add(MakeCall("new", {512}));
    order += TakeNames(queue).at(0).at(0);
  }
  EXPECT_EQ(order, "oolnlnl");  // the last long one: n = 4, m = 2
}

TEST(CallQueueTest, TakesTheShortSequencesOfACallApartFromItsLongOnes) {
  TestQueue queue(512);
  queue.Add(MakeCall("a", {10, 4096, 20}));
  EXPECT_EQ(queue.calls(), 1);
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0", "a2"));
  EXPECT_EQ(queue.calls(), 1);
  EXPECT_THAT(TakeNames(queue), ElementsAre("a1"));
  EXPECT_EQ(queue.calls(), 0);
}

TEST(CallQueueTest, FindsWorkWhenAllThatWereToLeadHaveExpired) {
  TestQueue queue(512);
  queue.Add(MakeCall("late", {10}, Priority::kInteractive, kNow));
  queue.Add(MakeCall("long", {4096}));
  queue.Add(MakeCall("bulk", {10}, Priority::kBulk));
  EXPECT_THAT(TakeNames(queue), ElementsAre("long0"));
  queue.Add(MakeCall("late", {4096}, Priority::kInteractive, kNow));
  EXPECT_THAT(TakeNames(queue), ElementsAre("bulk0"));
}

// 1 ms a token, and 10 us for each pair of tokens: 128 tokens of one sequence take 292 ms.
constexpr CostCoefficients kCost = {.per_token = 1e-3, .per_square = 1e-5};

TEST(CallQueueTest, TakesFewerTokensOfSequencesWhoseSquaresCostMore) {
  TestQueue queue(512, kCost);  // at most 1.5 · (512 ms + 512 · 128 · 10 us) = 1751 ms
  queue.Add(MakeCall("short", std::vector<int64_t>(5, 100)));
  EXPECT_THAT(TakeNames(queue), ElementsAre("short0", "short1", "short2", "short3", "short4"));
  queue.Add(MakeCall("mid", {256, 256}));  // 911 ms each: the second one would be too much
  EXPECT_THAT(TakeNames(queue), ElementsAre("mid0"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("mid1"));
}

TEST(CallQueueTest, GivesUpWhatCannotEndInTimeAndRunsWhatJustCan) {
  const absl::Duration cost = absl::Milliseconds(100) + 100 * 100 * absl::Microseconds(10);
  TestQueue queue(512, kCost);
  const auto hopeless =
      MakeCall("h", {100}, Priority::kInteractive, kNow + cost - absl::Nanoseconds(1));
  queue.Add(hopeless);
  queue.Add(MakeCall("a", {100}, Priority::kInteractive, kNow + cost));
  const CallQueue::Batch batch = queue.Take(kNow, 1);
  EXPECT_THAT(batch.hopeless, ElementsAre(hopeless));
  EXPECT_THAT(batch.expired, IsEmpty());
  ASSERT_EQ(batch.slots.size(), 1);
  EXPECT_EQ(static_cast<const FakeCall&>(*batch.slots[0].call).name(), "a");
}

// The long sequence of `e` leads, because the older one has expired, and makes the batch full; its
// short ones would not be in time.
TEST(CallQueueTest, NeverDropsACallThatIsInTheBatch) {
  TestQueue queue(512, {.per_token = 1e-3});
  const auto expired = MakeCall("c", {600}, Priority::kInteractive, kNow);
  const auto e = MakeCall("e", {600, 500, 500}, Priority::kInteractive, kNow + absl::Seconds(0.9));
  queue.Add(expired);
  queue.Add(e);
  const CallQueue::Batch batch = queue.Take(kNow, 1);
  ASSERT_EQ(batch.slots.size(), 1);
  EXPECT_EQ(batch.slots[0].call, e);
  EXPECT_EQ(batch.slots[0].sequence, 0);
  EXPECT_THAT(batch.expired, ElementsAre(expired));
  EXPECT_THAT(batch.hopeless, IsEmpty());
  EXPECT_THAT(queue.Take(kNow, 1).hopeless, ElementsAre(e));
  EXPECT_EQ(queue.sequences(), 0);
}

TEST(CallQueueTest, DropsNobodyOnceTheBatchIsFull) {
  TestQueue queue(512);
  queue.Add(MakeCall("a", {512}));
  const auto late = MakeCall("late", {10}, Priority::kInteractive, kNow);
  queue.Add(late);
  EXPECT_THAT(queue.Take(kNow, 1).expired, IsEmpty());
  EXPECT_THAT(queue.Take(kNow, 1).expired, ElementsAre(late));
}

TEST(CallQueueTest, RunsWhatItPredictsToBeLateWhenToldNotToPredictOrAsAProbe) {
  TestQueue without(512, kCost, /*predict_deadlines=*/false);
  without.Add(MakeCall("a", {100}, Priority::kInteractive, kNow + absl::Nanoseconds(1)));
  EXPECT_THAT(TakeNames(without), ElementsAre("a0"));
  TestQueue queue(512, kCost);
  queue.Add(MakeCall("a", {100}, Priority::kInteractive, kNow + absl::Nanoseconds(1)),
            /*probe=*/true);
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0"));
}

TEST(CallQueueTest, LetsNobodyJoinABatchWhoWouldMakeItLate) {
  TestQueue queue(512, kCost);
  queue.Add(MakeCall("urgent", {100}, Priority::kInteractive, kNow + absl::Milliseconds(250)));
  queue.Add(MakeCall("b", {100, 10}));  // 200 ms and 11 ms
  EXPECT_THAT(TakeNames(queue), ElementsAre("urgent0", "b1"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("b0"));
}

TEST(CallQueueTest, FillsUpFromBehindASequenceThatDoesNotFit) {
  TestQueue queue(512);
  queue.Add(MakeCall("a", {400, 200, 100}));
  queue.Add(MakeCall("b", {12}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0", "a2", "b0"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("a1"));
}

TEST(CallQueueTest, StopsLookingAfterTheBoundedNumber) {
  TestQueue queue(512);
  queue.Add(MakeCall("first", {500}));
  queue.Add(MakeCall("big", std::vector<int64_t>(kMaxPassedOver + 1, 100)));
  queue.Add(MakeCall("fits", {12}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("first0"));
}

TEST(CallQueueTest, KeepsTheOrderOfCallsAndOfTheirSequences) {
  TestQueue queue(200);
  for (const char* name : {"a", "b", "c"}) queue.Add(MakeCall(name, {100, 100}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0", "a1"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("b0", "b1"));
  EXPECT_THAT(TakeNames(queue), ElementsAre("c0", "c1"));
}

TEST(CallQueueTest, LetsBulkLeadEveryFourthBatch) {
  TestQueue queue(100);
  queue.Add(MakeCall("i", std::vector<int64_t>(8, 100)));
  queue.Add(MakeCall("b", std::vector<int64_t>(8, 100), Priority::kBulk));
  std::string order;
  for (int batch = 0; batch < 12; ++batch) order += TakeNames(queue).at(0).at(0);
  EXPECT_EQ(order, "iiibiiibiibb");
}

TEST(CallQueueTest, DoesNotSaveUpTurnsForBulkThatWasNotWaiting) {
  TestQueue queue(100);
  queue.Add(MakeCall("i", std::vector<int64_t>(9, 100)));
  for (int batch = 0; batch < 5; ++batch) TakeNames(queue);
  queue.Add(MakeCall("b", {100}, Priority::kBulk));
  EXPECT_THAT(TakeNames(queue), ElementsAre("i5"));
}

TEST(CallQueueTest, FillsTheRestOfABatchFromTheOtherLine) {
  TestQueue queue(512);
  queue.Add(MakeCall("b", {100, 100}, Priority::kBulk));
  queue.Add(MakeCall("i", {400}));
  EXPECT_THAT(TakeNames(queue), ElementsAre("i0", "b0"));
}

TEST(CallQueueTest, SharesALoneCallAmongIdleWorkers) {
  TestQueue queue(512);
  queue.Add(MakeCall("a", {128, 128, 128, 128}));
  EXPECT_THAT(TakeNames(queue, /*idle_workers=*/2), ElementsAre("a0", "a1"));
  EXPECT_THAT(TakeNames(queue, /*idle_workers=*/1), ElementsAre("a2", "a3"));
}

TEST(CallQueueTest, DropsExpiredCallsWithoutRunningThem) {
  TestQueue queue(512);
  const auto late = MakeCall("late", {10, 10}, Priority::kInteractive, kNow);
  queue.Add(late);
  queue.Add(MakeCall("a", {10}, Priority::kInteractive, kNow + absl::Nanoseconds(1)));
  const CallQueue::Batch batch = queue.Take(kNow, 1);
  EXPECT_THAT(batch.expired, ElementsAre(late));
  ASSERT_EQ(batch.slots.size(), 1);
  EXPECT_EQ(static_cast<const FakeCall&>(*batch.slots[0].call).name(), "a");
  EXPECT_EQ(queue.sequences(), 0);
}

TEST(CallQueueTest, CountsWhatIsInIt) {
  TestQueue queue(100, {.per_token = 1e-3});
  const auto a = MakeCall("a", {100, 200});
  const auto b = MakeCall("b", {300}, Priority::kBulk);
  queue.Add(a);
  queue.Add(b);
  EXPECT_EQ(queue.calls(), 2);
  EXPECT_EQ(queue.sequences(), 3);
  EXPECT_EQ(queue.tokens(), 600);
  EXPECT_EQ(queue.Cost(Priority::kInteractive), absl::Milliseconds(300));
  EXPECT_EQ(queue.Cost(Priority::kBulk), absl::Milliseconds(300));

  // A call that has begun is still there with the rest of it.
  EXPECT_THAT(TakeNames(queue), ElementsAre("a0"));
  EXPECT_EQ(queue.calls(), 2);
  EXPECT_EQ(queue.tokens(), 500);

  queue.Remove(*a);
  queue.Remove(*a);
  EXPECT_EQ(queue.calls(), 1);
  EXPECT_EQ(queue.sequences(), 1);
  EXPECT_EQ(queue.tokens(), 300);
  EXPECT_EQ(queue.Cost(Priority::kInteractive), absl::ZeroDuration());
  queue.Remove(*b);
  EXPECT_EQ(queue.calls(), 0);
  EXPECT_EQ(queue.tokens(), 0);
}

TEST(CallQueueTest, KnowsTheOldestArrivalOfBothLines) {
  TestQueue queue(512);
  for (int seconds : {5, 3}) {
    queue.Add(std::make_shared<FakeCall>(
        CallInfo{.sequences = {{.tokens = 1}},
                 .priority = seconds == 3 ? Priority::kBulk : Priority::kInteractive,
                 .arrival = absl::FromUnixSeconds(seconds)}));
  }
  EXPECT_EQ(queue.OldestArrival(), absl::FromUnixSeconds(3));
}

}  // namespace
}  // namespace encoderd
