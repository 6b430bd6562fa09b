// Goal: the server keeps answering in time when it is asked for more than it can do, nobody starves,
//       and no work is done for callers who have gone.
// Method: the scheduler in a simulation whose batches take ±20 % of what its cost model was made of.
#include "tests/server/batching/load_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "server/batching/policy.h"
#include "tests/server/batching/passages.h"

namespace encoderd {
namespace {

int64_t ShortTokens(Random& random) {
  return std::uniform_int_distribution<int64_t>(4, 28)(random);
}

// Five times what the longest passage takes alone.
absl::Duration PassageDeadline() {
  return 5 * CostModel(kMiniLmCost).Base(WorkOf(SequenceInfo{.tokens = 384}));
}

Report Passages(double load,
                Simulated simulated = {.options = PassageOptions(), .true_cost = kMiniLmCost}) {
  simulated.streams = {{.calls_per_second = load * Capacity(PassageTokens),
                        .tokens = PassageTokens,
                        .deadline = PassageDeadline()}};
  return LoadSimulation(simulated).Run();
}

// The most that is answered in time at any rate up to a little above capacity.
struct Saturation {
  double calls = 0, tokens = 0;
};
const Saturation& Saturated() {
  static const auto* const saturation = [] {
    auto* found = new Saturation;
    for (const double load : {0.8, 0.9, 1.0, 1.1}) {
      const Report report = Passages(load);
      found->calls = std::max(found->calls, report.CallsPerSecond());
      found->tokens = std::max(found->tokens, report.TokensPerSecond());
    }
    return found;
  }();
  return *saturation;
}

double Quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1))];
}

int64_t BeyondBound(const Report& report) {
  int64_t count = 0;
  for (const Outcome& outcome : report.streams) count += outcome.beyond_bound;
  return count;
}

TEST(LoadSimulationTest, AnswersNearlyEverybodyInTimeBelowCapacity) {
  const Report report = Passages(0.7);
  const Outcome& outcome = report.streams[0];
  EXPECT_GE(static_cast<double>(outcome.in_time), 0.99 * static_cast<double>(outcome.sent));
}

TEST(LoadSimulationTest, KeepsItsGoodputUnderOverload) {
  const auto ratio = [](double load) {
    const Report report = Passages(load);
    EXPECT_EQ(BeyondBound(report), 0);
    return std::min(report.CallsPerSecond() / Saturated().calls,
                    report.TokensPerSecond() / Saturated().tokens);
  };
  EXPECT_GE(ratio(1.5), 0.97);
  EXPECT_GE(ratio(3), 0.95);
}

// What the prediction is good for, and that the simulation would show its loss.
TEST(LoadSimulationTest, LosesItsGoodputUnderOverloadWithoutPrediction) {
  Simulated simulated = {.options = PassageOptions(), .true_cost = kMiniLmCost};
  simulated.options.predict_deadlines = false;
  EXPECT_LT(Passages(3, simulated).CallsPerSecond(), 0.9 * Saturated().calls);
}

TEST(LoadSimulationTest, KeepsItsGoodputOnAMachineThatIsOtherThanMeasured) {
  for (const double factor : {0.5, 2.0}) {
    Simulated simulated = {.options = PassageOptions(), .true_cost = kMiniLmCost};
    for (double* c : {&simulated.options.cost.per_pass, &simulated.options.cost.per_token,
                      &simulated.options.cost.per_square}) {
      *c *= factor;
    }
    EXPECT_GE(Passages(1.5, simulated).TokensPerSecond(), 0.95 * Saturated().tokens) << factor;
  }
}

TEST(LoadSimulationTest, LetsNoLengthStarveUnderOverload) {
  // The same passages, in two streams by length.
  const auto from = [](int64_t least, int64_t most) {
    return [least, most](Random& random) {
      while (true) {
        const int64_t tokens = PassageTokens(random);
        if (tokens >= least && tokens <= most) return tokens;
      }
    };
  };
  const double rate = 1.5 * Capacity(PassageTokens) / 2;
  const Report report = LoadSimulation({.options = PassageOptions(),
                                        .true_cost = kMiniLmCost,
                                        .streams = {{rate, from(1, 256), PassageDeadline()},
                                                    {rate, from(257, 384), PassageDeadline()}}})
                            .Run();
  EXPECT_EQ(BeyondBound(report), 0);
  const auto served = [&](size_t stream) {
    return static_cast<double>(report.streams[stream].in_time) /
           static_cast<double>(report.streams[stream].sent);
  };
  EXPECT_GE(served(1), 0.5 * served(0));
}

TEST(LoadSimulationTest, LongSequencesCostShortOnesLittleAndDoNotStarve) {
  const double rate = 0.35 * Capacity(ShortTokens);  // the long ones bring it to 0.7
  const Stream short_ones = {.calls_per_second = rate, .tokens = ShortTokens};
  const Stream long_ones = {.calls_per_second = 0.02 * rate,
                            .tokens = [](Random&) { return int64_t{512}; }};
  Simulated simulated = {
      .options = PassageOptions(), .true_cost = kMiniLmCost, .streams = {short_ones}};
  const double alone = Quantile(LoadSimulation(simulated).Run().streams[0].seconds, 0.95);
  simulated.streams.push_back(long_ones);
  const Report report = LoadSimulation(simulated).Run();
  EXPECT_EQ(BeyondBound(report), 0);

  const double long_batch =
      absl::ToDoubleSeconds(CostModel(kMiniLmCost).Base(WorkOf(SequenceInfo{.tokens = 512})));
  EXPECT_LE(Quantile(report.streams[0].seconds, 0.95), 3 * alone + long_batch);
  EXPECT_LE(Quantile(report.streams[1].seconds, 1), 20 * long_batch);
}

TEST(LoadSimulationTest, GivesBulkItsShareAndNoMoreBesideAnInteractiveFlood) {
  const double rate = 2 * Capacity(PassageTokens);
  const Report report =
      LoadSimulation({.options = PassageOptions(),
                      .true_cost = kMiniLmCost,
                      .streams = {{rate, PassageTokens, PassageDeadline()},
                                  {rate, PassageTokens, absl::Seconds(10), Priority::kBulk}}})
          .Run();
  EXPECT_EQ(BeyondBound(report), 0);
  const double share = static_cast<double>(report.batches[1]) /
                       static_cast<double>(report.batches[0] + report.batches[1]);
  EXPECT_NEAR(share, 1.0 / kBulkTurn, 0.03);
  EXPECT_GT(report.streams[1].in_time, 0);
}

// Callers with short deadlines, half of whom give up earlier still.
TEST(LoadSimulationTest, DoesNoWorkForCallersWhoHaveGone) {
  const double rate = 2 * Capacity(PassageTokens);
  const Report report = LoadSimulation({.options = PassageOptions(),
                                        .true_cost = kMiniLmCost,
                                        .streams = {{rate, PassageTokens, PassageDeadline(),
                                                     Priority::kInteractive, /*cancelled=*/0.5}}})
                            .Run();
  const Outcome& outcome = report.streams[0];
  const int64_t running_at_the_end =
      PassageOptions().workers * PassageOptions().max_batch_tokens / 16;
  EXPECT_LE(outcome.begun, outcome.in_time + outcome.running_when_gone + running_at_the_end);
  EXPECT_GE(report.TokensPerSecond(), 0.8 * Saturated().tokens);
  EXPECT_GT(report.abandoned, 0);
}

}  // namespace
}  // namespace encoderd
