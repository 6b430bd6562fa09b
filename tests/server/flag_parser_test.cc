// Goal: every form of a flag is understood, every fault is found in one go, and nothing exits.
// Method: flags of the test's own.
#include "server/flag_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

ABSL_FLAG(int, test_count, 7, "How many. Range: 0 to 9.");
ABSL_FLAG(bool, test_loud, false, "Whether to shout.");
ABSL_FLAG(std::string, test_name, "",
          "A name that needs a text which is longer than the line of a "
          "terminal so that it has to be wrapped somewhere in the middle.");
ABSL_FLAG(absl::Duration, test_wait, absl::Seconds(5), "How long.");

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FlagParserTest : public ::testing::Test {
 protected:
  static ParsedFlags Parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "program");
    return ParseFlags(static_cast<int>(arguments.size()), arguments.data());
  }

  // Writes a file for --flagfile and gives its path.
  static std::string File(const std::string& text) {
    const std::string path =
        absl::StrCat(::testing::TempDir(),
                     ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".flags");
    std::ofstream(path) << text;
    return path;
  }

  absl::FlagSaver saver_;
};

TEST_F(FlagParserTest, SetsNothingWithoutArguments) {
  const ParsedFlags parsed = Parse({});
  EXPECT_THAT(parsed.faults, IsEmpty());
  EXPECT_THAT(parsed.positional, IsEmpty());
  EXPECT_FALSE(parsed.help);
  EXPECT_THAT(ParseFlags(0, nullptr).faults, IsEmpty());
}

TEST_F(FlagParserTest, UnderstandsEveryForm) {
  EXPECT_THAT(Parse({"--test_count=1", "-test_name", "x y", "--test_loud"}).faults, IsEmpty());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 1);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_name), "x y");
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_loud));

  EXPECT_THAT(Parse({"--notest_loud", "--test_count", "-3", "--test_name="}).faults, IsEmpty());
  EXPECT_FALSE(absl::GetFlag(FLAGS_test_loud));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), -3);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_name), "");

  EXPECT_THAT(Parse({"--test_loud=true", "--test_name=a=b", "--test_wait=200ms"}).faults,
              IsEmpty());
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_loud));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_name), "a=b");
  EXPECT_EQ(absl::GetFlag(FLAGS_test_wait), absl::Milliseconds(200));
}

TEST_F(FlagParserTest, DoesNotTakeAnArgumentForABoolsValue) {
  EXPECT_THAT(Parse({"--test_loud", "false"}).positional, ElementsAre("false"));
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_loud));
}

TEST_F(FlagParserTest, LetsTheLaterOneHold) {
  EXPECT_THAT(Parse({"--test_count=1", "--test_count=2"}).faults, IsEmpty());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 2);
}

TEST_F(FlagParserTest, KeepsWhatIsNotAFlag) {
  const ParsedFlags parsed =
      Parse({"encode", "-5", "--test_count=1", "-", "101", "--", "--test_count=2", "--"});
  EXPECT_THAT(parsed.positional, ElementsAre("encode", "-5", "-", "101", "--test_count=2", "--"));
  EXPECT_THAT(parsed.faults, IsEmpty());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 1);
}

TEST_F(FlagParserTest, ReportsEveryFaultAndSetsTheRest) {
  const ParsedFlags parsed =
      Parse({"--test_count=many", "--test_wait=5", "--test_loud=perhaps", "--test_cuont=1",
             "--zzzzzzzzzzzz", "--test_name=n", "--test_count"});
  EXPECT_THAT(
      parsed.faults,
      ElementsAre("--test_count: expected a whole number, got \"many\"",
                  "--test_wait: expected a duration such as 200ms or 5s, got \"5\"",
                  "--test_loud: expected true or false, got \"perhaps\"",
                  "--test_cuont: no such flag; did you mean --test_count?",
                  "--zzzzzzzzzzzz: no such flag", "--test_count: expected a value, got none"));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 7);
  EXPECT_EQ(absl::GetFlag(FLAGS_test_name), "n");
}

