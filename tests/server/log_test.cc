// Goal: every event is one line that people and machines can read, whatever bytes it holds, and the
//       end of a process leaves its reason.
// Method: lines as values; whole processes for what goes to stderr and to files.
#include "server/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/log/log.h"

namespace encoderd {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

LogLine Line(std::string_view message) {
  return {.time = absl::FromUnixMillis(1769860800123),
          .severity = absl::LogSeverity::kWarning,
          .source = "main.cc:42",
          .message = message};
}

TEST(LogTest, WritesTextWithTimeSeverityAndSource) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, Line("Serving. port=1")),
            "2026-01-31T12:00:00.123Z WARNING main.cc:42 Serving. port=1\n");
}

TEST(LogTest, KeepsTextOnOneLine) {
  EXPECT_EQ(FormatLogLine(LogFormat::kText, Line("a\nb\tc\r\x1b[31m\x7f")),
            "2026-01-31T12:00:00.123Z WARNING main.cc:42 a\\nb\\tc\\r\\x1b[31m\\x7f\n");
}

TEST(LogTest, WritesJsonThatReadsBack) {
  const std::string message = "say \"hi\"\\\n\t\x01 ünï";
  const std::string line = FormatLogLine(LogFormat::kJson, Line(message));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["time"], "2026-01-31T12:00:00.123Z");
  EXPECT_EQ(json["severity"], "WARNING");
  EXPECT_EQ(json["source"], "main.cc:42");
  EXPECT_EQ(json["message"], message);
}

TEST(LogTest, WritesValidJsonForAnyBytes) {
  std::string every_byte;
  for (int c = 0; c < 256; ++c) every_byte.push_back(static_cast<char>(c));
  const auto json = nlohmann::json::parse(FormatLogLine(LogFormat::kJson, Line(every_byte)));
  EXPECT_THAT(json["message"].get<std::string>(),
              StartsWith(every_byte.substr(0, 128) + "\xef\xbf\xbd"));
}

TEST(LogTest, QuotesValuesThatNeedIt) {
  EXPECT_EQ(LogValue("127.0.0.1:50051"), "127.0.0.1:50051");
  EXPECT_EQ(LogValue("/a\\b"), "/a\\b");
  EXPECT_EQ(LogValue(""), "\"\"");
  EXPECT_EQ(LogValue("a b"), "\"a b\"");
  EXPECT_EQ(LogValue("a=b"), "\"a=b\"");
  EXPECT_EQ(LogValue("say \"hi\" \\"), "\"say \\\"hi\\\" \\\\\"");
  EXPECT_EQ(LogValue("a\nb\x01"), "\"a\\nb\\x01\"");
}

TEST(LogTest, ReadsTheBuildIdOfThisBinary) { EXPECT_THAT(BuildId(), MatchesRegex("[0-9a-f]{40}")); }

// ---- Whole processes ----------------------------------------------------------------------------

class LogDeathTest : public ::testing::Test {
 protected:
  // "threadsafe" starts a new process for each, so that StartLog is called once in it.
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  // A file of the test's own, under a name that the process which is to die finds as well.
  static std::string TerminationLog() {
    return ::testing::TempDir() + "termination_log." +
           ::testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  static std::string ReadTerminationLog() {
    std::ostringstream text;
    text << std::ifstream(TerminationLog()).rdbuf();
    return text.str();
  }
};

TEST_F(LogDeathTest, SendsEverythingThroughOneFormat) {
  EXPECT_EXIT(
      {
        StartLog({.format = LogFormat::kText});
        LOG(INFO) << "Serving. port=1";
        _exit(0);
      },
      ExitedWithCode(0),
      "^[0-9-]+T[0-9:]+\\.[0-9][0-9][0-9]Z INFO log_test.cc:[0-9]+ Serving\\. port=1\n$");
  EXPECT_EXIT(
      {
        StartLog({.format = LogFormat::kJson});
        LOG(INFO) << "Serving. port=1";
        _exit(0);
      },
      ExitedWithCode(0), "^\\{\"time\":.*\"message\":\"Serving\\. port=1\"\\}\n$");
}

TEST_F(LogDeathTest, LeavesTheReasonOfAnExit) {
  EXPECT_EXIT(
      {
        StartLog({.termination_log = TerminationLog()});
        LogExit("port taken");
        LogExit("and then some");
        _exit(69);
      },
      ExitedWithCode(69), "ERROR log.cc:[0-9]+ port taken\n");
  EXPECT_EQ(ReadTerminationLog(), "port taken\n");
}

TEST_F(LogDeathTest, LeavesTheReasonOfABrokenInvariant) {
  EXPECT_EXIT(
      {
        StartLog({.termination_log = TerminationLog()});
        LOG(FATAL) << "two and two";
      },
      KilledBySignal(SIGABRT), "FATAL log_test.cc:[0-9]+ two and two\n(.|\n)*build_id=[0-9a-f]+ ");
  EXPECT_THAT(ReadTerminationLog(), MatchesRegex("[^\n]* FATAL [^\n]* two and two\n"));
}

TEST_F(LogDeathTest, LeavesAStackAndTheBuildIdOfACrash) {
  EXPECT_EXIT(
      {
        StartLog({.termination_log = TerminationLog()});
        raise(SIGSEGV);
      },
      KilledBySignal(SIGSEGV),
      "SIGSEGV received(.|\n)*@ 0x[^\n]*LogDeathTest(.|\n)*build_id=[0-9a-f]+ loaded_at=0x");
  EXPECT_THAT(ReadTerminationLog(), ::testing::HasSubstr("SIGSEGV received"));
}

TEST_F(LogDeathTest, StartsWithoutATerminationLogItCannotWrite) {
  EXPECT_EXIT(
      {
        StartLog({.termination_log = "/nowhere/at/all"});
        _exit(0);
      },
      ExitedWithCode(0), "WARNING .*Cannot write the termination log\\. file=/nowhere/at/all");
}

}  // namespace
}  // namespace encoderd
