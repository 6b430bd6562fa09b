// Goal: the batcher's slots become the engine's items and the engine's words the batcher's.
// Method: the fake engine, calls made by hand.
#include "server/engine_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "absl/status/status_matchers.h"
#include "engine/validation.h"
#include "server/batching/reason.h"
#include "tests/server/fake_engine.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;

class TestCall : public EngineCall {
 public:
  TestCall(const Engine& engine, std::vector<std::vector<int32_t>> ids) : ids_(std::move(ids)) {
    for (const auto& sequence : ids_) request_.sequences.push_back({.input_ids = sequence});
    request_.outputs.last_hidden_state = true;
    plan_ = std::get<Plan>(Validate(engine.spec(), {}, request_));
    answer_ = *engine.AllocateAnswer(plan_);
  }

  const CallInfo& info() const override { return info_; }
  void Finish(absl::Status, const CallTiming&) override {}
  const Request& request() const override { return request_; }
  const Plan& plan() const override { return plan_; }
  Answer& answer() override { return answer_; }

  float value(size_t row) { return answer_.last_hidden_state.data.floats()[row * 8]; }

 private:
  std::vector<std::vector<int32_t>> ids_;
  CallInfo info_;
  Request request_;
  Plan plan_;
  Answer answer_;
};

TEST(EngineRunnerTest, RunsSequencesOfManyCalls) {
  FakeEngine engine;
  auto runner = MakeWarmRunner(engine, "/models/fake");
  ASSERT_THAT(runner, IsOk());
  auto first = std::make_shared<TestCall>(engine, std::vector<std::vector<int32_t>>{{1}, {2, 3}});
  auto second = std::make_shared<TestCall>(engine, std::vector<std::vector<int32_t>>{{4}});
  std::vector<Slot> slots = {{.call = second}, {.call = first, .sequence = 1}};
  ASSERT_THAT((*runner)->Run(slots, NeverAbandoned), IsOk());
  EXPECT_EQ(first->value(1), FakeEngine::Value(2, 0, 0));
  EXPECT_EQ(first->value(2), FakeEngine::Value(3, 1, 0));
  EXPECT_EQ(second->value(0), FakeEngine::Value(4, 0, 0));
  for (const Slot& slot : slots) EXPECT_THAT(slot.status, IsOk());
}

TEST(EngineRunnerTest, GivesASequencesFaultToItsOwnSlot) {
  FakeEngine engine;
  auto runner = MakeWarmRunner(engine, "/models/fake");
  ASSERT_THAT(runner, IsOk());
  auto call = std::make_shared<TestCall>(
      engine, std::vector<std::vector<int32_t>>{{FakeEngine::kNonFinite}, {2}});
  std::vector<Slot> slots = {{.call = call, .sequence = 0}, {.call = call, .sequence = 1}};
  ASSERT_THAT((*runner)->Run(slots, NeverAbandoned), IsOk());
  EXPECT_THAT(slots[0].status, StatusIs(absl::StatusCode::kInternal));
  EXPECT_EQ(ReasonOf(slots[0].status), "NON_FINITE_RESULT");
  EXPECT_THAT(slots[1].status, IsOk());
}

TEST(EngineRunnerTest, GivesABatchsFaultToTheBatcher) {
  FakeEngine engine;
  auto runner = MakeWarmRunner(engine, "/models/fake");
  ASSERT_THAT(runner, IsOk());
  auto call = std::make_shared<TestCall>(
      engine, std::vector<std::vector<int32_t>>{{FakeEngine::kFailsBatch}});
  std::vector<Slot> slots = {{.call = call}};
  const absl::Status status = (*runner)->Run(slots, NeverAbandoned);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "a kernel failed"));
  EXPECT_EQ(ReasonOf(status), "");
}

// ---- What calls cost ----------------------------------------------------------------------------

Plan PlanOf(const Engine& engine, const std::vector<std::vector<int32_t>>& ids,
            const OutputSpec& outputs) {
  Request request;
  for (const auto& sequence : ids) request.sequences.push_back({.input_ids = sequence});
  request.outputs = outputs;
  return std::get<Plan>(Validate(engine.spec(), {}, request));
}

