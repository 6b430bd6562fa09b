// Goal: every kind of model can be calibrated, within the limits of its engine, and a failure is
//       told rather than waited for.
// Method: the fake engine; what it measures is its own business.
#include "server/calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status_matchers.h"
#include "server/sample_batch.h"
#include "tests/server/fake_engine.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;

TEST(SampleBatchTest, RunsItsSequencesAndKnowsTheirWork) {
  FakeEngine engine;  // two blocks of hidden size 8
  auto batch = SampleBatch::Create(engine, {.sequences = 3, .tokens = 10, .blocks = 1});
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ((*batch)->work().passes, 0.5);
  EXPECT_EQ((*batch)->work().tokens, 15);
  EXPECT_EQ((*batch)->work().squares, 150);
  EXPECT_EQ((*batch)->work().answer_bytes, 3 * 10 * 8 * 4);
  auto worker = engine.CreateWorker();
  const auto time = (*batch)->Run(**worker);
  ASSERT_THAT(time, IsOk());
  EXPECT_GT(*time, absl::ZeroDuration());
  EXPECT_EQ(engine.sequences_run(), 3);
  EXPECT_THAT((*batch)->fault(), IsOk());
}

TEST(SampleBatchTest, KnowsAFaultOfItsSequences) {
  FakeEngine engine;
  engine.SetBroken();
  auto batch = SampleBatch::Create(engine, {.tokens = 1, .blocks = 2});
  ASSERT_THAT(batch, IsOk());
  auto worker = engine.CreateWorker();
  EXPECT_THAT((*batch)->Run(**worker), IsOk());
  EXPECT_THAT((*batch)->fault(), StatusIs(absl::StatusCode::kInternal));
}

TEST(SampleBatchTest, RefusesAShapeThatTheEngineDoesNotTake) {
  FakeEngine engine;
  EXPECT_THAT(SampleBatch::Create(engine, {.tokens = 513, .blocks = 2}).status(),
              StatusIs(absl::StatusCode::kInternal));
}

TEST(CalibrateTest, MeasuresModelsOfEveryKindWithAllWorkers) {
  for (const InputKind kind : {InputKind::kTokenIds, InputKind::kVectors}) {
    FakeEngine engine;
    engine.mutable_spec().input = kind;
    engine.mutable_spec().input_dim = kind == InputKind::kVectors ? 5 : 0;
    const auto calibration = Calibrate(engine, /*workers=*/2, SteadyClock());
    ASSERT_THAT(calibration, IsOk());
    const CostCoefficients& cost = calibration->cost;
    for (const double c : {cost.per_pass, cost.per_token, cost.per_square, cost.per_answer_byte}) {
      EXPECT_GE(c, 0);
    }
    EXPECT_LT(CostModel(cost).BaseOfFullBatch(512), absl::Seconds(1));
    EXPECT_GE(calibration->blocks, 1);
    EXPECT_LE(calibration->blocks, 2);
  }
}

TEST(CalibrateTest, KeepsToTheLimitsOfASmallEngine) {
  FakeEngine engine;  // aborts when a batch is larger than it may be
  engine.mutable_info().max_batch_tokens = 5;
  engine.mutable_info().max_sequence_tokens = 3;
  engine.mutable_spec().num_layers = 1;
  EXPECT_THAT(Calibrate(engine, /*workers=*/1, SteadyClock()), IsOk());
}

TEST(CalibrateTest, TellsWhatFails) {
  FakeEngine engine;
  engine.SetMemory(FakeEngine::Memory::kExhausted);
  EXPECT_THAT(Calibrate(engine, /*workers=*/3, SteadyClock()).status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

}  // namespace
}  // namespace encoderd
