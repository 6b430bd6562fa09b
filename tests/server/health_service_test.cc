// Goal: health says what holds, to everybody who asks and everybody who watches, and holds nobody
// up.
// Method: a gRPC server with nothing but the health service, over a socket.
#include "server/health_service.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/connect.h"

namespace encoderd {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class HealthServiceTest : public ::testing::Test {
 protected:
  HealthServiceTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&health_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    stub_ = grpc::health::v1::Health::NewStub(ConnectAlone(address_));
  }

  grpc::Status Check(const std::string& service, HealthCheckResponse& response) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return stub_->Check(&context, request, &response);
  }

  HealthCheckResponse::ServingStatus StatusOf(const std::string& service) {
    HealthCheckResponse response;
    EXPECT_TRUE(Check(service, response).ok());
    return response.status();
  }

  HealthService health_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::unique_ptr<grpc::health::v1::Health::Stub> stub_;
};

// One open Watch.
class Watch {
 public:
  Watch(grpc::health::v1::Health::Stub& stub, const std::string& service) {
    HealthCheckRequest request;
    request.set_service(service);
    reader_ = stub.Watch(&context_, request);
  }

  // The next status; SERVICE_UNKNOWN + 1 when the Watch has ended.
  int Next() {
    HealthCheckResponse response;
    return reader_->Read(&response) ? response.status() : HealthCheckResponse::SERVICE_UNKNOWN + 1;
  }
  grpc::Status End() { return reader_->Finish(); }
  void Cancel() { context_.TryCancel(); }

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> reader_;
};

TEST_F(HealthServiceTest, IsNotReadyAndLiveUntilTold) {
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf("encoderd.v1.EncoderService"), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(StatusOf("liveness"), HealthCheckResponse::SERVING);
  health_.SetReady(true);
  health_.SetLive(false);
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::SERVING);
  EXPECT_EQ(StatusOf("encoderd.v1.EncoderService"), HealthCheckResponse::SERVING);
  EXPECT_EQ(StatusOf("liveness"), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthServiceTest, DoesNotKnowOtherNames) {
  HealthCheckResponse response;
  for (const char* name : {"encoderd", "Liveness", " "}) {
    EXPECT_EQ(Check(name, response).error_code(), grpc::StatusCode::NOT_FOUND) << name;
  }
  Watch watch(*stub_, "made.up.Name");
  EXPECT_EQ(watch.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
}

TEST_F(HealthServiceTest, ListsEveryName) {
  health_.SetReady(true);
  grpc::ClientContext context;
  grpc::health::v1::HealthListResponse response;
  ASSERT_TRUE(stub_->List(&context, {}, &response).ok());
  std::vector<std::pair<std::string, int>> statuses;
  for (const auto& [name, status] : response.statuses()) {
    statuses.emplace_back(name, status.status());
  }
  EXPECT_THAT(statuses,
              UnorderedElementsAre(Pair("", HealthCheckResponse::SERVING),
                                   Pair("encoderd.v1.EncoderService", HealthCheckResponse::SERVING),
                                   Pair("liveness", HealthCheckResponse::SERVING)));
}

TEST_F(HealthServiceTest, AWatchSeesEachChangeOfItsOwnName) {
  Watch ready(*stub_, "");
  Watch live(*stub_, "liveness");
  EXPECT_EQ(ready.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(live.Next(), HealthCheckResponse::SERVING);
  // Faster than anybody reads: none is left out, none is said twice.
  health_.SetReady(true);
  health_.SetReady(true);
  health_.SetReady(false);
  health_.SetLive(false);
  health_.SetReady(true);
  EXPECT_EQ(ready.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(ready.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(ready.Next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(live.Next(), HealthCheckResponse::NOT_SERVING);
  // What was said before the end is read before it.
  health_.SetReady(false);
  health_.EndWatches();
  EXPECT_EQ(ready.Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_GT(ready.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  EXPECT_GT(live.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  EXPECT_EQ(ready.End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthServiceTest, OpenWatchesDoNotHoldAShutdownUp) {
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < 50; ++i) {
    watches.push_back(std::make_unique<Watch>(*stub_, i % 2 == 0 ? "" : "nobody"));
  }
  // Some are read, some never are, one has gone.
  EXPECT_EQ(watches[0]->Next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(watches[1]->Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  watches[2]->Cancel();
  health_.EndWatches();
  server_->Shutdown();  // without a deadline: waits for every call
  EXPECT_GT(watches[0]->Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  EXPECT_EQ(watches[0]->End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthServiceTest, AConnectionHasItsShareOfTheWatches) {
  std::vector<std::unique_ptr<Watch>> watches;
  for (int i = 0; i < 64; ++i) {
    watches.push_back(std::make_unique<Watch>(*stub_, ""));
    EXPECT_EQ(watches.back()->Next(), HealthCheckResponse::NOT_SERVING);
  }
  Watch beyond(*stub_, "");
  EXPECT_GT(beyond.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  EXPECT_EQ(beyond.End().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  const auto other = grpc::health::v1::Health::NewStub(ConnectAlone(address_));
  EXPECT_EQ(Watch(*other, "").Next(), HealthCheckResponse::NOT_SERVING);
}

TEST_F(HealthServiceTest, AWatchThatComesTooLateEndsAtOnce) {
  health_.EndWatches();
  Watch watch(*stub_, "");
  EXPECT_GT(watch.Next(), HealthCheckResponse::SERVICE_UNKNOWN);
  EXPECT_EQ(watch.End().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(HealthServiceTest, ChangesWhileWatchesComeAndGoAreSafe) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<Watch>> watches;
    for (int i = 0; i < 10; ++i) watches.push_back(std::make_unique<Watch>(*stub_, ""));
    health_.SetReady(round % 2 == 0);
    for (auto& watch : watches) watch->Cancel();
    health_.SetReady(round % 2 != 0);
  }
  EXPECT_EQ(StatusOf(""), HealthCheckResponse::SERVING);
}

}  // namespace
}  // namespace encoderd
