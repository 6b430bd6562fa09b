// Goal: work that there is no room or no time for is refused or ended, says when to come again, and is
// not computed.
// Method: a whole server around the fake engine, over a socket; the engine is held.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

TEST(OverloadTest, AFullQueueRefusesAtOnceAndSaysWhenToComeAgain) {
  Options options = TestOptions();
  options.max_queue_requests = 2;
  TestServer server(options);
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  PendingCall waiting_1(server.encoder(), IdsRequest({{2}}));
  PendingCall waiting_2(server.encoder(), IdsRequest({{3}}));
  server.AwaitMetric("encoderd_queue_calls", 2);

  PendingCall refused(server.encoder(), IdsRequest({{4}}));
  EXPECT_THAT(refused.status(), Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", ""));
  const auto& metadata = refused.context().GetServerTrailingMetadata();
  const auto pushback = metadata.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, metadata.end());
  EXPECT_GE(std::stoi(std::string(pushback->second.data(), pushback->second.size())), 1);
  EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(refused.status()).has_value());

  server.engine().latch().Open();
  EXPECT_TRUE(running.status().ok());
  EXPECT_TRUE(waiting_1.status().ok());
  EXPECT_TRUE(waiting_2.status().ok());
}

TEST(OverloadTest, AConnectionHasAShareOfTheCalls) {
  Options options = TestOptions();
  options.max_connection_inflight = 2;
  TestServer server(options);
  server.engine().latch().Close();
  PendingCall first(server.encoder(), IdsRequest({{1}}));
  PendingCall second(server.encoder(), IdsRequest({{2}}));
  server.AwaitMetric("encoderd_calls_in_flight", 2);
  EXPECT_THAT(server.Encode(IdsRequest({{3}})),
              Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "CONNECTION_BUSY", "2 calls"));

  const auto other = v1::EncoderService::NewStub(server.Connect());
  PendingCall elsewhere(*other, IdsRequest({{3}}));
  server.AwaitMetric("encoderd_calls_in_flight", 3);
  server.engine().latch().Open();
  EXPECT_TRUE(elsewhere.status().ok());
  EXPECT_TRUE(first.status().ok());
  EXPECT_TRUE(second.status().ok());
  EXPECT_TRUE(server.Encode(IdsRequest({{3}})).ok());
}

// A call whose answer is never read: 8 MB, of which gRPC sends what the window of a stream holds.
class UnreadCall {
 public:
  explicit UnreadCall(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    v1::EncodeRequest request =
        IdsRequest({std::vector<int32_t>(500, 1), std::vector<int32_t>(500, 2)});
    request.mutable_outputs()->mutable_attentions();
    request.set_max_response_bytes(32 << 20);
    const grpc::Slice bytes(request.SerializeAsString());
    call_ = stub_.PrepareCall(&context_, "/encoderd.v1.EncoderService/Encode", &events_);
    call_->StartCall(nullptr);
    Await();
    call_->WriteLast(grpc::ByteBuffer(&bytes, 1), {}, nullptr);
    Await();
  }
  ~UnreadCall() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Await();
  }

  static grpc::ChannelArguments SmallWindow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return arguments;
  }

 private:
  void Await() {
    void* tag;
    bool ok;
    ASSERT_TRUE(events_.Next(&tag, &ok));
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue events_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST(UnreadAnswersTest, StayInTheMemoryThatAllCallsShare) {
  Options options = TestOptions();
  options.max_inflight_bytes = 12'000'000;
  TestServer server(options);
  {
    UnreadCall unread(server.Connect(UnreadCall::SmallWindow()));
    server.AwaitMetric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}", 1);
    EXPECT_GE(server.Metric("encoderd_inflight_bytes"), 8'000'000);

    v1::EncodeRequest request = IdsRequest({std::vector<int32_t>(512, 3)});
    EXPECT_TRUE(server.Encode(request).ok());
    request.mutable_outputs()->mutable_attentions();  // 4 MiB
    request.set_max_response_bytes(32 << 20);
    PendingCall refused(server.encoder(), request);
    EXPECT_THAT(refused.status(),
                Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "MEMORY_BUDGET", "12000000"));
    EXPECT_EQ(refused.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
    EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(refused.status()).has_value());
  }
  server.AwaitMetric("encoderd_inflight_bytes", 0);
}

