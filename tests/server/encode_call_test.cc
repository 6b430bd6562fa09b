// Goal: a call that gRPC cancelled is told from one that ran out of its time.
// Method: a table. Everything else of a call is tested over a socket, in tests/integration.
#include "server/encode_call.h"

#include <gtest/gtest.h>

namespace encoderd {
namespace {

TEST(RanOutOfTimeTest, AllowsForRoundingAndLatencyOfTimers) {
  const absl::Duration second = absl::Seconds(1);
  EXPECT_TRUE(RanOutOfTime(second, absl::ZeroDuration()));
  EXPECT_TRUE(RanOutOfTime(second, -absl::Seconds(5)));
  EXPECT_TRUE(RanOutOfTime(second, absl::Milliseconds(40)));
  EXPECT_FALSE(RanOutOfTime(second, absl::Milliseconds(41)));
  EXPECT_FALSE(RanOutOfTime(absl::Minutes(1), absl::Milliseconds(1221)));
  EXPECT_TRUE(RanOutOfTime(absl::Minutes(1), absl::Milliseconds(1219)));
}

}  // namespace
}  // namespace encoderd
