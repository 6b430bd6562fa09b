// Goal: a call for which memory runs out while it is submitted is refused and leaves nothing behind.
// Method: every allocation of a Submit fails in its turn, on this thread alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "server/batching/reason.h"
#include "server/batching/scheduler.h"
#include "tests/server/batching/fakes.h"

namespace {

thread_local int allocations_until_failure = 0;  // 0: none fails

}  // namespace

// Not inlined: the compiler would see an allocation and a freeing that do not match.
[[gnu::noinline]] void* operator new(size_t size) {
  if (allocations_until_failure > 0 && --allocations_until_failure == 0) throw std::bad_alloc();
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace encoderd {
namespace {

constexpr absl::Time kNow = absl::UnixEpoch();
constexpr int kMoreThanASubmitNeeds = 1000;

// Two sequences longer than a batch and three that are not.
std::shared_ptr<FakeCall> CallOfBothLanes() {
  return std::make_shared<FakeCall>(
      CallInfo{.sequences = OfTokens({5, 20, 7, 30, 1}), .arrival = kNow});
}

TEST(NoMemoryTest, TheSchedulerKeepsNothingOfTheCall) {
  Scheduler scheduler({.max_batch_tokens = 10, .cost = {.per_token = 1e-3}});
  for (int failing = 1; failing < kMoreThanASubmitNeeds; ++failing) {
    const auto call = CallOfBothLanes();
    allocations_until_failure = failing;
    try {
      const absl::Status status = scheduler.Submit(call, kNow);
      allocations_until_failure = 0;
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_GT(failing, 5);  // the tables, the lanes
      return;
    } catch (const std::bad_alloc&) {
    }
    EXPECT_EQ(call.use_count(), 1);
    EXPECT_TRUE(scheduler.IsFinished(*call));
    EXPECT_FALSE(scheduler.work_waits());
    const BatcherSnapshot left = scheduler.Snapshot(kNow);
    EXPECT_EQ(left.calls_waiting, 0);
    EXPECT_EQ(left.sequences_waiting, 0);
    EXPECT_EQ(left.tokens_waiting, 0);
    EXPECT_EQ(left.predicted_wait, absl::ZeroDuration());
  }
  FAIL() << "no Submit came through";
}

class NoObserver final : public BatchObserver {
  void OnBatch(const BatchObservation&) override {}
};

class NothingToDo final : public Runner {
  absl::Status Run(std::span<Slot>, absl::FunctionRef<bool()>) override { return absl::OkStatus(); }
};

TEST(NoMemoryTest, TheBatcherRefusesTheCall) {
  NoObserver observer;
  auto batcher = Batcher::Start({.max_batch_tokens = 10}, SteadyClock(), observer,
                                [] { return std::make_unique<NothingToDo>(); });
  ASSERT_TRUE(batcher.ok()) << batcher.status();
  for (int failing = 1; failing < kMoreThanASubmitNeeds; ++failing) {
    const auto call = CallOfBothLanes();
    allocations_until_failure = failing;
    const absl::Status status = (*batcher)->Submit(call);
    allocations_until_failure = 0;
    if (status.ok()) {
      EXPECT_TRUE(call->Await().ok());
      return;
    }
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_EQ(ReasonOf(status), "OUT_OF_MEMORY");
    EXPECT_EQ((*batcher)->Snapshot().calls_unfinished, 0);
    EXPECT_EQ(call->finishes(), 0);
  }
  FAIL() << "no Submit came through";
}

}  // namespace
}  // namespace encoderd
