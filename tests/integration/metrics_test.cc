// Goal: every call is counted once, under the code that it ended with, and the gauges tell what is
// there now.
// Method: a whole server around the fake engine; its metrics' text.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/test_server.h"
#include "tests/server/batching/fake_clock.h"
#include "tests/server/metrics_text.h"

namespace encoderd {
namespace {

std::string Calls(const std::string& code) {
  return absl::StrCat("encoderd_calls_total{code=\"", code, "\",method=\"Encode\"}");
}

TEST(CallMetricsTest, CountEachCallOnceByItsCode) {
  TestServer server;
  const std::string whole = "encoderd_call_seconds_count{method=\"Encode\",phase=\"whole\"}";
  EXPECT_EQ(server.Metric(whole), 0);

  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(server.Encode(IdsRequest({{1, 2}, {3}})).ok());
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(server.Encode(IdsRequest({{-1}})).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  server.engine().latch().Close();
  PendingCall cancelled(server.encoder(), IdsRequest({{1}}), absl::Seconds(60));
  server.engine().latch().AwaitWaiting(1);
  cancelled.Cancel();
  EXPECT_EQ(cancelled.status().error_code(), grpc::StatusCode::CANCELLED);
  PendingCall expired(server.encoder(), IdsRequest({{1}}), absl::Milliseconds(50));
  EXPECT_EQ(expired.status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.AwaitMetric("encoderd_calls_in_flight", 0);

  EXPECT_EQ(server.Metric(Calls("OK")), 7);
  EXPECT_EQ(server.Metric(Calls("INVALID_ARGUMENT")), 2);
  EXPECT_EQ(server.Metric(Calls("CANCELLED")), 1);
  EXPECT_EQ(server.Metric(Calls("DEADLINE_EXCEEDED")), 1);
  EXPECT_EQ(server.Metric(whole), 11);
  EXPECT_EQ(server.Metric("encoderd_refusals_total{reason=\"TOKEN_OUT_OF_RANGE\"}"), 2);
  EXPECT_EQ(server.Metric("encoderd_refusals_total{reason=\"CANCELLED\"}"), 1);
  EXPECT_EQ(server.Metric("encoderd_refusals_total{reason=\"DEADLINE\"}"), 1);
  EXPECT_EQ(server.Metric("encoderd_sequences_total"), 14);
  EXPECT_EQ(server.Metric("encoderd_tokens_total"), 21);
  EXPECT_EQ(server.Metric("encoderd_calls_without_deadline_total"), 9);
}

// Its message is on the way when the caller cancels: no fault of the message.
TEST(CallMetricsTest, CountACallThatGoesBeforeItsMessageAsCancelled) {
  TestServer server;
  grpc::GenericStub stub(server.channel());
  grpc::CompletionQueue events;
  grpc::ClientContext context;
  const auto call = stub.PrepareCall(&context, "/encoderd.v1.EncoderService/Encode", &events);
  void* tag;
  bool ok = false;
  call->StartCall(nullptr);
  EXPECT_TRUE(events.Next(&tag, &ok) && ok);
  context.TryCancel();
  grpc::Status status;
  call->Finish(&status, nullptr);
  EXPECT_TRUE(events.Next(&tag, &ok) && ok);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);

  server.AwaitMetric(Calls("CANCELLED"), 1);
  EXPECT_EQ(server.Metric("encoderd_refusals_total{reason=\"CANCELLED\"}"), 1);
}

// From the quickest call to one behind a queue that stands still for 40 s.
TEST(CallMetricsTest, ShowHowLongACallWaitedAndRan) {
  FakeClock clock;
  TestServer server(TestOptions(), clock);
  // Where one more call of so many seconds must be: in a bucket that begins and ends within a
  // quarter of them.
  const auto count_near = [&server](const std::string& phase, double seconds) {
    const auto buckets = ReadBuckets(ReadMetrics(server.MetricsText()), "encoderd_call_seconds",
                                     absl::StrCat("method=\"Encode\",phase=\"", phase, "\""));
    return std::prev(buckets.upper_bound(1.25 * seconds))->second -
           std::prev(buckets.lower_bound(seconds))->second;
  };

  server.engine().latch().Close();
  PendingCall quick(server.encoder(), IdsRequest({{1}}), absl::Minutes(10));
  server.engine().latch().AwaitWaiting(1);
  clock.Advance(absl::Milliseconds(2));
  server.engine().latch().Open();
  ASSERT_TRUE(quick.status().ok()) << quick.status().error_message();
  EXPECT_EQ(count_near("whole", 0.002), 1);
  EXPECT_EQ(count_near("compute", 0.002), 1);

  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}), absl::Minutes(10));
  server.engine().latch().AwaitWaiting(1);
  PendingCall held(server.encoder(), IdsRequest({{2}}), absl::Minutes(10));
  server.AwaitMetric("encoderd_queue_calls", 1);
  clock.Advance(absl::Seconds(40));
  server.engine().latch().Open();
  ASSERT_TRUE(running.status().ok()) << running.status().error_message();
  ASSERT_TRUE(held.status().ok()) << held.status().error_message();
  EXPECT_EQ(count_near("whole", 40), 2);
  EXPECT_EQ(count_near("compute", 40), 1);  // of the one that ran
  EXPECT_EQ(count_near("queue", 40), 1);    // of the one that was held
  EXPECT_EQ(held.response().timing().queue_us(), 40'000'000);
}

