// Goal: calls are due at the rate that was asked for, with the gaps of the process that was asked
// for.
// Method: schedules of a fixed seed, measured.
#include "deploy/client/load/arrivals.h"

#include <gtest/gtest.h>

#include <cmath>

namespace encoderd::client {
namespace {

TEST(ArrivalScheduleTest, SpacesEvenCallsWithoutDrift) {
  ArrivalSchedule schedule(Arrival::kEven, 3, 1);
  EXPECT_EQ(schedule.Next(), absl::ZeroDuration());
  absl::Duration last;
  for (int i = 0; i < 3000000; ++i) last = schedule.Next();
  EXPECT_EQ(last, absl::Seconds(1000000));
}

TEST(ArrivalScheduleTest, DrawsPoissonGaps) {
  constexpr int kCalls = 100000;
  constexpr double kRate = 200;
  ArrivalSchedule schedule(Arrival::kPoisson, kRate, 1);
  double last = 0, sum_of_squares = 0;
  int longer_than_mean = 0;
  for (int i = 0; i < kCalls; ++i) {
    const double now = absl::ToDoubleSeconds(schedule.Next());
    ASSERT_GE(now, last);
    const double gap = (now - last) * kRate;  // in mean gaps
    sum_of_squares += gap * gap;
    longer_than_mean += gap > 1;
    last = now;
  }
  // An exponential gap has mean 1, mean square 2, and is longer than its mean with chance 1/e. The
  // tolerances are four standard deviations.
  EXPECT_NEAR(last * kRate / kCalls, 1, 4 / std::sqrt(kCalls));
  EXPECT_NEAR(sum_of_squares / kCalls, 2, 4 * std::sqrt(20.0 / kCalls));
  EXPECT_NEAR(static_cast<double>(longer_than_mean) / kCalls, std::exp(-1),
              4 * 0.5 / std::sqrt(kCalls));
}

TEST(ArrivalScheduleTest, RepeatsItselfForTheSameSeedOnly) {
  ArrivalSchedule one(Arrival::kPoisson, 10, 7), same(Arrival::kPoisson, 10, 7);
  ArrivalSchedule other(Arrival::kPoisson, 10, 8);
  const absl::Duration first = one.Next();
  EXPECT_EQ(same.Next(), first);
  EXPECT_NE(other.Next(), first);
}

TEST(WithSpikeTest, BringsTheCallsOfItsPartCloserAndNoOthers) {
  const Spike spike = {.begin = absl::Seconds(10), .end = absl::Seconds(20), .factor = 4};
  const auto due = [&](double steady) {
    return absl::ToDoubleSeconds(WithSpike(absl::Seconds(steady), spike));
  };
  EXPECT_EQ(due(-3), -3);  // the warm-up
  EXPECT_EQ(due(9), 9);
  EXPECT_EQ(due(10), 10);
  EXPECT_EQ(due(14), 11);
  EXPECT_EQ(due(50), 20);  // 40 s worth of calls have come in 10
  EXPECT_EQ(due(51), 21);
}

}  // namespace
}  // namespace encoderd::client
