// Goal: the server says what it is from the first connection to the last, and goes without losing
// a call that it has accepted.
// Method: a whole server around the fake engine, whose latch holds loading and batches.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/connect.h"
#include "tests/integration/drained_service.h"
#include "tests/integration/test_server.h"
#include "tests/server/batching/fake_clock.h"

namespace encoderd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::ElementsAre;

constexpr const char* kReadyNames[] = {"", "encoderd.v1.EncoderService"};

HealthCheckResponse::ServingStatus HealthOf(TestServer& server, const std::string& service) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service(service);
  HealthCheckResponse response;
  const grpc::Status status = server.health().Check(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response.status();
}

grpc::StatusCode UnknownNameCode(TestServer& server) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("made.up.Name");
  HealthCheckResponse response;
  return server.health().Check(&context, request, &response).error_code();
}

// Opens a Watch of the server's readiness and keeps what it says.
class ReadinessWatch {
 public:
  explicit ReadinessWatch(TestServer& server) : reader_(server.health().Watch(&context_, {})) {}

  bool Next(HealthCheckResponse::ServingStatus& status) {
    HealthCheckResponse response;
    if (!reader_->Read(&response)) return false;
    status = response.status();
    return true;
  }
  // Everything until the Watch ends.
  std::vector<HealthCheckResponse::ServingStatus> Rest() {
    std::vector<HealthCheckResponse::ServingStatus> statuses;
    for (HealthCheckResponse::ServingStatus status; Next(status);) statuses.push_back(status);
    return statuses;
  }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader_;
};

// ---- Loading ----------------------------------------------------------------------------------

TEST(LoadingTest, IsNotServingUntilTheWorkersAreWarm) {
  TestServer server(TestOptions(), TestServer::NotLoaded());
  ReadinessWatch watch(server);
  server.engine().latch().Close();  // holds the first batch: the one that warms the worker up
  std::thread loading([&] { EXPECT_TRUE(server.Load().ok()); });
  server.engine().latch().AwaitWaiting(1);

  for (const char* name : kReadyNames) {
    EXPECT_EQ(HealthOf(server, name), HealthCheckResponse::NOT_SERVING);
  }
  EXPECT_EQ(HealthOf(server, "liveness"), HealthCheckResponse::SERVING);
  EXPECT_EQ(UnknownNameCode(server), grpc::StatusCode::NOT_FOUND);
  const grpc::Status early = server.Encode(IdsRequest({{1}}));
  EXPECT_THAT(early, Refused(grpc::StatusCode::UNAVAILABLE, "LOADING", "being loaded"));
  EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(early).has_value());
  grpc::ClientContext context;
  v1::GetModelResponse model;
  EXPECT_THAT(server.encoder().GetModel(&context, {}, &model),
              Refused(grpc::StatusCode::UNAVAILABLE, "LOADING", ""));

  server.engine().latch().Open();
  loading.join();
  for (const char* name : kReadyNames) {
    EXPECT_EQ(HealthOf(server, name), HealthCheckResponse::SERVING);
  }
  EXPECT_EQ(UnknownNameCode(server), grpc::StatusCode::NOT_FOUND);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
  server.server().Drain();
  EXPECT_THAT(watch.Rest(),
              ElementsAre(HealthCheckResponse::NOT_SERVING, HealthCheckResponse::SERVING,
                          HealthCheckResponse::NOT_SERVING));
}

TEST(LoadingTest, ABrokenModelIsNeverServed) {
  TestServer server(TestOptions(), TestServer::NotLoaded());
  ReadinessWatch watch(server);
  EXPECT_EQ(server.server().Load([] { return absl::InvalidArgumentError("no such tensor"); }),
            absl::InvalidArgumentError("no such tensor"));
  EXPECT_EQ(HealthOf(server, ""), HealthCheckResponse::NOT_SERVING);
  EXPECT_THAT(server.Encode(IdsRequest({{1}})),
              Refused(grpc::StatusCode::UNAVAILABLE, "LOADING", ""));
  server.server().Drain();
  EXPECT_THAT(watch.Rest(), ElementsAre(HealthCheckResponse::NOT_SERVING));
}

TEST(LoadingTest, AWorkerThatCannotBeMadeIsAnError) {
  TestServer server(TestOptions(), TestServer::NotLoaded());
  server.engine().SetMemory(FakeEngine::Memory::kExhausted);
  EXPECT_EQ(server.Load().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(HealthOf(server, ""), HealthCheckResponse::NOT_SERVING);
}

TEST(ListenTest, ATakenPortIsAnError) {
  TestServer first;
  Options options = TestOptions();
  options.listen.port = first.server().port();
  auto metrics = Metrics::Start("", Version(), "test");
  const auto second = Server::Listen(options, **metrics);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              ::testing::HasSubstr("--listen: cannot listen on 127.0.0.1:"));
}

