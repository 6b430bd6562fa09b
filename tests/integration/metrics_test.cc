// Goal: every call is counted once, under the code that it ended with, and the gauges tell what is
// there now.
// Method: a whole server around the fake engine; its metrics' text.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/test_server.h"

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
