// Goal: calls are counted where they are due and answers where they come; a call that failed is
// never a quick one.
// Method: a handful of records whose numbers are worked out by hand.
#include "deploy/client/load/load_result.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace encoderd::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

constexpr absl::Duration kSecond = absl::Seconds(1);

CallRecord Answered(double due, double latency) {
  return {.due = due * kSecond,
          .lag = absl::Microseconds(10),
          .latency = latency * kSecond,
          .queue_us = 7,
          .compute_us = 9,
          .tokens = 100,
          .request_bytes = 10,
          .response_bytes = 1000,
          .sent = true};
}

CallRecord Failed(double due, grpc::StatusCode code) {
  CallRecord record = Answered(due, 0.001);
  record.code = code;
  return record;
}

TEST(SummariseLoadTest, CountsCallsWhereTheyAreDueAndAnswersWhereTheyCome) {
  // A window of two seconds; deadline one second.
  const LoadResult result = SummariseLoad(
      {
          Answered(-3, 1),    // of the warm-up alone
          Answered(-0.5, 1),  // an answer within the window
          Answered(0, 0.5),
          Answered(0.5, 1.25),  // too late
          Answered(1.5, 1),     // due within, answered after it: in time, and no throughput
          Failed(1.6, grpc::StatusCode::RESOURCE_EXHAUSTED),
          {.due = 1.7 * kSecond},  // not sent
          Answered(2, 0.25),       // due after the window
      },
      2 * kSecond, kSecond);
  EXPECT_EQ(result.offered(), 5);
  EXPECT_EQ(result.answered, 3);
  EXPECT_EQ(result.in_time, 2);
  EXPECT_THAT(result.codes,
              ElementsAre(Pair("NOT_SENT", 1), Pair("OK", 3), Pair("RESOURCE_EXHAUSTED", 1)));
  EXPECT_EQ(result.offered_rate, 2.5);
  EXPECT_EQ(result.achieved_rate, 1.5);
  EXPECT_EQ(result.goodput_rate, 1);
  EXPECT_EQ(result.goodput_fraction(), 0.4);
  EXPECT_EQ(result.tokens_rate, 150);
  EXPECT_EQ(result.request_bytes_rate, 15);
  EXPECT_EQ(result.response_bytes_rate, 1500);
  EXPECT_EQ(result.latency.count, 3);
  EXPECT_EQ(result.latency.p50, kSecond);
  EXPECT_EQ(result.latency.max, 1.25 * kSecond);
  EXPECT_EQ(result.queue.p50, absl::Microseconds(7));
  EXPECT_EQ(result.compute.p99, absl::Microseconds(9));
  EXPECT_EQ(result.lag.count, 4);
}

TEST(SummariseLoadTest, TakesRunsWithoutAnyCall) {
  const LoadResult result = SummariseLoad({}, kSecond, kSecond);
  EXPECT_EQ(result.offered(), 0);
  EXPECT_EQ(result.goodput_fraction(), 0);
  EXPECT_THAT(result.codes, IsEmpty());
  EXPECT_FALSE(result.generator_lagged());
  EXPECT_EQ(result.PercentileOfAll(0.99), absl::InfiniteDuration());
}

TEST(LoadResultTest, ACallThatFailedNeverEnds) {
  std::vector<CallRecord> records(98, Answered(0, 0.1));
  records.push_back(Answered(0, 0.2));
  records.push_back(Failed(0, grpc::StatusCode::RESOURCE_EXHAUSTED));
  LoadResult result = SummariseLoad(records, kSecond, kSecond);
  EXPECT_EQ(result.PercentileOfAll(0.98), 0.1 * kSecond);
  EXPECT_EQ(result.PercentileOfAll(0.99), 0.2 * kSecond);
  EXPECT_EQ(result.PercentileOfAll(0.991), absl::InfiniteDuration());
  EXPECT_EQ(result.MissesOf(0.2 * kSecond), 1);
  EXPECT_EQ(result.MissesOf(0.1 * kSecond), 2);
  EXPECT_EQ(result.MissesOf(0.05 * kSecond), 100);
}

TEST(LoadResultTest, BlamesTheGeneratorForItsLag) {
  std::vector<CallRecord> records(100, Answered(0, 0.1));
  EXPECT_FALSE(SummariseLoad(records, kSecond, kSecond).generator_lagged());
  // A tenth of the latency is the most that passes …
  for (CallRecord& record : records) record.lag = 0.01 * kSecond;
  EXPECT_FALSE(SummariseLoad(records, kSecond, kSecond).generator_lagged());
  for (CallRecord& record : records) record.lag = 0.011 * kSecond;
  EXPECT_TRUE(SummariseLoad(records, kSecond, kSecond).generator_lagged());
  // … except where it is too little to matter.
  for (CallRecord& record : records) {
    record.lag = 0.001 * kSecond;
    record.latency = 0.002 * kSecond;
  }
  EXPECT_FALSE(SummariseLoad(records, kSecond, kSecond).generator_lagged());
  records.front().sent = false;
  EXPECT_TRUE(SummariseLoad(records, kSecond, kSecond).generator_lagged());
}

}  // namespace
}  // namespace encoderd::client
