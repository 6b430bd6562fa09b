// Goal: no more is taken than there is, and who waits for the rest to come back is told.
#include "server/memory_budget.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

namespace encoderd {
namespace {

TEST(MemoryBudgetTest, GivesWhatThereIsAndNoMore) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.Take(60));
  EXPECT_FALSE(budget.Take(41));
  EXPECT_FALSE(budget.Take(std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(budget.taken(), 60);
  EXPECT_TRUE(budget.Take(40));
  EXPECT_FALSE(budget.Take(1));
  budget.Give(60);
  EXPECT_EQ(budget.taken(), 40);
  EXPECT_TRUE(budget.Take(60));
}

TEST(MemoryBudgetTest, WaitsUntilAllIsGivenBackOrTheDeadline) {
  MemoryBudget budget(100);
  EXPECT_TRUE(budget.AwaitAllGiven(SteadyClock(), absl::InfinitePast()));
  ASSERT_TRUE(budget.Take(60));
  EXPECT_FALSE(budget.AwaitAllGiven(SteadyClock(), SteadyClock().Now() + absl::Milliseconds(5)));
  std::thread giving([&] { budget.Give(60); });
  EXPECT_TRUE(budget.AwaitAllGiven(SteadyClock(), absl::InfiniteFuture()));
  giving.join();
}

}  // namespace
}  // namespace encoderd
