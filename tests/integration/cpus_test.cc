// Goal: a server has a worker for each CPU that it may use, unless it is told otherwise.
// Method: the real binary, observed from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <string>

#include "tests/integration/encoderd_process.h"

namespace encoderd {
namespace {

const std::string kModel = "--model_dir=" ENCODERD_SOURCE_DIR "/tests/goldens/bert/model";

// While it lives, this thread and the processes that it starts have one CPU.
class OneCpu {
 public:
  OneCpu() {
    EXPECT_EQ(sched_getaffinity(0, sizeof(before_), &before_), 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before_)) ++cpu;
    CPU_SET(cpu, &one);
    EXPECT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  }
  ~OneCpu() { EXPECT_EQ(sched_setaffinity(0, sizeof(before_), &before_), 0); }

 private:
  cpu_set_t before_;
};

int WorkersOf(Encoderd& encoderd) {
  encoderd.AwaitServing();
  return NumberIn(encoderd.process().AwaitLine("Listening."), "workers");
}

TEST(WorkersTest, AreAsManyAsTheProcessMayHaveCpus) {
  const OneCpu one_cpu;
  Encoderd encoderd({kModel});
  EXPECT_EQ(WorkersOf(encoderd), 1);
}

TEST(WorkersTest, AreAsManyAsTheFlagSays) {
  const OneCpu one_cpu;
  Encoderd encoderd({kModel, "--workers=3"});
  EXPECT_EQ(WorkersOf(encoderd), 3);
}

}  // namespace
}  // namespace encoderd
