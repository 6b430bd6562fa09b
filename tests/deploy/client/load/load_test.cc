// Goal: a run offers what it was told to, measures from when calls were due, and finds fault with
// itself rather than hide what it did not send.
// Method: a whole server around the fake engine; runs of fractions of a second.
#include "deploy/client/load/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "tests/integration/test_server.h"

namespace encoderd::client {
namespace {

using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

void Ignore(const LoadProgress&) {}

class LoadTest : public testing::Test {
 protected:
  // Ids that the fake engine has no special meaning for.
  LoadTest() { server_.engine().mutable_spec().vocab_size = 10; }

  LoadOptions Options() {
    LoadOptions options{.target = absl::StrCat("127.0.0.1:", server_.server().port()),
                        .rate = 200,
                        .lengths = *LengthDistribution::Parse("uniform:1-9"),
                        .warm_up = absl::Milliseconds(50),
                        .duration = absl::Milliseconds(300)};
    options.outputs.set_last_hidden_state(true);
    return options;
  }

  TestServer server_;
};

TEST_F(LoadTest, OffersTheRateAndKeepsEveryLatency) {
  LoadOptions options = Options();
  options.arrival = Arrival::kEven;
  options.connections = 2;
  const int64_t before = server_.engine().sequences_run();
  const auto result = RunLoad(options, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->offered(), 60);
  EXPECT_NEAR(result->offered_rate, 200, 1e-9);
  EXPECT_THAT(result->codes, ElementsAre(Pair("OK", 60)));
  EXPECT_EQ(result->latency.count, 60);
  EXPECT_EQ(result->model.family(), "fake");
  // The window, the warm-up, and the first try.
  EXPECT_EQ(server_.engine().sequences_run() - before, 60 + 10 + 1);
  for (const CallRecord& call : result->calls) {
    EXPECT_GE(call.latency, call.lag);
    EXPECT_GE(absl::ToInt64Microseconds(call.latency), call.queue_us + call.compute_us);
    EXPECT_GE(call.response_bytes, call.tokens * 8 * sizeof(float));
  }
  EXPECT_GT(result->cpu_per_call, absl::ZeroDuration());
}

TEST_F(LoadTest, KeepsAsManyInFlightAsItIsTold) {
  LoadOptions options = Options();
  options.arrival = Arrival::kSaturate;
  options.rate = 0;
  options.outstanding = 8;
  server_.engine().latch().Close();
  // The first try waits at the latch, too.
  std::thread opener([&] {
    server_.engine().latch().AwaitWaiting(1);
    server_.engine().latch().Open();
  });
  const auto result = RunLoad(options, Ignore);
  opener.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->answered, 8);
  EXPECT_EQ(result->answered, result->offered());
  // Little's law: the mean number in flight is rate times latency.
  EXPECT_NEAR(result->achieved_rate * absl::ToDoubleSeconds(result->latency.mean), 8, 1.6);
}

TEST_F(LoadTest, ShowsAStallInEveryCallThatWasDueInIt) {
  LoadOptions options = Options();
  options.arrival = Arrival::kEven;
  options.duration = absl::Milliseconds(500);
  options.deadline = absl::Seconds(10);
  // The server stops after some calls until 40 more wait in its queue: a stall of 200 ms. A
  // generator that waits for answers would have sent one of them and seen one slow call in 61.
  const int64_t before = server_.engine().sequences_run();
  std::thread stall([&] {
    while (server_.engine().sequences_run() - before < 20) std::this_thread::yield();
    server_.engine().latch().Close();
    while (server_.Metric("encoderd_queue_calls") < 40) std::this_thread::yield();
    server_.engine().latch().Open();
  });
  const auto result = RunLoad(options, Ignore);
  stall.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->answered, 100);
  EXPECT_GE(result->latency.p99, absl::Milliseconds(190));
  EXPECT_GE(result->MissesOf(absl::Milliseconds(100)), 19);
  EXPECT_LE(result->latency.p50, absl::Milliseconds(100));
}

