// Goal: a client with service_config.json waits as long as the server tells it and tries again, and
// what the README says of its limits is true.
// Method: gRPC's own retry against a server in this process that refuses as often as it is told.
#include "deploy/client/service_config.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "encoderd/v1/encoder.grpc.pb.h"

namespace encoderd::client {
namespace {

using ::testing::SizeIs;

// Refuses the first calls, then answers.
class RefusingEncoder final : public v1::EncoderService::Service {
 public:
  int refusals = 2;
  grpc::StatusCode code = grpc::StatusCode::RESOURCE_EXHAUSTED;
  std::optional<int> pushback_ms;

  std::vector<absl::Time> arrivals() {
    const std::scoped_lock lock(mutex_);
    return arrivals_;
  }

 private:
  grpc::Status Encode(grpc::ServerContext* context, const v1::EncodeRequest*,
                      v1::EncodeResponse*) override {
    const std::scoped_lock lock(mutex_);
    arrivals_.push_back(absl::Now());
    if (static_cast<int>(arrivals_.size()) > refusals) return grpc::Status::OK;
    if (pushback_ms.has_value()) {
      context->AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(*pushback_ms));
    }
    return {code, "refused"};
  }

  std::mutex mutex_;
  std::vector<absl::Time> arrivals_;
};

class ServiceConfigTest : public testing::Test {
 protected:
  ServiceConfigTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&encoder_);
    server_ = builder.BuildAndStart();
  }
  ~ServiceConfigTest() override { server_->Shutdown(); }

  grpc::StatusCode Encode(size_t request_bytes = 10, absl::Duration timeout = absl::Seconds(20)) {
    grpc::ChannelArguments arguments;
    arguments.SetServiceConfigJSON(ServiceConfigJson());
    const auto stub = v1::EncoderService::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("127.0.0.1:", port_), grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    v1::EncodeRequest request;
    request.set_request_id(std::string(request_bytes, 'x'));
    v1::EncodeResponse response;
    return stub->Encode(&context, request, &response).error_code();
  }

  int port_ = 0;
  RefusingEncoder encoder_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(DirectServiceConfigTest, DiffersInTheHealthAlone) {
  std::string config = DirectServiceConfigJson();
  const std::string health =
      "  \"healthCheckConfig\": {\"serviceName\": \"encoderd.v1.EncoderService\"},\n";
  const size_t at = config.find(health);
  ASSERT_NE(at, std::string::npos);
  config.erase(at, health.size());
  EXPECT_EQ(config, ServiceConfigJson());
}

TEST_F(ServiceConfigTest, WaitsAsLongAsTheServerSays) {
  encoder_.pushback_ms =
      300;  // more than its own first two waits, 100 and 200 ms, give or take 20 %
  EXPECT_EQ(Encode(), grpc::StatusCode::OK);
  const std::vector<absl::Time> arrivals = encoder_.arrivals();
  ASSERT_THAT(arrivals, SizeIs(3));
  EXPECT_GE(arrivals[1] - arrivals[0], absl::Milliseconds(295));
  EXPECT_GE(arrivals[2] - arrivals[1], absl::Milliseconds(295));
}

TEST_F(ServiceConfigTest, WaitsOfItsOwnAccordWhereTheServerSaysNothing) {
  EXPECT_EQ(Encode(), grpc::StatusCode::OK);
  const std::vector<absl::Time> arrivals = encoder_.arrivals();
  ASSERT_THAT(arrivals, SizeIs(3));
  EXPECT_GE(arrivals[1] - arrivals[0], absl::Milliseconds(75));
  EXPECT_GE(arrivals[2] - arrivals[1], absl::Milliseconds(155));
}

TEST_F(ServiceConfigTest, StopsWhereTheServerSaysSo) {
  encoder_.pushback_ms = -1;
  EXPECT_EQ(Encode(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(encoder_.arrivals(), SizeIs(1));
}

TEST_F(ServiceConfigTest, TriesFourTimesInAll) {
  encoder_.refusals = 100;
  encoder_.pushback_ms = 1;
  EXPECT_EQ(Encode(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(encoder_.arrivals(), SizeIs(4));
}

TEST_F(ServiceConfigTest, TriesADrainingServerAgain) {
  encoder_.code = grpc::StatusCode::UNAVAILABLE;
  EXPECT_EQ(Encode(), grpc::StatusCode::OK);
}

TEST_F(ServiceConfigTest, DoesNotRepeatWhatCannotSucceed) {
  for (const grpc::StatusCode code :
       {grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::INTERNAL}) {
    encoder_.code = code;
    encoder_.refusals = 100;
    const size_t before = encoder_.arrivals().size();
    EXPECT_EQ(Encode(), code);
    EXPECT_THAT(encoder_.arrivals(), SizeIs(before + 1));
  }
}

TEST_F(ServiceConfigTest, KeepsToTheDeadline) {
  encoder_.pushback_ms = 60000;
  EXPECT_EQ(Encode(10, absl::Milliseconds(200)), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(encoder_.arrivals(), SizeIs(1));
}

TEST_F(ServiceConfigTest, DoesNotRetryMoreThanGrpcKeeps) {
  encoder_.pushback_ms = 1;
  EXPECT_EQ(Encode(257 << 10), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(encoder_.arrivals(), SizeIs(1));
}

TEST_F(ServiceConfigTest, RetriesWhatGrpcKeeps) {
  encoder_.pushback_ms = 1;
  EXPECT_EQ(Encode(255 << 10), grpc::StatusCode::OK);
  EXPECT_THAT(encoder_.arrivals(), SizeIs(3));
}

TEST_F(ServiceConfigTest, StopsRetryingAServerThatRefusesEverybody) {
  encoder_.refusals = 1000;
  encoder_.pushback_ms = 1;
  // 200 tokens, one for each refusal; at 100 and below there are no more retries.
  for (int i = 0; i < 27; ++i) EXPECT_EQ(Encode(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(encoder_.arrivals(), SizeIs(25 * 4 + 1 + 1));
}

}  // namespace
}  // namespace encoderd::client