TEST(CallMetricsTest, CountGetModelApart) {
  TestServer server;
  grpc::ClientContext context;
  v1::GetModelResponse model;
  ASSERT_TRUE(server.encoder().GetModel(&context, {}, &model).ok());
  EXPECT_EQ(server.Metric("encoderd_calls_total{code=\"OK\",method=\"GetModel\"}"), 1);
  EXPECT_EQ(server.Metric("encoderd_call_seconds_count{method=\"GetModel\",phase=\"whole\"}"), 1);
  EXPECT_EQ(server.Metric(Calls("OK")), 0);
}

TEST(QueueGaugeTest, FollowsTheQueue) {
  TestServer server;
  const std::string gauge = "encoderd_queue_calls";
  EXPECT_EQ(server.Metric(gauge), 0);
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  std::vector<std::unique_ptr<PendingCall>> waiting;
  for (int i = 0; i < 10; ++i) {
    waiting.push_back(std::make_unique<PendingCall>(server.encoder(), IdsRequest({{1}, {2}})));
  }
  server.AwaitMetric(gauge, 10);
  EXPECT_EQ(server.Metric("encoderd_queue_sequences"), 20);
  EXPECT_EQ(server.Metric("encoderd_queue_tokens"), 20);
  for (int i = 0; i < 5; ++i) waiting[static_cast<size_t>(2 * i)]->Cancel();
  server.AwaitMetric(gauge, 5);
  EXPECT_EQ(server.Metric("encoderd_queue_tokens"), 10);
  server.engine().latch().Open();
  for (auto& call : waiting) call->status();
  server.AwaitMetric(gauge, 0);
  server.AwaitMetric("encoderd_calls_in_flight", 0);
  EXPECT_EQ(server.Metric("encoderd_queue_tokens"), 0);
  EXPECT_EQ(server.Metric(Calls("OK")), 6);
  EXPECT_EQ(server.Metric(Calls("CANCELLED")), 5);
}

TEST(ModelMetricsTest, SayWhatIsServedAndWhetherItIsReady) {
  TestServer server(TestOptions(), TestServer::NotLoaded());
  EXPECT_EQ(server.Metric("encoderd_ready"), 0);
  ASSERT_TRUE(server.Load().ok());
  EXPECT_EQ(server.Metric("encoderd_ready"), 1);
  EXPECT_THAT(server.MetricsText(), ::testing::HasSubstr("numerics_id=\"fake-numerics\""));
  server.server().Drain();
  EXPECT_EQ(server.Metric("encoderd_ready"), 0);
}

}  // namespace
}  // namespace encoderd