TEST(UnreadAnswersTest, CountAgainstTheirConnection) {
  Options options = TestOptions();
  options.max_inflight_bytes = 60'000'000;  // a connection that does not read may hold a quarter
  TestServer server(options);
  const auto channel = server.Connect(UnreadCall::SmallWindow());
  UnreadCall first(channel);
  server.AwaitMetric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}", 1);
  UnreadCall second(channel);
  server.AwaitMetric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}", 2);
  PendingCall third(*v1::EncoderService::NewStub(channel), IdsRequest({{1}}));
  EXPECT_THAT(third.status(),
              Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "CONNECTION_BUSY", "not read"));
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

TEST(UnreadAnswersTest, AreGivenUpAtTheDefaultDeadline) {
  Options options = TestOptions();
  options.default_deadline = absl::Milliseconds(500);
  TestServer server(options);
  UnreadCall unread(server.Connect(UnreadCall::SmallWindow()));
  server.AwaitMetric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}", 1);
  server.AwaitMetric("encoderd_inflight_bytes", 0);
}

TEST(DeadlineTest, EndsAWaitingCallAndItIsNotRun) {
  TestServer server;
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  const int64_t run_before = server.engine().sequences_run();
  PendingCall late(server.encoder(), IdsRequest({{2}}), absl::Milliseconds(100));
  EXPECT_EQ(late.status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.AwaitMetric("encoderd_calls_total{code=\"DEADLINE_EXCEEDED\",method=\"Encode\"}", 1);
  server.engine().latch().Open();
  EXPECT_TRUE(running.status().ok());
  EXPECT_TRUE(server.server().Drain());
  EXPECT_EQ(server.engine().sequences_run(), run_before + 1);
}

// A deadline is a point in time: a call that took more than half of its time to be admitted still
// has the rest of it.
TEST(DeadlineTest, DoesNotComeEarlyForACallThatIsSlowToAdmit) {
  TestServer server;
  server.engine().allocation_latch().Close();
  PendingCall call(server.encoder(), IdsRequest({{1}}), absl::Seconds(3));
  server.engine().allocation_latch().AwaitWaiting(1);
  absl::SleepFor(absl::Milliseconds(1700));  // gRPC's clock, which no test can move
  server.engine().allocation_latch().Open();
  EXPECT_TRUE(call.status().ok()) << call.status().error_message();
}

TEST(DeadlineTest, CallsWithoutOneGetTheDefaultAndAreCounted) {
  Options options = TestOptions();
  options.default_deadline = absl::Milliseconds(50);
  TestServer server(options);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
  server.engine().latch().Close();
  EXPECT_THAT(server.Encode(IdsRequest({{2}})),
              Refused(grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE", "the deadline passed"));
  PendingCall patient(server.encoder(), IdsRequest({{3}}), absl::Seconds(60));
  server.AwaitMetric("encoderd_calls_in_flight", 1);
  server.engine().latch().Open();
  EXPECT_TRUE(patient.status().ok());
  EXPECT_EQ(server.Metric("encoderd_calls_without_deadline_total"), 2);
}

TEST(CancelTest, ACancelledCallIsNotRun) {
  TestServer server;
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  const int64_t run_before = server.engine().sequences_run();
  PendingCall cancelled(server.encoder(), IdsRequest({{2}}), absl::Seconds(60));
  server.AwaitMetric("encoderd_queue_calls", 1);
  cancelled.Cancel();
  EXPECT_EQ(cancelled.status().error_code(), grpc::StatusCode::CANCELLED);
  server.AwaitMetric("encoderd_queue_calls", 0);
  server.engine().latch().Open();
  EXPECT_TRUE(running.status().ok());
  EXPECT_TRUE(server.server().Drain());
  EXPECT_EQ(server.engine().sequences_run(), run_before + 1);
  EXPECT_EQ(server.Metric("encoderd_calls_total{code=\"CANCELLED\",method=\"Encode\"}"), 1);
}

}  // namespace
}  // namespace encoderd
