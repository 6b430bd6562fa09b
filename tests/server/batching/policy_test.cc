// Goal: the scheduling policy decides as its header says.
// Method: tables over its pure functions.
#include "server/batching/policy.h"

#include <gtest/gtest.h>

namespace encoderd {
namespace {

TEST(BatchPolicyTest, GivesBulkEveryFourthTurnWhileBothWait) {
  EXPECT_EQ(LeadingLine(true, true, 0), Priority::kInteractive);
  EXPECT_EQ(LeadingLine(true, true, 2), Priority::kInteractive);
  EXPECT_EQ(LeadingLine(true, true, 3), Priority::kBulk);
  EXPECT_EQ(LeadingLine(true, true, 9), Priority::kBulk);
}

TEST(BatchPolicyTest, GivesALineThatWaitsAloneEveryTurn) {
  EXPECT_EQ(LeadingLine(true, false, 9), Priority::kInteractive);
  EXPECT_EQ(LeadingLine(false, true, 0), Priority::kBulk);
}

TEST(BatchPolicyTest, SpreadsWorkOverIdleWorkersDownToAUsefulSize) {
  EXPECT_EQ(BatchBudget(512, 400, 1), 400);
  EXPECT_EQ(BatchBudget(512, 400, 2), 200);
  EXPECT_EQ(BatchBudget(512, 401, 2), 201);
  EXPECT_EQ(BatchBudget(512, 400, 64), kMinSharedTokens);
  EXPECT_EQ(BatchBudget(512, 100000, 2), 512);
  EXPECT_EQ(BatchBudget(16, 100000, 2), 16);
}

TEST(BatchPolicyTest, TakesTheFirstHoweverLong) {
  EXPECT_EQ(Judge({}, 100000, 512), Verdict::kTake);
  EXPECT_EQ(Judge({.sequences = 1, .tokens = 100000}, 1, 512), Verdict::kFull);
}

TEST(BatchPolicyTest, FillsToTheTokenAndNotOneOver) {
  EXPECT_EQ(Judge({.sequences = 3, .tokens = 500}, 12, 512), Verdict::kTake);
  EXPECT_EQ(Judge({.sequences = 3, .tokens = 500}, 13, 512), Verdict::kPassOver);
  EXPECT_EQ(Judge({.sequences = 4, .tokens = 512}, 1, 512), Verdict::kFull);
}

TEST(BatchPolicyTest, LooksPastALimitedNumberOfSequences) {
  const BatchSoFar last = {.sequences = 1, .tokens = 500, .passed_over = kMaxPassedOver - 1};
  EXPECT_EQ(Judge(last, 13, 512), Verdict::kPassOver);
  const BatchSoFar past = {.sequences = 1, .tokens = 500, .passed_over = kMaxPassedOver};
  EXPECT_EQ(Judge(past, 13, 512), Verdict::kFull);
  EXPECT_EQ(Judge(past, 12, 512), Verdict::kTake);
}

TEST(BatchPolicyTest, HoldsBackOnlyABatchThatIsNotFullAndOnlyForTheWait) {
  const absl::Time arrival = absl::FromUnixSeconds(100);
  EXPECT_EQ(StartTime(10, arrival, 512, absl::ZeroDuration()), absl::InfinitePast());
  EXPECT_EQ(StartTime(512, arrival, 512, absl::Seconds(1)), absl::InfinitePast());
  EXPECT_EQ(StartTime(511, arrival, 512, absl::Seconds(1)), arrival + absl::Seconds(1));
}

}  // namespace
}  // namespace encoderd
