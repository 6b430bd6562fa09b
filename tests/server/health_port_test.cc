// Goal: probes without TLS learn what health says, and get nothing else.
// Method: the port beside another server that serves the same health and has reflection.
#include "server/health_port.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/integration/connect.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::HasSubstr;

grpc::Status Check(const std::shared_ptr<grpc::Channel>& channel, const std::string& service,
                   HealthCheckResponse& response) {
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service(service);
  return grpc::health::v1::Health::NewStub(channel)->Check(&context, request, &response);
}

HealthCheckResponse::ServingStatus StatusOf(const std::shared_ptr<grpc::Channel>& channel,
                                            const std::string& service) {
  HealthCheckResponse response;
  EXPECT_TRUE(Check(channel, service, response).ok());
  return response.status();
}

class HealthPortTest : public ::testing::Test {
 protected:
  HealthPortTest() {
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&health_);
    main_server_ = builder.BuildAndStart();
    main_channel_ = ConnectAlone(absl::StrCat("127.0.0.1:", port));
    auto started = HealthPort::Start({.host = "127.0.0.1", .port = 0}, health_);
    EXPECT_THAT(started, IsOk());
    health_port_ = *std::move(started);
  }

  std::shared_ptr<grpc::Channel> Connect() const {
    return ConnectAlone(absl::StrCat("127.0.0.1:", health_port_->port()));
  }

  HealthService health_;
  std::unique_ptr<grpc::Server> main_server_;
  std::shared_ptr<grpc::Channel> main_channel_;
  std::unique_ptr<HealthPort> health_port_;
};

TEST_F(HealthPortTest, SaysWhatTheOtherServerSays) {
  const auto channel = Connect();
  for (const bool ready : {false, true, false}) {
    health_.SetReady(ready);
    health_.SetLive(!ready);
    for (const auto& one : {channel, main_channel_}) {
      EXPECT_EQ(StatusOf(one, "") == HealthCheckResponse::SERVING, ready);
      EXPECT_EQ(StatusOf(one, "liveness") == HealthCheckResponse::SERVING, !ready);
    }
  }
  HealthCheckResponse response;
  EXPECT_EQ(Check(channel, "made.up", response).error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST_F(HealthPortTest, WatchesOfBothSeeEachChange) {
  const auto channel = Connect();
  struct Watch {
    explicit Watch(const std::shared_ptr<grpc::Channel>& watched)
        : stub(grpc::health::v1::Health::NewStub(watched)), reader(stub->Watch(&context, {})) {}
    HealthCheckResponse::ServingStatus Next() {
      HealthCheckResponse response;
      EXPECT_TRUE(reader->Read(&response));
      return response.status();
    }
    grpc::ClientContext context;
    std::unique_ptr<grpc::health::v1::Health::Stub> stub;
    std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader;
  };
  Watch here(channel), there(main_channel_);
  for (Watch* watch : {&here, &there}) {
    EXPECT_EQ(watch->Next(), HealthCheckResponse::NOT_SERVING);
  }
  health_.SetReady(true);
  for (Watch* watch : {&here, &there}) EXPECT_EQ(watch->Next(), HealthCheckResponse::SERVING);
  health_.EndWatches();
  for (Watch* watch : {&here, &there}) {
    HealthCheckResponse response;
    EXPECT_FALSE(watch->reader->Read(&response));
    EXPECT_EQ(watch->reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  }
}

// How a stream of this method ends that sends nothing.
grpc::StatusCode EndOf(const std::shared_ptr<grpc::Channel>& channel, const std::string& method) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue events;
  grpc::ClientContext context;
  const auto call = stub.PrepareCall(&context, method, &events);
  grpc::Status status;
  const auto await = [&events] {
    void* tag;
    bool ok;
    EXPECT_TRUE(events.Next(&tag, &ok));
  };
  call->StartCall(nullptr);
  await();
  call->WritesDone(nullptr);
  await();
  call->Finish(&status, nullptr);
  await();
  return status.error_code();
}

TEST_F(HealthPortTest, HasNoOtherMethodAndNoReflection) {
  const auto channel = Connect();
  EXPECT_EQ(EndOf(channel, "/encoderd.v1.EncoderService/Encode"), grpc::StatusCode::UNIMPLEMENTED);
  const char* reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";
  EXPECT_EQ(EndOf(channel, reflection), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(EndOf(main_channel_, reflection), grpc::StatusCode::OK);
}

TEST_F(HealthPortTest, TakesSmallMessagesOnly) {
  const auto channel = Connect();
  HealthCheckResponse response;
  EXPECT_EQ(Check(channel, std::string(1100, 'x'), response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(StatusOf(channel, "liveness"), HealthCheckResponse::SERVING);
}

TEST_F(HealthPortTest, TakesFewConnections) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 64; ++i) {
    channels.push_back(Connect());
    ASSERT_EQ(StatusOf(channels.back(), "liveness"), HealthCheckResponse::SERVING) << i;
  }
  HealthCheckResponse response;
  EXPECT_EQ(Check(Connect(), "liveness", response).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(StatusOf(channels.front(), "liveness"), HealthCheckResponse::SERVING);
}

TEST_F(HealthPortTest, SaysWhichFlagNamesATakenAddress) {
  EXPECT_THAT(HealthPort::Start({.host = "127.0.0.1", .port = health_port_->port()}, health_),
              StatusIs(absl::StatusCode::kUnavailable,
                       HasSubstr("--health_listen: cannot listen on 127.0.0.1:")));
}

}  // namespace
}  // namespace encoderd
