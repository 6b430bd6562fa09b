// Goal: exactly the tokens of the file are taken, and no fault of the file tells one.
// Method: texts of files.
#include "server/keys/tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

absl::StatusOr<std::vector<std::string>> Read(const std::string& text) {
  return ReadTokens({.flag = "token_file", .path = "/k/tokens", .text = text});
}

TEST(TokensTest, TakesATokenALineAmongCommentsAndSpace) {
  const auto read = Read(
      "# until May\n"
      "first-token-12345\r\n"
      "\n"
      "  # from April\n"
      "\tsecond.token~+/==\n"
      "0123456789abcdef");
  EXPECT_THAT(read, IsOkAndHolds(
                        ElementsAre("first-token-12345", "second.token~+/==", "0123456789abcdef")));
  const Tokens tokens(*read);
  EXPECT_EQ(tokens.size(), 3);
  for (const char* token : {"first-token-12345", "second.token~+/==", "0123456789abcdef"}) {
    EXPECT_TRUE(tokens.Has(token)) << token;
  }
  for (const char* other : {"", "first-token-1234", "first-token-123456", "FIRST-TOKEN-12345",
                            "# until May", " first-token-12345"}) {
    EXPECT_FALSE(tokens.Has(other)) << other;
  }
}

TEST(TokensTest, RefusesAFileWithoutOne) {
  for (const char* text : {"", "\n\n", "# none yet\n"}) {
    EXPECT_THAT(Read(text), StatusIs(absl::StatusCode::kInvalidArgument,
                                     "--token_file: expected at least one token, got none in "
                                     "/k/tokens"));
  }
}

TEST(TokensTest, NamesTheLineOfWhatIsNoneAndNotItsText) {
  for (const std::string& line :
       {std::string("too-short-15-ch"), std::string(4097, 'a'), std::string("with a space inside"),
        std::string("a-token-1234567 # whose"), std::string("um\xc3\xa4laut-1234567890")}) {
    EXPECT_THAT(
        Read(absl::StrCat("0123456789abcdef\n", line, "\n")),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 ::testing::AllOf(HasSubstr(absl::StrCat("got ", line.size(),
                                                         " bytes of another kind on line 2 in "
                                                         "/k/tokens")),
                                  Not(HasSubstr(line.substr(0, 10))))));
  }
  EXPECT_TRUE(Read(std::string(4096, 'a')).ok());
}

}  // namespace
}  // namespace encoderd
