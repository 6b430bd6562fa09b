// Goal: the instruction set has a name, and its cap knows what can be asked for.
#include "engine/ops/runtime.h"

#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace encoderd::ops {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

TEST(RuntimeTest, CapIsHonoured) {
  ASSERT_THAT(SetMaxIsa("avx2"), IsOk());
  EXPECT_EQ(IsaName(), "avx2");
  EXPECT_THAT(RequireSupportedIsa(), IsOk());
}

TEST(RuntimeTest, UnknownCapIsRefusedWithTheListOfKnownOnes) {
  EXPECT_THAT(
      SetMaxIsa("sse2"),
      StatusIs(
          absl::StatusCode::kInvalidArgument,
          HasSubstr("auto, avx2, avx512, avx512_vnni, avx512_bf16, avx512_fp16, amx; got sse2")));
}

}  // namespace
}  // namespace encoderd::ops