TEST_F(LoadTest, EndsCallsAtTheirDeadline) {
  LoadOptions options = Options();
  options.deadline = absl::Milliseconds(50);
  server_.engine().latch().Close();
  const auto result = RunLoad(options, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->answered, 0);
  EXPECT_EQ(result->goodput_rate, 0);
  EXPECT_THAT(result->codes, ElementsAre(Pair("DEADLINE_EXCEEDED", result->offered())));
  EXPECT_EQ(result->first_failure.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  for (const CallRecord& call : result->calls) EXPECT_GE(call.latency, absl::Milliseconds(45));
}

TEST_F(LoadTest, CountsWhatItMayNotSend) {
  LoadOptions options = Options();
  options.arrival = Arrival::kEven;
  options.outstanding = 3;
  options.warm_up = absl::ZeroDuration();
  options.deadline = absl::Milliseconds(600);
  server_.engine().latch().Close();
  const auto result = RunLoad(options, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->codes, ElementsAre(Pair("DEADLINE_EXCEEDED", 3), Pair("NOT_SENT", 57)));
  EXPECT_TRUE(result->generator_lagged());
}

TEST_F(LoadTest, CountsRefusalsByCodeAndReason) {
  LoadOptions options = Options();
  options.arrival = Arrival::kEven;
  options.rate = 500;
  options.warm_up = absl::ZeroDuration();
  options.deadline = absl::Milliseconds(400);
  server_.engine().latch().Close();
  const auto result = RunLoad(options, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  // 150 calls are due before the first ends, a connection may have 64. A sender that is kept from
  // its core for 100 ms would send some late ones to a place that is free again.
  const int64_t refused = result->codes.at("RESOURCE_EXHAUSTED");
  EXPECT_LE(refused, 150 - 64);
  EXPECT_GE(refused, 40);
  EXPECT_EQ(result->codes.at("DEADLINE_EXCEEDED"), 150 - refused);
  EXPECT_EQ(result->reasons.at("CONNECTION_BUSY"), refused);
}

TEST_F(LoadTest, DoesNotHammerAServerThatRefuses) {
  LoadOptions options = Options();
  options.arrival = Arrival::kSaturate;
  options.rate = 0;
  options.outstanding = 2;
  server_.engine().SetBroken();
  const auto result = RunLoad(options, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->codes, ElementsAre(Pair("INTERNAL", testing::Le(2 * 31))));
}

TEST_F(LoadTest, ReportsWhileItRuns) {
  LoadOptions options = Options();
  options.duration = absl::Milliseconds(1400);
  options.connections = 3;
  std::vector<LoadProgress> reports;
  const auto result = RunLoad(options, [&](const LoadProgress& report) {
    reports.push_back(report);
    EXPECT_EQ(server_.Metric("encoderd_connections"), 3);
  });
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_TRUE(reports[0].warming_up);
  EXPECT_EQ(reports[0].total, absl::Milliseconds(1450));
  EXPECT_GE(reports[0].elapsed, absl::Milliseconds(1000));
  EXPECT_GT(reports[0].due, 150);
  EXPECT_EQ(reports[0].failed, 0);
  EXPECT_GT(reports[0].latency.count, 150);
}

// With one place the end of each call could be taken for that of the run, most of all when a report
// is due.
TEST_F(LoadTest, AClosedLoopOfOneRunsToItsEndWithNobodyToReportTo) {
  LoadOptions options = Options();
  options.arrival = Arrival::kSaturate;
  options.rate = 0;
  options.outstanding = 1;
  options.duration = absl::Milliseconds(1400);
  const auto result = RunLoad(options, nullptr);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->answered, result->offered());
  EXPECT_GE(result->calls.back().due, absl::Milliseconds(1300));
}

TEST_F(LoadTest, TellsBeforeTheRunWhatTheModelCannotDo) {
  const int64_t before = server_.engine().sequences_run();
  LoadOptions options = Options();
  options.lengths = *LengthDistribution::Parse("fixed:513");
  EXPECT_THAT(RunLoad(options, Ignore),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--lengths=fixed:513")));
  options = Options();
  options.outputs.set_logits(true);
  EXPECT_THAT(RunLoad(options, Ignore), StatusIs(absl::StatusCode::kFailedPrecondition));
  options = Options();
  options.model = "another";
  EXPECT_THAT(RunLoad(options, Ignore), StatusIs(absl::StatusCode::kNotFound));
  options = Options();
  options.max_response_bytes = 300;
  EXPECT_THAT(RunLoad(options, Ignore),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("ANSWER_TOO_LARGE")));
  EXPECT_EQ(server_.engine().sequences_run(), before);
}

TEST(CheckLoadOptionsTest, TakesValuesAtTheirLimits) {
  LoadOptions options{.rate = kMaxRate, .lengths = *LengthDistribution::Parse("short")};
  options.outstanding = kMaxOutstanding;
  options.connections = kMaxConnections;
  options.deadline = kMaxDeadline;
  options.warm_up = absl::ZeroDuration();
  options.duration = absl::Seconds(kMaxCalls / kMaxRate);
  EXPECT_TRUE(CheckLoadOptions(options).ok()) << CheckLoadOptions(options);
  options.rate = 1;
  options.warm_up = kMaxWarmUp;
  options.duration = kMaxDuration;
  EXPECT_TRUE(CheckLoadOptions(options).ok()) << CheckLoadOptions(options);
}

TEST(CheckLoadOptionsTest, NamesEveryFault) {
  const auto nanosecond = absl::Nanoseconds(1);
  LoadOptions options{.rate = kMaxRate * 1.001, .lengths = *LengthDistribution::Parse("short")};
  options.sequences = 0;
  options.outstanding = kMaxOutstanding + 1;
  options.connections = kMaxConnections + 1;
  options.max_response_bytes = 0;
  options.deadline = kMaxDeadline + nanosecond;
  options.warm_up = kMaxWarmUp + nanosecond;
  options.duration = kMaxDuration + nanosecond;
  EXPECT_THAT(
      CheckLoadOptions(options),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("--rate: expected more than 0, up to 100000 calls per second"),
                     HasSubstr("--rate: expected at most 5000000 calls in the whole run"),
                     HasSubstr("--sequences"), HasSubstr("--outstanding"),
                     HasSubstr("--connections: expected 1 to 1024, got 1025"),
                     HasSubstr("--max_response_bytes"), HasSubstr("--deadline"),
                     HasSubstr("--warm_up"), HasSubstr("--duration"))));
  options = {.rate = 0, .lengths = options.lengths, .duration = absl::ZeroDuration()};
  options.deadline = absl::ZeroDuration();
  EXPECT_THAT(CheckLoadOptions(options),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--rate"), HasSubstr("--deadline"),
                             HasSubstr("--duration: expected more than 0, up to 1h, got 0"))));
  options.rate = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(CheckLoadOptions(options),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--rate")));
}