TEST(ModelNameTest, IsTheFoldersName) {
  EXPECT_EQ(ModelName("/models/minilm"), "minilm");
  EXPECT_EQ(ModelName("/models/minilm/"), "minilm");
  EXPECT_EQ(ModelName("minilm"), "minilm");
  EXPECT_EQ(ModelName("/models/minilm/."), "minilm");
  EXPECT_EQ(ModelName("/models/other/../minilm//"), "minilm");
  EXPECT_NE(ModelName("."), "");
  EXPECT_NE(ModelName("."), ".");
}

// ---- Draining ---------------------------------------------------------------------------------

TEST(DrainTest, AnIdleServerGoesAtOnceWithClientsConnectedAndWatching) {
  TestServer server;
  ReadinessWatch watch(server);
  HealthCheckResponse::ServingStatus status;
  ASSERT_TRUE(watch.Next(status));  // the Watch is open
  const absl::Time start = absl::Now();
  EXPECT_TRUE(server.server().Drain());
  EXPECT_LT(absl::Now() - start, absl::Seconds(2));
  EXPECT_THAT(watch.Rest(), ElementsAre(HealthCheckResponse::NOT_SERVING));
}

// Each open stream of reflection has a thread of the server's.
TEST(ReflectionTest, OpenStreamsAreFewAndDoNotHoldTheEnd) {
  TestServer server;
  grpc::GenericStub stub(server.channel());
  grpc::CompletionQueue events;
  const auto await = [&events] {
    void* tag;
    bool ok = false;
    EXPECT_TRUE(events.Next(&tag, &ok));
    return ok;
  };
  const grpc::Slice list_services("\x3a\x01*");
  const grpc::ByteBuffer question(&list_services, 1);
  struct Stream {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call;
    bool open = false;
  };
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 50; ++i) {
    auto& stream = *streams.emplace_back(std::make_unique<Stream>());
    stream.call = stub.PrepareCall(
        &stream.context, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", &events);
    stream.call->StartCall(nullptr);
    await();
    stream.call->Write(question, nullptr);
    await();
    grpc::ByteBuffer answer;
    stream.call->Read(&answer, nullptr);
    stream.open = await();
  }
  const auto open = std::ranges::count_if(streams, [](const auto& stream) { return stream->open; });
  EXPECT_GE(open, 1);
  EXPECT_LE(open, 8);

  const absl::Time start = absl::Now();
  EXPECT_TRUE(server.server().Drain());
  EXPECT_LT(absl::Now() - start, absl::Seconds(5));  // of a drain_timeout of 20
  for (const auto& stream : streams) {
    grpc::Status status;
    stream->call->Finish(&status, nullptr);
    await();
    EXPECT_EQ(status.error_code(),
              stream->open ? grpc::StatusCode::UNAVAILABLE : grpc::StatusCode::RESOURCE_EXHAUSTED);
  }
}

TEST(DrainTest, ClientsAreSentAwayAndTheirAcceptedCallsAnswered) {
  TestServer server;
  server.engine().latch().Close();
  std::vector<std::unique_ptr<PendingCall>> accepted;
  for (int i = 0; i < 50; ++i) {
    accepted.push_back(std::make_unique<PendingCall>(server.encoder(), IdsRequest({{1, 2}})));
    server.engine().latch().AwaitWaiting(1);  // the first call runs, all others wait
  }
  server.AwaitMetric("encoderd_queue_calls", 49);

  std::thread draining([&] { EXPECT_TRUE(server.server().Drain()); });
  // The client takes its next call elsewhere, while those that it has sent are waited for.
  while (server.channel()->GetState(/*try_to_connect=*/false) == GRPC_CHANNEL_READY) {
    std::this_thread::yield();
  }
  EXPECT_EQ(server.Encode(IdsRequest({{1}})).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server.Metric("encoderd_calls_in_flight"), 50);

  server.engine().latch().Open();
  for (auto& call : accepted) EXPECT_TRUE(call->status().ok()) << call->status().error_message();
  draining.join();
  EXPECT_EQ(server.Metric("encoderd_calls_in_flight"), 0);
  EXPECT_EQ(server.Metric("encoderd_queue_calls"), 0);
}

