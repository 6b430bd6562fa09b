// Goal: the memory that --check suggests is the sum of what it names.
// Method: the fake engine, whose sizes are known. The report itself is tested on the real program.
#include "server/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/server/fake_engine.h"

namespace encoderd {
namespace {

TEST(MemoryNeedTest, CountsEveryWorkerEveryHelperAndAllThatCallsMayHold) {
  const auto engine = [](int64_t weights) {
    auto made = std::make_unique<FakeEngine>();
    made->mutable_info() = {
        .weights_bytes = weights, .scratch_bytes_per_worker = 10, .scratch_bytes_per_helper = 4};
    return made;
  };
  ServedModel model(engine(1000));
  const Options options = {.workers = 3, .max_inflight_bytes = 28};
  const MemoryNeed need = MemoryNeedOf(model, options);
  EXPECT_EQ(need.weights, 1000);
  EXPECT_EQ(need.scratch, 38);
  EXPECT_EQ(need.calls, 28);
  EXPECT_EQ(need.Total(), need.process + 1066);
  model.reference = engine(5000);
  EXPECT_EQ(MemoryNeedOf(model, options).Total(), need.Total() + 5020);
}

TEST(CheckReportTest, ListsUnusedTensors) {
  const std::string report =
      CheckReport(ServedModel(std::make_unique<FakeEngine>()),
                  {.model_dir = "/models/fake", .workers = 2, .max_response_bytes = 1 << 20});
  EXPECT_THAT(report, ::testing::HasSubstr("tensors not used:          1\n  spare.weight\n"));
  EXPECT_THAT(report, ::testing::HasSubstr("model:                     fake\n"));
}

TEST(CheckReportTest, ShowsWhatThePrecisionWasChosenBy) {
  ServedModel model(std::make_unique<FakeEngine>());
  model.choice = {.error_max = 0.01,
                  .trials = {{.tokens_per_second = 7000},
                             {.precision = Precision::kBf16, .error = 0.02, .tokens_per_second = 9},
                             {.precision = Precision::kInt8, .refused = "no such instructions"}}};
  EXPECT_THAT(CheckReport(model, {.model_dir = "/models/fake", .workers = 2}),
              ::testing::HasSubstr("chosen by --precision=auto for an error of at most 0.01\n"
                                   "  fp32  error 0            7000 tokens/s of one worker\n"
                                   "  bf16  error 0.02            9 tokens/s of one worker\n"
                                   "  int8  refused: no such instructions\n"));
}

}  // namespace
}  // namespace encoderd