TEST_F(LoadTest, SendsMoreInTheMiddleThirdOfASpike) {
  LoadOptions options = Options();
  options.arrival = Arrival::kEven;
  options.spike = 3;
  options.warm_up = absl::ZeroDuration();
  const auto result = RunLoad(options, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  const auto parts = PartsOf(*result, options.deadline);
  EXPECT_NEAR(static_cast<double>(parts[0].offered), 20, 1);
  EXPECT_NEAR(static_cast<double>(parts[1].offered), 60, 1);
  EXPECT_NEAR(static_cast<double>(parts[2].offered), 20, 1);
}

TEST_F(LoadTest, EndsWhenItIsToldTo) {
  for (const Arrival arrival : {Arrival::kEven, Arrival::kSaturate}) {
    LoadOptions options = Options();
    options.arrival = arrival;
    if (arrival == Arrival::kSaturate) options.rate = 0;
    options.outstanding = 8;
    options.duration = absl::Minutes(1);
    std::stop_source stop;
    options.stop = stop.get_token();
    // After a second, when progress is first told.
    const auto result = RunLoad(options, [&](const LoadProgress&) { stop.request_stop(); });
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_GT(result->answered, 0);
    EXPECT_EQ(result->answered, result->offered());
    EXPECT_LT(result->window, absl::Seconds(20));
    EXPECT_GT(result->achieved_rate, 0);
  }
}

TEST_F(LoadTest, UsesEveryAddressAndTriesAgainWhereItIsToldTo) {
  TestServer loading(TestOptions(), TestServer::NotLoaded());
  LoadOptions options = Options();
  options.target = absl::StrCat("ipv4:127.0.0.1:", server_.server().port(),
                                ",127.0.0.1:", loading.server().port());
  options.retry = true;
  // One call after the other: each that is refused goes to the other address next.
  options.arrival = Arrival::kSaturate;
  options.rate = 0;
  options.outstanding = 1;
  options.deadline = absl::Seconds(20);
  const auto result = RunLoad(options, Ignore);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->codes, ElementsAre(Pair("OK", result->offered())));
  EXPECT_GT(loading.Metric("encoderd_refusals_total{reason=\"LOADING\"}"), 0);
}

TEST_F(LoadTest, LeavesOutWhoDoesNotServeWhereItIsToldTo) {
  TestServer loading(TestOptions(), TestServer::NotLoaded());
  LoadOptions options = Options();
  options.target = absl::StrCat("ipv4:127.0.0.1:", loading.server().port(),
                                ",127.0.0.1:", server_.server().port());
  options.watch_health = true;
  // It is asked how it is, all the same.
  std::thread connected([&] { loading.AwaitMetric("encoderd_connections", 1); });
  const auto result = RunLoad(options, Ignore);
  connected.join();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(result->codes, ElementsAre(Pair("OK", result->offered())));
  EXPECT_EQ(loading.Metric("encoderd_refusals_total{reason=\"LOADING\"}"), 0);
}

TEST(RunLoadTest, SaysThatNobodyListens) {
  // A listener that is gone again: its port refuses.
  int port = 0;
  {
    TestServer server;
    port = server.server().port();
  }
  LoadOptions options{.target = absl::StrCat("127.0.0.1:", port),
                      .rate = 1,
                      .lengths = *LengthDistribution::Parse("short")};
  options.connect_limit = absl::Milliseconds(100);
  EXPECT_THAT(RunLoad(options, Ignore),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("expected 1 connection within 100ms, got 0")));
}

}  // namespace
}  // namespace encoderd::client
