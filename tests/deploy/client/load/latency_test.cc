// Goal: percentiles are exact and always measured values; the confidence is that of the binomial
// distribution.
// Method: small sets worked out by hand, published sample counts.
#include "deploy/client/load/latency.h"

#include <gtest/gtest.h>

#include <numeric>

namespace encoderd::client {
namespace {

std::vector<absl::Duration> Counting(int count) {
  std::vector<absl::Duration> values;
  for (int i = 1; i <= count; ++i) values.push_back(absl::Milliseconds(i));
  return values;
}

TEST(PercentileTest, IsTheNearestRank) {
  const std::vector<absl::Duration> ten = Counting(10);
  EXPECT_EQ(Percentile(ten, 0.5), absl::Milliseconds(5));
  EXPECT_EQ(Percentile(ten, 0.51), absl::Milliseconds(6));
  EXPECT_EQ(Percentile(ten, 0.9), absl::Milliseconds(9));
  EXPECT_EQ(Percentile(ten, 0.91), absl::Milliseconds(10));
  EXPECT_EQ(Percentile(ten, 1e-9), absl::Milliseconds(1));
  EXPECT_EQ(Percentile(ten, 1), absl::Milliseconds(10));
  const std::vector<absl::Duration> thousand = Counting(1000);
  for (int rank = 1; rank <= 1000; ++rank) {  // no rounding error moves a rank
    EXPECT_EQ(Percentile(thousand, rank / 1000.0), absl::Milliseconds(rank));
  }
}

TEST(PercentileTest, TakesOneValueAndTies) {
  const std::vector<absl::Duration> one = {absl::Seconds(7)};
  EXPECT_EQ(Percentile(one, 0.001), absl::Seconds(7));
  EXPECT_EQ(Percentile(one, 0.999), absl::Seconds(7));
  const std::vector<absl::Duration> ties = {absl::Seconds(1), absl::Seconds(2), absl::Seconds(2),
                                            absl::Seconds(2)};
  EXPECT_EQ(Percentile(ties, 0.25), absl::Seconds(1));
  EXPECT_EQ(Percentile(ties, 0.26), absl::Seconds(2));
}

TEST(SummariseLatencyTest, SortsAndSummarises) {
  const LatencySummary summary =
      SummariseLatency({absl::Seconds(3), absl::Seconds(1), absl::Seconds(2)});
  EXPECT_EQ(summary.count, 3);
  EXPECT_EQ(summary.mean, absl::Seconds(2));
  EXPECT_EQ(summary.p50, absl::Seconds(2));
  EXPECT_EQ(summary.p90, absl::Seconds(3));
  EXPECT_EQ(summary.p999, absl::Seconds(3));
  EXPECT_EQ(summary.max, absl::Seconds(3));
  EXPECT_EQ(SummariseLatency({}).count, 0);
}

TEST(ConfidenceOfFewerMissesTest, NeedsThePublishedNumbersOfCalls) {
  EXPECT_LT(ConfidenceOfFewerMisses(0, 458, 0.01), 0.99);
  EXPECT_GE(ConfidenceOfFewerMisses(0, 459, 0.01), 0.99);
  EXPECT_LT(ConfidenceOfFewerMisses(0, 298, 0.01), 0.95);
  EXPECT_GE(ConfidenceOfFewerMisses(0, 299, 0.01), 0.95);
}

TEST(ConfidenceOfFewerMissesTest, IsOneMinusTheBinomialSum) {
  // Three calls, chance 1/2: no miss 1/8, at most one 4/8, at most two 7/8.
  EXPECT_NEAR(ConfidenceOfFewerMisses(0, 3, 0.5), 7.0 / 8, 1e-12);
  EXPECT_NEAR(ConfidenceOfFewerMisses(1, 3, 0.5), 4.0 / 8, 1e-12);
  EXPECT_NEAR(ConfidenceOfFewerMisses(2, 3, 0.5), 1.0 / 8, 1e-12);
  EXPECT_NEAR(ConfidenceOfFewerMisses(3, 3, 0.5), 0, 1e-12);
  // Exactly 1 % of many calls says nothing about being below 1 %: about one half.
  EXPECT_NEAR(ConfidenceOfFewerMisses(1000, 100000, 0.01), 0.5, 0.02);
  EXPECT_EQ(ConfidenceOfFewerMisses(0, 0, 0.01), 0);
}

}  // namespace
}  // namespace encoderd::client
