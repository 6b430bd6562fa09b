// Goal: the search ends near the true capacity, in few measurements, whatever the server is like.
// Method: simulated servers of known capacity.
#include "deploy/client/load/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status_matchers.h"

namespace encoderd::client {
namespace {

using ::absl_testing::StatusIs;

struct Search {
  SweepResult result;
  std::vector<double> rates;
};

Search Find(const SweepOptions& options, double capacity) {
  Search search;
  search.result = *FindHighestRate(options, [&](double rate) -> absl::StatusOr<bool> {
    search.rates.push_back(rate);
    return rate <= capacity;
  });
  return search;
}

TEST(FindHighestRateTest, SettlesNearTheCapacity) {
  for (const double capacity : {51.0, 65.0, 80.0, 99.9, 100.0, 113.0, 20.0}) {
    const Search search = Find({.start = 50, .most = 10000, .tries = 1}, capacity);
    EXPECT_TRUE(search.result.settled) << capacity;
    EXPECT_LE(search.result.best, capacity);
    EXPECT_GE(search.result.best, capacity / 1.02);
    EXPECT_GT(search.result.failed, capacity);
    EXPECT_LE(search.rates.size(), 9u) << capacity;
  }
}

TEST(FindHighestRateTest, StartsWhereItIsTold) {
  EXPECT_EQ(Find({.start = 50, .most = 10000, .tries = 1}, 80).rates,
            (std::vector<double>{50, 75, 112.5, 93.75, 84.375, 79.6875, 82.03125, 80.859375}));
}

TEST(FindHighestRateTest, StopsAtTheMost) {
  const Search search = Find({.start = 50, .most = 100}, 1e9);
  EXPECT_EQ(search.result.best, 100);
  EXPECT_TRUE(search.result.settled);
  EXPECT_EQ(search.rates, (std::vector<double>{50, 75, 100}));
}

TEST(FindHighestRateTest, GivesUpAfterSoManyRuns) {
  const Search none = Find({.start = 64, .most = 100, .tries = 1, .max_runs = 4}, 0.001);
  EXPECT_EQ(none.rates, (std::vector<double>{64, 32, 16, 8}));
  EXPECT_EQ(none.result.best, 0);
  EXPECT_EQ(none.result.failed, 8);
  EXPECT_FALSE(none.result.settled);
  const Search few = Find({.start = 50, .most = 1000, .tries = 1, .max_runs = 3}, 80);
  EXPECT_EQ(few.result.best, 75);
  EXPECT_EQ(few.result.failed, 112.5);
  EXPECT_FALSE(few.result.settled);
}

TEST(FindHighestRateTest, MeasuresAMissAgain) {
  // The machine is disturbed in every fifth run; the capacity is 80.
  std::vector<double> rates;
  const auto disturbed = [&](double rate) -> absl::StatusOr<bool> {
    rates.push_back(rate);
    return rate <= 80 && rates.size() % 5 != 0;
  };
  const SweepResult result =
      *FindHighestRate({.start = 40, .most = 1000, .precision = 0.1, .tries = 2}, disturbed);
  EXPECT_EQ(rates, (std::vector<double>{40, 60, 90, 90, 75, 75, 82.5, 82.5}));
  EXPECT_EQ(result.best, 75);
  EXPECT_EQ(result.failed, 82.5);
}

TEST(FindHighestRateTest, PassesErrorsOn) {
  EXPECT_THAT(FindHighestRate(
                  {.start = 1, .most = 2},
                  [](double) -> absl::StatusOr<bool> { return absl::UnavailableError("gone"); }),
              StatusIs(absl::StatusCode::kUnavailable, "gone"));
}

}  // namespace
}  // namespace encoderd::client
