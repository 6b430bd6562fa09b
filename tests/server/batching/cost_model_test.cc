// Goal: the cost model finds the coefficients that made its samples, predicts by them, and follows
//       what is measured without being led astray.
// Method: samples and batches made from known coefficients.
#include "server/batching/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace encoderd {
namespace {

// Of MiniLM on one core, or near it.
constexpr CostCoefficients kTrue = {
    .per_pass = 0.7e-3, .per_token = 115e-6, .per_square = 50e-9, .per_answer_byte = 0.3e-9};

double Seconds(const CostCoefficients& c, const Work& work) {
  return c.per_pass * work.passes + c.per_token * work.tokens + c.per_square * work.squares +
         c.per_answer_byte * work.answer_bytes;
}

Work Sequences(int count, int64_t tokens, double blocks = 1) {
  Work work;
  for (int i = 0; i < count; ++i) work += WorkOf({.tokens = tokens, .blocks = blocks});
  return work;
}

// Those that calibration measures.
std::vector<CostSample> Samples(double noise) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> factor(1 - noise, 1 + noise);
  std::vector<CostSample> samples;
  for (const Work& work : {Sequences(1, 16), Sequences(2, 32), Sequences(4, 32), Sequences(8, 32),
                           Sequences(16, 32), Sequences(1, 512), Work{.answer_bytes = 1 << 20}}) {
    samples.push_back({work, Seconds(kTrue, work) * factor(random)});
  }
  return samples;
}

TEST(WorkTest, CountsASequenceByItsTokensTheirSquareAndTheBlocksItRuns) {
  const Work work = WorkOf({.tokens = 10, .blocks = 0.5, .answer_bytes = 7});
  EXPECT_EQ(work.passes, 0.5);
  EXPECT_EQ(work.tokens, 5);
  EXPECT_EQ(work.squares, 50);
  EXPECT_EQ(work.answer_bytes, 7);
}

TEST(WorkTest, ReadsTheWeightsOnceForTheDeepestSequenceOfABatch) {
  Work work = WorkOf({.tokens = 10, .blocks = 0.25});
  work += WorkOf({.tokens = 20, .blocks = 1});
  EXPECT_EQ(work.passes, 1);
  EXPECT_EQ(work.tokens, 22.5);
  EXPECT_EQ(work.squares, 425);
}

TEST(FitCostTest, FindsTheCoefficientsOfExactSamples) {
  const CostCoefficients found = FitCost(Samples(/*noise=*/0));
  EXPECT_NEAR(found.per_pass / kTrue.per_pass, 1, 1e-6);
  EXPECT_NEAR(found.per_token / kTrue.per_token, 1, 1e-6);
  EXPECT_NEAR(found.per_square / kTrue.per_square, 1, 1e-6);
  EXPECT_NEAR(found.per_answer_byte / kTrue.per_answer_byte, 1, 1e-6);
}

TEST(FitCostTest, PredictsWhatItWasNotShownInSpiteOfNoise) {
  const CostModel model(FitCost(Samples(/*noise=*/0.05)));
  for (const Work& work : {Sequences(3, 128), Sequences(1, 384), Sequences(20, 12)}) {
    EXPECT_NEAR(absl::ToDoubleSeconds(model.Base(work)) / Seconds(kTrue, work), 1, 0.1);
  }
}

TEST(FitCostTest, IsNeverNegative) {
  // Two sizes whose line would meet the axis below zero.
  const std::vector<CostSample> samples = {{Sequences(1, 10), 0.9}, {Sequences(1, 100), 10.5}};
  const CostCoefficients found = FitCost(samples);
  EXPECT_GE(found.per_pass, 0);
  EXPECT_GE(found.per_token, 0);
  EXPECT_GE(found.per_square, 0);
  EXPECT_GT(found.per_token + found.per_square, 0);
}

TEST(FitCostTest, GivesZeroForWhatNoSampleHas) {
  EXPECT_EQ(FitCost({}).per_token, 0);
  const std::vector<CostSample> timeless = {{Sequences(1, 10), 0}};
  EXPECT_EQ(FitCost(timeless).per_token, 0);
  EXPECT_EQ(FitCost(Samples(0)).per_answer_byte > 0, true);
  const std::vector<CostSample> without_bytes = {{Sequences(1, 10), 1}};
  EXPECT_EQ(FitCost(without_bytes).per_answer_byte, 0);
}

