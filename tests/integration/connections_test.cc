// Goal: as many connections as allowed are served, one more fails at once, and a place given back
// is a place.
// Method: a whole server around the fake engine; channels of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

constexpr const char* kOpen = "encoderd_connections";
constexpr const char* kRefused = "encoderd_connections_refused_total";

grpc::Status EncodeOn(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  v1::EncodeResponse response;
  return v1::EncoderService::NewStub(channel)->Encode(&context, IdsRequest({{1}}), &response);
}

Options TwoConnections() {
  Options options = TestOptions();
  options.max_connections = 2;
  return options;
}

TEST(ConnectionLimitTest, OneMoreFailsUntilAnotherCloses) {
  TestServer server(TwoConnections());
  EXPECT_EQ(server.Metric(kOpen), 0);
  EXPECT_EQ(server.Metric(kRefused), 0);
  ASSERT_TRUE(EncodeOn(server.channel()).ok());
  auto second = server.Connect();
  ASSERT_TRUE(EncodeOn(second).ok());
  EXPECT_EQ(server.Metric(kOpen), 2);
  EXPECT_EQ(server.Metric(kRefused), 0);

  EXPECT_EQ(EncodeOn(server.Connect()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server.Metric(kOpen), 2);
  EXPECT_GE(server.Metric(kRefused), 1);
  EXPECT_TRUE(EncodeOn(server.channel()).ok());  // who was there is not disturbed
  EXPECT_TRUE(EncodeOn(second).ok());

  second.reset();
  server.AwaitMetric(kOpen, 1);
  EXPECT_TRUE(EncodeOn(server.Connect()).ok());
}

TEST(ConnectionLimitTest, AnyNumberMayComeAndGo) {
  TestServer server(TwoConnections());
  ASSERT_TRUE(EncodeOn(server.channel()).ok());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(EncodeOn(server.Connect()).ok()) << i;
    server.AwaitMetric(kOpen, 1);
  }
  EXPECT_EQ(server.Metric(kRefused), 0);
}

TEST(ConnectionLimitTest, NothingIsOpenAfterADrain) {
  TestServer server(TwoConnections());
  ASSERT_TRUE(EncodeOn(server.channel()).ok());
  EXPECT_TRUE(server.server().Drain());
  server.AwaitMetric(kOpen, 0);
  EXPECT_EQ(EncodeOn(server.Connect()).error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(server.Metric(kRefused), 0);  // the port is closed: nobody came so far
}

}  // namespace
}  // namespace encoderd
