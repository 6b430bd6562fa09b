// Goal: people find every number of a run with its unit, programs find it under a name that does
// not change.
// Method: results worked out by hand; the JSON and the table as a whole.
#include "deploy/client/load/load_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace encoderd::client {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

LoadOptions Options() {
  return {.target = "127.0.0.1:50051",
          .rate = 50,
          .lengths = *LengthDistribution::Parse("uniform:10-20"),
          .outstanding = 4096,
          .duration = absl::Seconds(2)};
}

// 100 calls in 2 s with latencies of 1 to 100 ms; the slowest `failures` failed.
LoadResult Result(int failures) {
  std::vector<CallRecord> calls;
  for (int i = 0; i < 100; ++i) {
    calls.push_back(
        {.due = i * absl::Milliseconds(10),
         .lag = absl::Microseconds(20),
         .latency = absl::Milliseconds(i + 1),
         .queue_us = 500,
         .compute_us = 250,
         .tokens = 15,
         .request_bytes = 100,
         .response_bytes = 2000,
         .sent = true,
         .code = i < 100 - failures ? grpc::StatusCode::OK : grpc::StatusCode::RESOURCE_EXHAUSTED});
  }
  LoadResult result = SummariseLoad(calls, absl::Seconds(2), absl::Milliseconds(90));
  result.model.set_name("tiny");
  result.model.set_numerics_id("0123");
  result.cpu_per_call = absl::Microseconds(40);
  if (failures > 0) result.reasons = {{"QUEUE_FULL", failures}};
  return result;
}

TEST(WriteLoadTextTest, ShowsEveryNumberWithItsUnit) {
  std::ostringstream out;
  WriteLoadText(Options(), Result(2), out);
  EXPECT_EQ(out.str(),
            "tiny at 127.0.0.1:50051: Poisson arrivals, 50 calls/s, "
            R"(lengths uniform:10-20 (mean 15, max 20), 1 sequence a call,
2s after 1s of warm-up, deadline 1s, 1 connection

                          offered   answered    in time
calls                         100         98         90  90.00 % in time
calls/s                      50.0       49.0       45.0
tokens/s                                 735
MB/s sent, received         0.005      0.098

milliseconds                 mean        p50        p90        p99      p99.9        max
latency from due time       49.50      49.00      89.00      98.00      98.00      98.00
  in the queue               0.50       0.50       0.50       0.50       0.50       0.50
  in computation             0.25       0.25       0.25       0.25       0.25       0.25
  lag of the generator       0.02       0.02       0.02       0.02       0.02       0.02

codes: OK 98, RESOURCE_EXHAUSTED 2; reasons: QUEUE_FULL 2
generator: 40 us of CPU a call
)");
}

TEST(WriteLoadTextTest, WarnsWhereTheGeneratorLagged) {
  LoadResult result = Result(0);
  result.calls[0].sent = false;
  result.codes = {{"NOT_SENT", 1}, {"OK", 99}};
  std::ostringstream out;
  WriteLoadText(Options(), result, out);
  EXPECT_THAT(out.str(), HasSubstr("warning: the generator did not keep up (p99 of its lag 0.02 "
                                   "ms, 1 calls not sent)"));
}

TEST(WriteLoadTextTest, LetsNoControlCharacterThrough) {
  LoadResult result = Result(0);
  result.model.set_name("a\x1b[2J");
  std::ostringstream out;
  WriteLoadText(Options(), result, out);
  EXPECT_THAT(out.str(), Not(HasSubstr("\x1b")));
}

TEST(WriteLoadTextTest, TellsTheThirdsApartWhereThereIsASpike) {
  LoadOptions options = Options();
  options.spike = 4;
  std::ostringstream out;
  WriteLoadText(options, Result(2), out);
  // Calls are due in the first second of two: 67 in the first third, 33 in the second.
  EXPECT_THAT(
      out.str(),
      AllOf(HasSubstr("Poisson arrivals, 50 calls/s, 4 times that in the middle third, lengths"),
            HasSubstr("                          offered   answered    in time"
                      "     p50 ms     p99 ms     max ms\n"
                      "before the spike               67         67         67"
                      "      34.00      67.00      67.00\n"
                      "in the spike                   33         31         31"
                      "      83.00      98.00      98.00\n"
                      "after the spike                 0          0          0"
                      "       0.00       0.00       0.00\n")));
  const auto parts = LoadJson(options, Result(2))["parts"];
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[1]["answered"], 31);
  EXPECT_EQ(parts[1]["latency_ms"]["max"], 98.0);
}

