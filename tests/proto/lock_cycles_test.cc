// Goal:   programs that speak gRPC do without Abseil's search for cycles of locks.
// Method: takes two locks in both orders, which the search reports on the standard error.
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace encoderd {
namespace {

TEST(LockCyclesTest, AreNotLookedFor) {
  absl::Mutex a, b;
  testing::internal::CaptureStderr();
  {
    absl::MutexLock first(&a);
    absl::MutexLock second(&b);
  }
  {
    absl::MutexLock first(&b);
    absl::MutexLock second(&a);
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::IsEmpty());
}

}  // namespace
}  // namespace encoderd