TEST_F(FlagParserTest, DoesNotSwallowTheNextFlagAsAValue) {
  const ParsedFlags parsed = Parse({"--test_name", "--test_count=3"});
  EXPECT_THAT(parsed.faults, ElementsAre("--test_name: expected a value, got none"));
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 3);
}

TEST_F(FlagParserTest, NegatesOnlyBools) {
  EXPECT_THAT(Parse({"--notest_count"}).faults, ElementsAre(HasSubstr("no such flag")));
  EXPECT_THAT(Parse({"--notest_loud=true"}).faults, ElementsAre(HasSubstr("no such flag")));
}

TEST_F(FlagParserTest, NoticesHelp) {
  EXPECT_TRUE(Parse({"--help"}).help);
  EXPECT_TRUE(Parse({"-help"}).help);
}

TEST_F(FlagParserTest, ReadsFlagsFromAFile) {
  const std::string path = File("# a comment\n\n  --test_count=4  \r\n--test_loud\n");
  EXPECT_THAT(Parse({absl::StrCat("--flagfile=", path).c_str()}).faults, IsEmpty());
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 4);
  EXPECT_TRUE(absl::GetFlag(FLAGS_test_loud));
}

TEST_F(FlagParserTest, SaysWhereInTheFileTheFaultIs) {
  const std::string path = File("--test_count=4\ntest_loud\n--test_count=x\n--test_name y\n");
  EXPECT_THAT(
      Parse({"--flagfile", path.c_str()}).faults,
      ElementsAre(absl::StrCat("expected --name=value, got test_loud (", path, ":2)"),
                  absl::StrCat("--test_count: expected a whole number, got \"x\" (", path, ":3)"),
                  HasSubstr(":4)")));
}

TEST_F(FlagParserTest, SaysWhichFileItCannotRead) {
  EXPECT_THAT(Parse({"--flagfile=/nowhere/at/all"}).faults,
              ElementsAre("--flagfile: cannot read /nowhere/at/all"));
  EXPECT_THAT(Parse({"--flagfile"}).faults, ElementsAre("--flagfile: expected a value, got none"));
}

TEST_F(FlagParserTest, EndsAtAFileThatNamesItself) {
  const std::string path = File("");
  std::ofstream(path) << "--flagfile=" << path << "\n";
  EXPECT_THAT(Parse({absl::StrCat("--flagfile=", path).c_str()}).faults,
              ElementsAre(HasSubstr("files deep")));
}

TEST_F(FlagParserTest, ReadsFlagsFromTheEnvironment) {
  setenv("FLAGS_test_count", "6", 1);
  setenv("FLAGS_test_wait", "soon", 1);
  const ParsedFlags parsed = Parse({"--fromenv=test_count,test_wait,test_name"});
  EXPECT_EQ(absl::GetFlag(FLAGS_test_count), 6);
  EXPECT_THAT(parsed.faults,
              ElementsAre(HasSubstr("(environment variable FLAGS_test_wait)"),
                          "--fromenv: FLAGS_test_name is not set in the environment"));
  unsetenv("FLAGS_test_count");
  unsetenv("FLAGS_test_wait");
}

TEST_F(FlagParserTest, LaysOutHelpByGroup) {
  const std::vector<FlagGroup> groups = {{"First", {"test_count", "test_name"}},
                                         {"Second", {"test_wait"}}};
  EXPECT_EQ(FlagHelp(groups),
            "First:\n"
            "  --test_count (default: 7)\n"
            "      How many. Range: 0 to 9.\n"
            "  --test_name (default: none)\n"
            "      A name that needs a text which is longer than the line of a terminal so that it "
            "has to be\n"
            "      wrapped somewhere in the middle.\n"
            "\n"
            "Second:\n"
            "  --test_wait (default: 5s)\n"
            "      How long.\n");
}

}  // namespace
}  // namespace encoderd