TEST(LoadJsonTest, KeepsItsNames) {
  const auto expected = nlohmann::json::parse(R"({
    "model": "tiny", "numerics_id": "0123", "target": "127.0.0.1:50051",
    "lengths": "uniform:10-20", "mean_length": 15.0, "max_length": 20, "sequences": 1,
    "bulk": false, "deadline_ms": 1000.0, "retry": false, "connections": 1, "warm_up_s": 1.0, "duration_s": 2.0,
    "seed": 1, "arrival": "poisson", "rate": 50.0, "outstanding": 4096, "spike": 1.0, "parts": null,
    "calls": 100, "answered": 98, "in_time": 90, "goodput_fraction": 0.9,
    "offered_rate": 50.0, "achieved_rate": 49.0, "goodput_rate": 45.0, "tokens_rate": 735.0,
    "request_bytes_rate": 4900.0, "response_bytes_rate": 98000.0,
    "latency_ms": {"mean": 49.5, "p50": 49.0, "p90": 89.0, "p99": 98.0, "p999": 98.0, "max": 98.0},
    "queue_ms": {"mean": 0.5, "p50": 0.5, "p90": 0.5, "p99": 0.5, "p999": 0.5, "max": 0.5},
    "compute_ms": {"mean": 0.25, "p50": 0.25, "p90": 0.25, "p99": 0.25, "p999": 0.25, "max": 0.25},
    "codes": {"OK": 98, "RESOURCE_EXHAUSTED": 2}, "reasons": {"QUEUE_FULL": 2},
    "generator": {
      "lag_ms": {"mean": 0.02, "p50": 0.02, "p90": 0.02, "p99": 0.02, "p999": 0.02, "max": 0.02},
      "lagged": false, "cpu_us_per_call": 40.0}
  })");
  const nlohmann::json got = LoadJson(Options(), Result(2));
  EXPECT_EQ(got, expected) << nlohmann::json::diff(expected, got).dump(1);
}

SweepReport Report() {
  SweepReport report = {.options = Options(), .p99_bound = absl::Milliseconds(99)};
  report.options.outstanding = 32;
  report.offline = Result(0);
  report.points.push_back({25, Result(0)});
  report.points.push_back({50, Result(60)});
  report.found = {.best = 25, .failed = 50};
  return report;
}

TEST(WriteSweepTextTest, SaysHowSureItIs) {
  std::ostringstream out;
  WriteSweepText(Report(), out);
  // One miss of 100: P(at most one of 100) at 1 % is 73.6 %.
  EXPECT_THAT(out.str(),
              AllOf(HasSubstr("      25.0       50.0      50.00      99.00      100        1"
                              "       26.4 %  yes\n"),
                    HasSubstr("      50.0       20.0     failed     failed      100       60"
                              "        0.0 %  no\n"),
                    HasSubstr("offline rate: 50.0 calls/s, 750 tokens/s with 32 calls in flight"),
                    HasSubstr("highest rate with p99 within 99ms: 25.0 calls/s, 0.500 of the "
                              "offline rate; 50.0 is too much\n"
                              "1 of 100 calls missed it: 26.4 % sure that fewer than 1 % do\n"
                              "warning: so few calls leave a p99 uncertain"),
                    HasSubstr("warning: not settled"), Not(HasSubstr("changed its speed"))));
}

TEST(WriteSweepTextTest, DoubtsAnOfflineRateBelowTheBest) {
  SweepReport report = Report();
  report.offline.achieved_rate = 24;
  std::ostringstream out;
  WriteSweepText(report, out);
  EXPECT_THAT(out.str(), HasSubstr("warning: more than the offline rate"));
}

TEST(WriteSweepTextTest, SaysThatNoRateIsLowEnough) {
  SweepReport report = Report();
  report.points.erase(report.points.begin());
  report.found.best = 0;
  std::ostringstream out;
  WriteSweepText(report, out);
  EXPECT_THAT(out.str(), HasSubstr("no rate tried had its p99 within 99ms\n"));
  EXPECT_TRUE(SweepJson(report)["confidence"].is_null());
}

TEST(SweepJsonTest, HasEveryRun) {
  const nlohmann::ordered_json json = SweepJson(Report());
  EXPECT_EQ(json["best_rate"], 25.0);
  EXPECT_EQ(json["failed_rate"], 50.0);
  EXPECT_EQ(json["offline_rate"], 50.0);
  EXPECT_EQ(json["p99_bound_ms"], 99.0);
  EXPECT_EQ(json["settled"], false);
  EXPECT_NEAR(json["confidence"].get<double>(), 0.264, 0.001);
  EXPECT_EQ(json["offline"]["calls"], 100);
  ASSERT_EQ(json["runs"].size(), 2u);
  EXPECT_EQ(json["runs"][0]["p99_of_all_ms"], 99.0);
  EXPECT_EQ(json["runs"][0]["missed"], 1);
  EXPECT_TRUE(json["runs"][1]["p99_of_all_ms"].is_null());  // it has no end
  EXPECT_EQ(json["runs"][1]["reasons"]["QUEUE_FULL"], 60);
}

TEST(ProgressLineTest, IsOfTheLastInterval) {
  LoadProgress progress = {.elapsed = absl::Seconds(3),
                           .total = absl::Seconds(11),
                           .in_flight = 7,
                           .interval = absl::Milliseconds(500),
                           .due = 50,
                           .failed = 2};
  progress.latency = SummariseLatency({absl::Milliseconds(4), absl::Milliseconds(6)});
  EXPECT_EQ(ProgressLine(progress),
            "    3 s of 11 s  due 100.0/s  answered 4.0/s  p50 4.00 ms  p99 6.00 ms  in flight 7"
            "  failed 2");
  progress.warming_up = true;
  progress.latency = {};
  EXPECT_EQ(ProgressLine(progress),
            "    3 s of 11 s, warming up  due 100.0/s  answered 0.0/s  in flight 7  failed 2");
}

}  // namespace
}  // namespace encoderd::client