TEST(SequencesOfTest, SharesTheBytesOfEveryKindOfOutputOutBySequence) {
  FakeEngine engine;
  const Plan plan = PlanOf(engine, {{1, 2, 3}, {4}},
                           {.dtype = DataType::kFp16,
                            .last_hidden_state = true,
                            .hidden_states = {0},
                            .attentions = AttentionSpec{.layers = {1}},
                            .pooled = {{}, {.dimensions = 3}}});
  const std::vector<SequenceInfo> sequences = SequencesOf(engine.spec(), plan);
  ASSERT_EQ(sequences.size(), 2);
  EXPECT_EQ(sequences[0].tokens, 3);
  EXPECT_EQ(sequences[1].tokens, 1);
  EXPECT_EQ(sequences[0].answer_bytes, 2 * (3 * (8 + 8) + 2 * 3 * 3 + 8 + 3));
  EXPECT_EQ(sequences[0].answer_bytes + sequences[1].answer_bytes, plan.answer_bytes);
}

TEST(SequencesOfTest, PredictsARowOfLogitsForEachSequence) {
  FakeEngine engine;
  engine.mutable_spec().classifier = {{.kind = Step::Kind::kLinear, .out = 5}};
  const Plan plan = PlanOf(engine, {{1, 2, 3}, {4}}, {.logits = true});
  const std::vector<SequenceInfo> sequences = SequencesOf(engine.spec(), plan);
  ASSERT_EQ(sequences.size(), 2);
  EXPECT_EQ(sequences[0].answer_bytes, 5 * 4);
  EXPECT_EQ(sequences[1].answer_bytes, 5 * 4);
}

TEST(SequencesOfTest, CountsTheBlocksThatRunAndTheHeadsAsBlocks) {
  FakeEngine engine;  // two blocks of 4·8² + 2·8·32 products a token
  const auto blocks = [&](const OutputSpec& outputs) {
    return SequencesOf(engine.spec(), PlanOf(engine, {{1}}, outputs))[0].blocks;
  };
  EXPECT_EQ(blocks({.last_hidden_state = true}), 1);
  EXPECT_EQ(blocks({.hidden_states = {1}}), 0.5);
  EXPECT_EQ(blocks({.hidden_states = {0}}), 0);
  EXPECT_EQ(blocks({.attentions = AttentionSpec{.layers = {0}}}), 0.25);
  EXPECT_EQ(blocks({.attentions = AttentionSpec{.layers = {1}}}), 0.75);
  Plan rest = PlanOf(engine, {{1}}, {.last_hidden_state = true});
  rest.first_block = 1;
  EXPECT_EQ(SequencesOf(engine.spec(), rest)[0].blocks, 0.5);
  engine.mutable_spec().logits = {{.kind = Step::Kind::kLinear, .out = 96}};
  EXPECT_EQ(blocks({.logits = true}), 1.5);
}

// ---- Warm-up ------------------------------------------------------------------------------------

TEST(MakeWarmRunnerTest, RunsOneSequenceOfTheModelsKind) {
  for (const InputKind kind : {InputKind::kTokenIds, InputKind::kVectors}) {
    FakeEngine engine;
    engine.mutable_spec().input = kind;
    engine.mutable_spec().input_dim = kind == InputKind::kVectors ? 5 : 0;
    EXPECT_THAT(MakeWarmRunner(engine, "/models/fake"), IsOk());
    EXPECT_EQ(engine.sequences_run(), 1);
  }
}

TEST(MakeWarmRunnerTest, FailsWhenThereIsNoMemory) {
  FakeEngine engine;
  engine.SetMemory(FakeEngine::Memory::kExhausted);
  EXPECT_THAT(MakeWarmRunner(engine, "/models/fake").status(),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(MakeWarmRunnerTest, TakesAModelOfWhichNoFiniteNumbersAreExpected) {
  FakeEngine engine;
  engine.SetBroken();
  engine.mutable_info().tensors_nonfinite = {"encoder.weight"};
  EXPECT_THAT(MakeWarmRunner(engine, "/models/fake"), IsOk());
}

TEST(MakeWarmRunnerTest, NamesTheFolderOfAModelThatGivesNoFiniteNumbers) {
  FakeEngine engine;
  engine.SetBroken();
  EXPECT_THAT(
      MakeWarmRunner(engine, "/models/fake").status(),
      StatusIs(absl::StatusCode::kInvalidArgument, ::testing::StartsWith("/models/fake: ")));
}

}  // namespace
}  // namespace encoderd