TEST(EfficientBatchTokensTest, IsTheSmallestOfEnoughRate) {
  const double per_token = 1e-4;
  const auto pass_of = [&](double tokens) {
    return CostCoefficients{tokens * per_token, per_token};
  };
  EXPECT_EQ(EfficientBatchTokens(pass_of(0), 512), 128);
  EXPECT_EQ(EfficientBatchTokens(pass_of(4), 512), 128);
  EXPECT_EQ(EfficientBatchTokens(pass_of(8), 512), 256);
  EXPECT_EQ(EfficientBatchTokens(pass_of(100), 512), 512);
  EXPECT_EQ(EfficientBatchTokens(pass_of(100), 100), 100);
  // Nothing is known: the engine's own figure.
  EXPECT_EQ(EfficientBatchTokens({}, 512), 512);
}

TEST(CostModelTest, PredictsNothingWithoutCoefficients) {
  CostModel model;
  EXPECT_EQ(model.Base(Sequences(3, 100)), absl::ZeroDuration());
  EXPECT_EQ(model.BaseOfFullBatch(512), absl::InfiniteDuration());
  model.Observe(absl::ZeroDuration(), absl::Seconds(1));
  EXPECT_EQ(model.correction(), 1);
}

TEST(CostModelTest, GivesEachSequenceItsShareOfThePass) {
  const CostModel model(CostCoefficients{.per_pass = 1});
  EXPECT_EQ(model.BaseShare({.tokens = 64}, 256), absl::Seconds(0.25));
  EXPECT_EQ(model.BaseShare({.tokens = 1000}, 256), absl::Seconds(1));
  EXPECT_EQ(model.BaseShare({.tokens = 64, .blocks = 0.5}, 256), absl::Seconds(0.125));
}

TEST(CostModelTest, FollowsAMachineThatIsSlowerOrFasterThanMeasured) {
  for (const double true_factor : {4.0, 0.2}) {
    CostModel model(kTrue);
    const absl::Duration base = model.Base(Sequences(4, 64));
    for (int batch = 0; batch < 60; ++batch) model.Observe(base, base * true_factor);
    EXPECT_NEAR(model.correction() / true_factor, 1, 0.05);
  }
}

TEST(CostModelTest, KeepsTheMeanOfNoisyBatches) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> noise(0.8, 1.2);
  CostModel model(kTrue);
  const absl::Duration base = model.Base(Sequences(4, 64));
  for (int batch = 0; batch < 500; ++batch) {
    model.Observe(base, base * noise(random));
    EXPECT_NEAR(model.correction(), 1, 0.12);
  }
}

TEST(CostModelTest, IsMovedLittleByOneWorkerThatLostItsCore) {
  CostModel model(kTrue);
  const absl::Duration base = model.Base(Sequences(4, 64));
  model.Observe(base, base * 1000);
  EXPECT_LT(model.correction(), 1.12);
  EXPECT_GT(model.correction(), 1);
}

TEST(CostModelTest, StaysWithinItsBounds) {
  CostModel model(kTrue);
  const absl::Duration base = model.Base(Sequences(4, 64));
  for (int batch = 0; batch < 1000; ++batch) model.Observe(base, base * 1e6);
  EXPECT_DOUBLE_EQ(model.correction(), kMaxCorrection);
  for (int batch = 0; batch < 1000; ++batch) model.Observe(base, absl::ZeroDuration());
  EXPECT_DOUBLE_EQ(model.correction(), 1 / kMaxCorrection);
}

TEST(CostModelTest, LearnsNothingFromABatchThatIsQuickBecauseIdleCoresShareIt) {
  CostModel model(kTrue);
  const absl::Duration base = model.Base(Sequences(1, 512));
  model.Observe(base, base * 0.55, /*cores=*/2);
  EXPECT_DOUBLE_EQ(model.correction(), 1);
  model.Observe(base, base * 1.5, /*cores=*/2);
  EXPECT_GT(model.correction(), 1);
  // Quicker than all cores together can be: the prediction is too high.
  for (int batch = 0; batch < 60; ++batch) model.Observe(base, base * 0.25, /*cores=*/2);
  EXPECT_NEAR(model.correction(), 0.5, 0.01);
}

TEST(CostModelTest, ComesDownFromAFarTooHighPredictionInAFewBatches) {
  CostModel model(kTrue);
  const absl::Duration base = model.Base(Sequences(4, 64));
  int batches = 0;
  while (model.Predict(base) > base * 0.2) {
    model.Observe(base, base * 0.1);
    ++batches;
  }
  EXPECT_LE(batches, 8);
}

}  // namespace
}  // namespace encoderd
