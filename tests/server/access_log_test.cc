// Goal: the access log has what it says of each call, as lines that machines read, whatever callers
//       send; and the metrics miss none.
// Method: lines of records as values, parsed again; files.
#include "server/access_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "tests/server/metrics_text.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

const absl::Time kArrival = absl::FromUnixMillis(1769860800123);

CallRecord TracedCall() {
  return {.method = Method::kEncode,
          .identity = {.peer = "ipv4:127.0.0.1:40312",
                       .client = "search",
                       .request_id = "r-1",
                       .parent = Traceparent{.trace_id = std::string(32, 'a'),
                                             .span_id = std::string(16, 'b')},
                       .span_id = std::string(16, 'c')},
          .whole = absl::Microseconds(1500),
          .timing = CallTiming{.queue = absl::Microseconds(300),
                               .compute = absl::Microseconds(1100),
                               .batches = 2,
                               .batch_tokens = 64},
          .sequences = 3,
          .tokens = 70,
          .request_bytes = 200,
          .answer_bytes = 5000};
}

TEST(AccessLineTest, HasEveryFieldOfACallThatHasThem) {
  EXPECT_EQ(AccessLine(TracedCall(), kArrival),
            R"({"time":"2026-01-31T12:00:00.123Z","method":"Encode","code":"OK",)"
            R"("peer":"ipv4:127.0.0.1:40312","client":"search","request_id":"r-1",)"
            R"("trace_id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","parent_span_id":"bbbbbbbbbbbbbbbb",)"
            R"("span_id":"cccccccccccccccc","sequences":3,"tokens":70,"request_bytes":200,)"
            R"("answer_bytes":5000,"queue_us":300,"compute_us":1100,"batches":2,)"
            R"("batch_tokens":64,"whole_us":1500})"
            "\n");
}

TEST(AccessLineTest, LeavesOutWhatACallDoesNotHave) {
  const CallRecord refused = {.method = Method::kGetModel,
                              .identity = {.peer = "unix:", .request_id = "r"},
                              .code = 5,
                              .reason = "MODEL_NOT_FOUND",
                              .whole = absl::Microseconds(9),
                              .request_bytes = 7};
  EXPECT_EQ(AccessLine(refused, kArrival),
            R"({"time":"2026-01-31T12:00:00.123Z","method":"GetModel","code":"NOT_FOUND",)"
            R"("reason":"MODEL_NOT_FOUND","peer":"unix:","request_id":"r","sequences":0,)"
            R"("tokens":0,"request_bytes":7,"answer_bytes":0,"whole_us":9})"
            "\n");
}

TEST(AccessLineTest, IsOneShortLineWhateverTheCallerIsCalled) {
  std::string every_byte;
  for (int c = 0; c < 256; ++c) every_byte.push_back(static_cast<char>(c));
  CallRecord call = TracedCall();
  for (const std::string& text :
       {std::string("\n\"}{\\"), every_byte, std::string(100'000, '\x01')}) {
    call.identity.peer = text;
    call.identity.client = text;
    call.identity.request_id = std::string(128, '"');
    const std::string line = AccessLine(call, kArrival);
    EXPECT_EQ(line.find('\n'), line.size() - 1);
    EXPECT_LE(line.size(), 4096);
    const auto parsed = nlohmann::json::parse(line);
    EXPECT_EQ(parsed["request_id"], call.identity.request_id);
    EXPECT_THAT(parsed["peer"].get<std::string>(),
                ::testing::StartsWith(text.substr(0, std::min<size_t>(text.size(), 100))));
  }
}

class AccessLogTest : public ::testing::Test {
 protected:
  AccessLogTest() { metrics_ = *Metrics::Start("", "1", "id"); }
  ~AccessLogTest() override { std::remove(path_.c_str()); }

  void Open(const std::string& path, int64_t every) {
    auto log = AccessLog::Open(path, every, *metrics_);
    ASSERT_THAT(log, IsOk());
    log_ = *std::move(log);
  }
  void End(CallRecord call) {
    log_->CallStarted();
    log_->CallEnded(call);
  }
  std::vector<nlohmann::json> Lines() {
    log_->Flush();
    std::vector<nlohmann::json> lines;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }
  double Metric(const std::string& series) const {
    return ReadMetrics(metrics_->Text()).at(series);
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "access_log_", getpid());
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<AccessLog> log_;
};

TEST_F(AccessLogTest, HasALineForEachCallAndTheMetricsCountThem) {
  Open(path_, 1);
  const absl::Time before = absl::Now();
  for (int i = 0; i < 3; ++i) End(TracedCall());
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 3);
  absl::Time arrival;
  std::string error;
  ASSERT_TRUE(
      absl::ParseTime(absl::RFC3339_full, lines[0]["time"].get<std::string>(), &arrival, &error))
      << error;
  EXPECT_GE(arrival, before - absl::Milliseconds(3));  // of three digits, less the 1.5 ms it took
  EXPECT_LE(arrival, absl::Now());
  EXPECT_EQ(Metric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}"), 3);
  EXPECT_EQ(Metric("encoderd_calls_in_flight"), 0);
  EXPECT_EQ(Metric("encoderd_access_log_dropped_total"), 0);
}

TEST_F(AccessLogTest, HasOneCallInSoManyAndEveryFailure) {
  Open(path_, 4);
  CallRecord failed = TracedCall();
  failed.code = 13;
  failed.reason = "ENGINE_FAILURE";
  for (int i = 0; i < 12; ++i) End(i == 6 ? failed : TracedCall());
  std::vector<std::string> codes;
  for (const auto& line : Lines()) codes.push_back(line["code"]);
  EXPECT_THAT(codes, ::testing::ElementsAre("OK", "OK", "INTERNAL", "OK"));
  EXPECT_EQ(Metric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}"), 11);
}

TEST_F(AccessLogTest, MayHaveFailuresAlone) {
  Open(path_, 0);
  CallRecord failed = TracedCall();
  failed.code = 13;
  failed.reason = "ENGINE_FAILURE";
  End(TracedCall());
  End(failed);
  const auto lines = Lines();
  ASSERT_EQ(lines.size(), 1);
  EXPECT_EQ(lines[0]["code"], "INTERNAL");
  EXPECT_EQ(lines[0]["reason"], "ENGINE_FAILURE");
}

TEST_F(AccessLogTest, CountsTheLinesThatAreLost) {
  Open("/dev/full", 1);
  for (int i = 0; i < 5; ++i) End(TracedCall());
  log_->Flush();
  EXPECT_EQ(Metric("encoderd_access_log_dropped_total"), 5);
  EXPECT_EQ(Metric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}"), 5);
}

TEST_F(AccessLogTest, NamesTheFlagOfAFileThatCannotBeOpened) {
  EXPECT_THAT(AccessLog::Open("/no/such/folder/log", 1, *metrics_),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--access_log: "), HasSubstr("/no/such/folder/log"))));
}

}  // namespace
}  // namespace encoderd
