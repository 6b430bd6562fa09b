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

TEST(BatchPolicyTest, LetsTheOlderOfLongAndShortLead) {
  EXPECT_TRUE(LongLeads(true, true, /*long_is_older=*/true, /*long_led_last=*/false));
  EXPECT_FALSE(LongLeads(true, true, /*long_is_older=*/false, /*long_led_last=*/false));
  EXPECT_TRUE(LongLeads(false, true, false, true));
  EXPECT_FALSE(LongLeads(true, false, true, false));
}

TEST(BatchPolicyTest, LetsNoTwoLongOnesLeadInARowWhileAShortOneWaits) {
  EXPECT_FALSE(LongLeads(true, true, /*long_is_older=*/true, /*long_led_last=*/true));
}

constexpr absl::Duration kSecond = absl::Seconds(1);
constexpr BatchLimits kLimits = {.tokens = 512, .cost = kSecond};

// The verdict on a sequence that costs nothing.
Verdict JudgeTokens(int64_t sequences, int64_t tokens, int64_t next, int passed_over = 0) {
  return Judge({.sequences = sequences, .tokens = tokens}, {.tokens = tokens + next}, kLimits,
               absl::InfiniteDuration(), passed_over);
}

TEST(BatchPolicyTest, TakesTheFirstHoweverLong) {
  EXPECT_EQ(JudgeTokens(0, 0, 100000), Verdict::kTake);
  EXPECT_EQ(JudgeTokens(1, 100000, 1), Verdict::kFull);
}

TEST(BatchPolicyTest, FillsToTheTokenAndNotOneOver) {
  EXPECT_EQ(JudgeTokens(3, 500, 12), Verdict::kTake);
  EXPECT_EQ(JudgeTokens(3, 500, 13), Verdict::kPassOver);
  EXPECT_EQ(JudgeTokens(4, 512, 1), Verdict::kFull);
}

TEST(BatchPolicyTest, FillsToTheCostOfAFullBatchAndNoFurther) {
  const auto judge = [](absl::Duration cost, absl::Duration joined) {
    return Judge({.sequences = 1, .tokens = 100, .cost = cost}, {.tokens = 110, .cost = joined},
                 kLimits, absl::InfiniteDuration(), 0);
  };
  EXPECT_EQ(judge(kSecond / 2, kSecond), Verdict::kTake);
  EXPECT_EQ(judge(kSecond / 2, kSecond + absl::Nanoseconds(1)), Verdict::kPassOver);
  EXPECT_EQ(judge(kSecond, kSecond), Verdict::kFull);
}

TEST(BatchPolicyTest, LetsNobodyJoinWhoWouldMakeSomebodyLate) {
  const auto judge = [](absl::Duration batch_left, absl::Duration own_left) {
    BatchLimits limits = kLimits;
    limits.time_left = batch_left;
    return Judge({.sequences = 1, .tokens = 100, .cost = kSecond / 4},
                 {.tokens = 110, .cost = kSecond / 2}, limits, own_left, 0);
  };
  EXPECT_EQ(judge(kSecond / 2, kSecond / 2), Verdict::kTake);
  EXPECT_EQ(judge(kSecond / 3, kSecond), Verdict::kPassOver);
  EXPECT_EQ(judge(kSecond, kSecond / 3), Verdict::kPassOver);
}

TEST(BatchPolicyTest, LooksPastALimitedNumberOfSequences) {
  EXPECT_EQ(JudgeTokens(1, 500, 13, kMaxPassedOver - 1), Verdict::kPassOver);
  EXPECT_EQ(JudgeTokens(1, 500, 13, kMaxPassedOver), Verdict::kFull);
  EXPECT_EQ(JudgeTokens(1, 500, 12, kMaxPassedOver), Verdict::kTake);
}

TEST(BatchPolicyTest, HoldsBackOnlyABatchThatIsNotFullAndOnlyForTheWait) {
  const absl::Time arrival = absl::FromUnixSeconds(100);
  EXPECT_EQ(StartTime(10, arrival, 512, absl::ZeroDuration()), absl::InfinitePast());
  EXPECT_EQ(StartTime(512, arrival, 512, absl::Seconds(1)), absl::InfinitePast());
  EXPECT_EQ(StartTime(511, arrival, 512, absl::Seconds(1)), arrival + absl::Seconds(1));
}

