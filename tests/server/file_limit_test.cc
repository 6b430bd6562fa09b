// Goal: the process gets the files that it needs, or says that it does not.
// Method: the limits of this process, put back at the end.
#include "server/file_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class FileLimitTest : public ::testing::Test {
 protected:
  FileLimitTest() { getrlimit(RLIMIT_NOFILE, &before_); }
  ~FileLimitTest() override { setrlimit(RLIMIT_NOFILE, &before_); }

  static void SetSoft(rlim_t soft) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = soft;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  static rlim_t Soft() {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  }

  rlimit before_;
};

TEST_F(FileLimitTest, IsRaisedToWhatIsNeededAndNeverLowered) {
  SetSoft(100);
  EXPECT_THAT(RaiseFileLimit(101), IsOk());
  EXPECT_EQ(Soft(), 101);
  EXPECT_THAT(RaiseFileLimit(50), IsOk());
  EXPECT_EQ(Soft(), 101);
}

TEST_F(FileLimitTest, IsRaisedAsFarAsTheHardLimitAllows) {
  if (before_.rlim_max == RLIM_INFINITY) GTEST_SKIP() << "there is no hard limit";
  SetSoft(100);
  EXPECT_THAT(RaiseFileLimit(before_.rlim_max + 1),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(absl::StrCat("at least ", before_.rlim_max + 1)),
                             HasSubstr(absl::StrCat("got ", before_.rlim_max)))));
  EXPECT_EQ(Soft(), before_.rlim_max);
}

}  // namespace
}  // namespace encoderd
