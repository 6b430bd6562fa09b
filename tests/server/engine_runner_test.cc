// Goal: the batcher's slots become the engine's items and the engine's words the batcher's.
// Method: the fake engine, calls made by hand.
#include "server/engine_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "absl/status/status_matchers.h"
#include "engine/validation.h"
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
  ASSERT_THAT((*runner)->Run(slots), IsOk());
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
  ASSERT_THAT((*runner)->Run(slots), IsOk());
  EXPECT_THAT(slots[0].status, StatusIs(absl::StatusCode::kInternal));
  EXPECT_EQ(EngineReason(slots[0].status), "NON_FINITE_RESULT");
  EXPECT_THAT(slots[1].status, IsOk());
}

TEST(EngineRunnerTest, GivesABatchsFaultToTheBatcher) {
  FakeEngine engine;
  auto runner = MakeWarmRunner(engine, "/models/fake");
  ASSERT_THAT(runner, IsOk());
  auto call = std::make_shared<TestCall>(
      engine, std::vector<std::vector<int32_t>>{{FakeEngine::kFailsBatch}});
  std::vector<Slot> slots = {{.call = call}};
  const absl::Status status = (*runner)->Run(slots);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, "a kernel failed"));
  EXPECT_EQ(EngineReason(status), "ENGINE_FAILURE");
}

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

TEST(MakeWarmRunnerTest, NamesTheFolderOfAModelThatGivesNoFiniteNumbers) {
  FakeEngine engine;
  engine.SetBroken();
  EXPECT_THAT(
      MakeWarmRunner(engine, "/models/fake").status(),
      StatusIs(absl::StatusCode::kInvalidArgument, ::testing::StartsWith("/models/fake: ")));
}

}  // namespace
}  // namespace encoderd