TEST(DeadlinePolicyTest, CountsBulksTurnsAheadOfInteractiveCallsAndEverythingAheadOfBulk) {
  EXPECT_EQ(WorkAhead(Priority::kBulk, 6 * kSecond, 9 * kSecond), 15 * kSecond);
  EXPECT_EQ(WorkAhead(Priority::kInteractive, 6 * kSecond, 9 * kSecond), 8 * kSecond);
  EXPECT_EQ(WorkAhead(Priority::kInteractive, 6 * kSecond, kSecond), 7 * kSecond);
  EXPECT_EQ(WorkAhead(Priority::kInteractive, absl::ZeroDuration(), 9 * kSecond),
            absl::ZeroDuration());
}

TEST(DeadlinePolicyTest, FillsTheWorkersUpFromTheFirstThatIsFree) {
  const absl::Duration none = absl::ZeroDuration();
  EXPECT_EQ(TimeUntilFree({none}, none), none);
  EXPECT_EQ(TimeUntilFree({kSecond, none}, none), none);
  EXPECT_EQ(TimeUntilFree({2 * kSecond, kSecond}, none), kSecond);
  EXPECT_EQ(TimeUntilFree({2 * kSecond, kSecond}, kSecond / 2), 1.5 * kSecond);
  EXPECT_EQ(TimeUntilFree({2 * kSecond, kSecond}, kSecond), 2 * kSecond);
  EXPECT_EQ(TimeUntilFree({2 * kSecond, kSecond}, 3 * kSecond), 3 * kSecond);
  EXPECT_EQ(TimeUntilFree({kSecond, kSecond, 4 * kSecond}, 8 * kSecond), 14 * kSecond / 3);
}

TEST(DeadlinePolicyTest, SpreadsACallOverTheWorkersDownToItsLongestPiece) {
  EXPECT_EQ(LeastTime(8 * kSecond, kSecond, 4), 2 * kSecond);
  EXPECT_EQ(LeastTime(8 * kSecond, 3 * kSecond, 4), 3 * kSecond);
}

// In seconds, of a full batch of 2 s.
Prospect ProspectOfSeconds(double left, double own, double wait) {
  return ProspectOf(absl::Seconds(left), absl::Seconds(own), absl::Seconds(own),
                    absl::Seconds(wait), 2 * kSecond);
}

TEST(DeadlinePolicyTest, TellsTheHopelessFromThoseThatOnlyTheQueueHolds) {
  EXPECT_EQ(ProspectOfSeconds(1, 1, 0), Prospect::kInTime);
  EXPECT_EQ(ProspectOfSeconds(1, 1.001, 0), Prospect::kHopeless);
  EXPECT_EQ(ProspectOfSeconds(1, 2, 9), Prospect::kHopeless);
  EXPECT_EQ(ProspectOfSeconds(9, 3, 5), Prospect::kInTime);
  EXPECT_EQ(ProspectOfSeconds(9, 3, 5.001), Prospect::kNotBehindThisQueue);
  EXPECT_EQ(ProspectOf(absl::InfiniteDuration(), kSecond, kSecond, 5 * kSecond, kSecond),
            Prospect::kInTime);
}

TEST(DeadlinePolicyTest, IsHopelessByAnIdleServersTimeAndLateByThisOnes) {
  const absl::Duration left = kSecond, on_this_one = 1.5 * kSecond;
  EXPECT_EQ(ProspectOf(left, /*least=*/kSecond, on_this_one, absl::ZeroDuration(), kSecond),
            Prospect::kNotBehindThisQueue);
  EXPECT_EQ(ProspectOf(left, /*least=*/1.001 * kSecond, on_this_one, absl::ZeroDuration(), kSecond),
            Prospect::kHopeless);
}

TEST(DeadlinePolicyTest, LetsIdleCoresShareASequenceDownToAUsefulSize) {
  EXPECT_EQ(SharingCores(1, 4), 1);
  EXPECT_EQ(SharingCores(2 * kMinSharedTokens - 1, 4), 1);
  EXPECT_EQ(SharingCores(2 * kMinSharedTokens, 4), 2);
  EXPECT_EQ(SharingCores(100 * kMinSharedTokens, 4), 4);
  EXPECT_EQ(SharingCores(100 * kMinSharedTokens, 1), 1);
}

TEST(DeadlinePolicyTest, CountsTheCompanyThatAShortCallWillHave) {
  EXPECT_EQ(ProspectOfSeconds(8, 1, 5), Prospect::kInTime);
  EXPECT_EQ(ProspectOfSeconds(7.999, 1, 5), Prospect::kNotBehindThisQueue);
  // No more of it than there is.
  EXPECT_EQ(ProspectOfSeconds(1.2 + 1, 0.5, 1), Prospect::kInTime);
  EXPECT_EQ(ProspectOf(kSecond, kSecond / 2, kSecond / 2, absl::ZeroDuration(),
                       absl::InfiniteDuration()),
            Prospect::kInTime);
}

}  // namespace
}  // namespace encoderd
