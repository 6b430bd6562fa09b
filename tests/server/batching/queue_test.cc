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
  return std::make_shared<FakeCall>(
      CallInfo{
          .tokens = std::move(tokens), .priority = priority, .arrival = kNow, .deadline = deadline},
      std::move(name));
}

// The next batch for a single worker, by names.
std::vector<std::string> TakeNames(CallQueue& queue, int64_t max_batch_tokens, int workers = 1) {
  std::vector<std::string> names;
  for (const Slot& slot : queue.Take(kNow, max_batch_tokens, workers).slots) {
    names.push_back(static_cast<const FakeCall&>(*slot.call).name() +
                    std::to_string(slot.sequence));
  }
  return names;
}

TEST(CallQueueTest, GivesNothingWhenEmpty) {
  CallQueue queue;
  const CallQueue::Batch batch = queue.Take(kNow, 512, 1);
  EXPECT_THAT(batch.slots, IsEmpty());
  EXPECT_THAT(batch.expired, IsEmpty());
  EXPECT_EQ(queue.OldestArrival(), absl::InfiniteFuture());
}

TEST(CallQueueTest, FillsABatchExactly) {
  CallQueue queue;
  queue.Add(MakeCall("a", {100, 200}));
  queue.Add(MakeCall("b", {212, 1}));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("a0", "a1", "b0"));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("b1"));
}

TEST(CallQueueTest, LeavesTheOneThatWouldBeOneTokenOver) {
  CallQueue queue;
  queue.Add(MakeCall("a", {500}));
  queue.Add(MakeCall("b", {13}));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("a0"));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("b0"));
}

TEST(CallQueueTest, RunsAnOversizeSequenceAloneAndInItsTurn) {
  CallQueue queue;
  queue.Add(MakeCall("a", {10}));
  queue.Add(MakeCall("long", {4096}));
  queue.Add(MakeCall("b", {10}));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("a0", "b0"));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("long0"));
}

TEST(CallQueueTest, RunsAnOversizeSequenceEvenIfSmallOnesKeepComing) {
  CallQueue queue;
  queue.Add(MakeCall("a", {10}));
  queue.Add(MakeCall("long", {4096}));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("a0"));
  queue.Add(MakeCall("b", {10}));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("long0"));
}

TEST(CallQueueTest, FillsUpFromBehindASequenceThatDoesNotFit) {
  CallQueue queue;
  queue.Add(MakeCall("a", {400, 200, 100}));
  queue.Add(MakeCall("b", {12}));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("a0", "a2", "b0"));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("a1"));
}

TEST(CallQueueTest, StopsLookingAfterTheBoundedNumber) {
  CallQueue queue;
  queue.Add(MakeCall("first", {500}));
  queue.Add(MakeCall("big", std::vector<int64_t>(kMaxPassedOver + 1, 100)));
  queue.Add(MakeCall("fits", {12}));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("first0"));
}

TEST(CallQueueTest, KeepsTheOrderOfCallsAndOfTheirSequences) {
  CallQueue queue;
  for (const char* name : {"a", "b", "c"}) queue.Add(MakeCall(name, {100, 100}));
  EXPECT_THAT(TakeNames(queue, 200), ElementsAre("a0", "a1"));
  EXPECT_THAT(TakeNames(queue, 200), ElementsAre("b0", "b1"));
  EXPECT_THAT(TakeNames(queue, 200), ElementsAre("c0", "c1"));
}

TEST(CallQueueTest, LetsBulkLeadEveryFourthBatch) {
  CallQueue queue;
  queue.Add(MakeCall("i", std::vector<int64_t>(8, 100)));
  queue.Add(MakeCall("b", std::vector<int64_t>(8, 100), Priority::kBulk));
  std::string order;
  for (int batch = 0; batch < 12; ++batch) order += TakeNames(queue, 100).at(0).at(0);
  EXPECT_EQ(order, "iiibiiibiibb");
}

TEST(CallQueueTest, DoesNotSaveUpTurnsForBulkThatWasNotWaiting) {
  CallQueue queue;
  queue.Add(MakeCall("i", std::vector<int64_t>(9, 100)));
  for (int batch = 0; batch < 5; ++batch) TakeNames(queue, 100);
  queue.Add(MakeCall("b", {100}, Priority::kBulk));
  EXPECT_THAT(TakeNames(queue, 100), ElementsAre("i5"));
}

TEST(CallQueueTest, FillsTheRestOfABatchFromTheOtherLine) {
  CallQueue queue;
  queue.Add(MakeCall("b", {100, 100}, Priority::kBulk));
  queue.Add(MakeCall("i", {400}));
  EXPECT_THAT(TakeNames(queue, 512), ElementsAre("i0", "b0"));
}

TEST(CallQueueTest, SharesALoneCallAmongIdleWorkers) {
  CallQueue queue;
  queue.Add(MakeCall("a", {128, 128, 128, 128}));
  EXPECT_THAT(TakeNames(queue, 512, /*workers=*/2), ElementsAre("a0", "a1"));
  EXPECT_THAT(TakeNames(queue, 512, /*workers=*/1), ElementsAre("a2", "a3"));
}

TEST(CallQueueTest, DropsExpiredCallsWithoutRunningThem) {
  CallQueue queue;
  const auto late = MakeCall("late", {10, 10}, Priority::kInteractive, kNow);
  queue.Add(late);
  queue.Add(MakeCall("a", {10}, Priority::kInteractive, kNow + absl::Nanoseconds(1)));
  const CallQueue::Batch batch = queue.Take(kNow, 512, 1);
  EXPECT_THAT(batch.expired, ElementsAre(late));
  ASSERT_EQ(batch.slots.size(), 1);
  EXPECT_EQ(static_cast<const FakeCall&>(*batch.slots[0].call).name(), "a");
  EXPECT_EQ(queue.sequences(), 0);
}

TEST(CallQueueTest, CountsWhatIsInIt) {
  CallQueue queue;
  const auto a = MakeCall("a", {100, 200});
  const auto b = MakeCall("b", {300}, Priority::kBulk);
  queue.Add(a);
  queue.Add(b);
  EXPECT_EQ(queue.calls(), 2);
  EXPECT_EQ(queue.sequences(), 3);
  EXPECT_EQ(queue.tokens(), 600);
  EXPECT_EQ(queue.TokensAhead(Priority::kInteractive), 300);
  EXPECT_EQ(queue.TokensAhead(Priority::kBulk), 600);

  // A call that has begun is still there with the rest of it.
  EXPECT_THAT(TakeNames(queue, 100), ElementsAre("a0"));
  EXPECT_EQ(queue.calls(), 2);
  EXPECT_EQ(queue.tokens(), 500);

  queue.Remove(*a);
  queue.Remove(*a);
  EXPECT_EQ(queue.calls(), 1);
  EXPECT_EQ(queue.sequences(), 1);
  EXPECT_EQ(queue.tokens(), 300);
  queue.Remove(*b);
  EXPECT_EQ(queue.calls(), 0);
  EXPECT_EQ(queue.tokens(), 0);
}

TEST(CallQueueTest, KnowsTheOldestArrivalOfBothLines) {
  CallQueue queue;
  for (int seconds : {5, 3}) {
    queue.Add(std::make_shared<FakeCall>(
        CallInfo{.tokens = {1},
                 .priority = seconds == 3 ? Priority::kBulk : Priority::kInteractive,
                 .arrival = absl::FromUnixSeconds(seconds)}));
  }
  EXPECT_EQ(queue.OldestArrival(), absl::FromUnixSeconds(3));
}

}  // namespace
}  // namespace encoderd
