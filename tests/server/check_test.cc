// Goal: the memory that --check suggests is the sum of what it names.
// Method: the fake engine, whose sizes are known. The report itself is tested on the real program.
#include "server/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/fake_engine.h"

namespace encoderd {
namespace {

TEST(MemoryNeedTest, CountsEveryWorkerEveryHelperAndAllThatCallsMayHold) {
  EngineInfo info = {
      .weights_bytes = 1000, .scratch_bytes_per_worker = 10, .scratch_bytes_per_helper = 4};
  const MemoryNeed need = MemoryNeedOf(info, {.workers = 3, .max_inflight_bytes = 28});
  EXPECT_EQ(need.weights, 1000);
  EXPECT_EQ(need.scratch, 38);
  EXPECT_EQ(need.calls, 28);
  EXPECT_EQ(need.Total(), need.process + 1066);
}

TEST(CheckReportTest, ListsUnusedTensors) {
  const FakeEngine engine;
  const std::string report = CheckReport(
      engine, {.model_dir = "/models/fake", .workers = 2, .max_response_bytes = 1 << 20});
  EXPECT_THAT(report, ::testing::HasSubstr("tensors not used:          1\n  spare.weight\n"));
  EXPECT_THAT(report, ::testing::HasSubstr("model:                     fake\n"));
}

}  // namespace
}  // namespace encoderd