// One that does not know, although it was asked to go.
TEST(DrainTest, ACallThatComesAllTheSameIsToldWhyItIsRefused) {
  auto metrics = Metrics::Start("", Version(), "test");
  const DrainedService service(**metrics);
  const auto encoder = v1::EncoderService::NewStub(service.Connect());
  grpc::ClientContext context;
  v1::EncodeResponse response;
  const grpc::Status late = encoder->Encode(&context, IdsRequest({{1}}), &response);
  EXPECT_THAT(late, Refused(grpc::StatusCode::UNAVAILABLE, "DRAINING", "shutting down"));
  EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(late).has_value());
}

// Until the process ends: a probe that nobody answered would look like a crash.
TEST(DrainTest, TheHealthPortSaysNotServingToTheEnd) {
  Options options = TestOptions();
  options.health_listen = {.host = "127.0.0.1", .port = 0};
  TestServer server(options);
  const auto probe = grpc::health::v1::Health::NewStub(
      ConnectAlone(absl::StrCat("127.0.0.1:", server.server().health_port())));
  const auto ask = [&probe](const std::string& service) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    HealthCheckResponse response;
    EXPECT_TRUE(probe->Check(&context, request, &response).ok());
    return response.status();
  };
  EXPECT_EQ(ask(""), HealthCheckResponse::SERVING);

  ReadinessWatch watch(server);
  HealthCheckResponse::ServingStatus status;
  ASSERT_TRUE(watch.Next(status));
  server.engine().latch().Close();
  PendingCall accepted(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  std::thread draining([&] { EXPECT_TRUE(server.server().Drain()); });
  ASSERT_TRUE(watch.Next(status));
  EXPECT_EQ(ask(""), HealthCheckResponse::NOT_SERVING);
  server.engine().latch().Open();
  EXPECT_TRUE(accepted.status().ok());
  draining.join();
  EXPECT_EQ(server.Encode(IdsRequest({{1}})).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ask(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(ask("liveness"), HealthCheckResponse::SERVING);
}

TEST(DrainTest, ServesOnForTheDelay) {
  FakeClock clock;
  Options options = TestOptions();
  options.drain_delay = absl::Seconds(5);
  TestServer server(options, clock);
  ReadinessWatch watch(server);
  HealthCheckResponse::ServingStatus status;
  ASSERT_TRUE(watch.Next(status));
  std::thread draining([&] { EXPECT_TRUE(server.server().Drain()); });
  ASSERT_TRUE(watch.Next(status));
  EXPECT_EQ(status, HealthCheckResponse::NOT_SERVING);
  clock.Advance(absl::Milliseconds(4999));
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
  v1::EncodeResponse response;
  grpc::ClientContext context;
  const auto newcomer = v1::EncoderService::NewStub(server.Connect());
  EXPECT_TRUE(newcomer->Encode(&context, IdsRequest({{1}}), &response).ok());
  clock.Advance(absl::Milliseconds(1));
  draining.join();
  EXPECT_EQ(server.Encode(IdsRequest({{1}})).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(DrainTest, WhatIsLeftAfterTheTimeoutGetsUnavailable) {
  Options options = TestOptions();
  options.drain_timeout = absl::Milliseconds(50);
  TestServer server(options);
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  PendingCall waiting(server.encoder(), IdsRequest({{2}}));
  server.AwaitMetric("encoderd_queue_calls", 1);
  const absl::Time start = absl::Now();
  EXPECT_FALSE(server.server().Drain());
  EXPECT_LT(absl::Now() - start, absl::Seconds(1));
  EXPECT_EQ(running.status().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(waiting.status().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST(DestructionTest, EndsCallsThatAreUnderWay) {
  std::unique_ptr<PendingCall> call;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::EncoderService::Stub> encoder;
  {
    TestServer server;
    channel = server.Connect();
    encoder = v1::EncoderService::NewStub(channel);
    server.engine().latch().Close();
    call = std::make_unique<PendingCall>(*encoder, IdsRequest({{1}}));
    server.engine().latch().AwaitWaiting(1);
  }
  EXPECT_FALSE(call->status().ok() && call->response().last_hidden_state().data().empty());
}

// ---- Callers that vanish ----------------------------------------------------------------------

TEST(VanishingCallersTest, LeaveNothingBehind) {
  TestServer server;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<PendingCall>> calls;
    {
      const auto encoder = v1::EncoderService::NewStub(server.Connect());
      for (int i = 0; i < 10; ++i) {
        calls.push_back(std::make_unique<PendingCall>(*encoder, IdsRequest({{1, 2, 3}})));
        if (i % 3 != 0) calls.back()->Cancel();
      }
      for (auto& call : calls) call->status();
    }
    ASSERT_TRUE(server.Encode(IdsRequest({{4}})).ok());
  }
  server.AwaitMetric("encoderd_calls_in_flight", 0);
  server.AwaitMetric("encoderd_queue_calls", 0);
}

}  // namespace
}  // namespace encoderd
