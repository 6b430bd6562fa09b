// Goal: as many connections as allowed are served, one more fails at once, and a place given back
// is a place.
// Method: a whole server around the fake engine; channels of this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/time/clock.h"
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

// ---- Age ----------------------------------------------------------------------------------------

Options ShortLived(absl::Duration grace) {
  Options options = TestOptions();
  options.max_connection_age = absl::Milliseconds(100);
  options.max_connection_age_grace = grace;
  return options;
}

// Waits until the server has asked the channel's connection to go.
void AwaitAskedToGo(grpc::Channel& channel) {
  ASSERT_TRUE(channel.WaitForStateChange(GRPC_CHANNEL_READY,
                                         absl::ToChronoTime(absl::Now() + absl::Seconds(20))));
}

TEST(ConnectionAgeTest, AnOldConnectionIsReplacedAndItsCallIsAnswered) {
  TestServer server(ShortLived(absl::Seconds(20)));
  server.engine().latch().Close();
  PendingCall call(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  AwaitAskedToGo(*server.channel());
  server.engine().latch().Open();
  EXPECT_TRUE(call.status().ok()) << call.status().error_message();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(EncodeOn(server.channel()).ok());
    AwaitAskedToGo(*server.channel());
  }
}

TEST(ConnectionAgeTest, ACallThatOutlivesTheGraceIsCutOff) {
  TestServer server(ShortLived(absl::Milliseconds(100)));
  server.engine().latch().Close();
  PendingCall call(server.encoder(), IdsRequest({{1}}));
  EXPECT_EQ(call.status().error_code(), grpc::StatusCode::UNAVAILABLE);
  server.AwaitMetric("encoderd_calls_in_flight", 0);
}

// ---- Pings --------------------------------------------------------------------------------------

grpc::ChannelArguments PingingEvery(absl::Duration interval) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(absl::ToInt64Milliseconds(interval)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // the client's own brake
  return arguments;
}

// Whether the connection goes within `time`.
bool GoesWithin(grpc::Channel& channel, absl::Duration time) {
  return channel.WaitForStateChange(GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + time));
}

// A client with a ping every 10 s that is allowed one every 5 s, a hundred times faster.
TEST(KeepaliveTest, AClientMayPingAsOftenAsItIsToldWithACallAndWithout) {
  Options options = TestOptions();
  options.min_ping_interval = absl::Milliseconds(50);
  TestServer server(options);
  const auto channel = server.Connect(PingingEvery(absl::Milliseconds(100)));
  ASSERT_TRUE(EncodeOn(channel).ok());
  EXPECT_FALSE(GoesWithin(*channel, absl::Seconds(1)));
  server.engine().latch().Close();
  PendingCall call(*v1::EncoderService::NewStub(channel), IdsRequest({{1}}));
  EXPECT_FALSE(GoesWithin(*channel, absl::Seconds(1)));
  server.engine().latch().Open();
  EXPECT_TRUE(call.status().ok()) << call.status().error_message();
}

TEST(KeepaliveTest, AClientThatPingsWithoutMeasureIsCutOff) {
  TestServer server;
  const auto channel = server.Connect(PingingEvery(absl::Milliseconds(100)));
  ASSERT_TRUE(EncodeOn(channel).ok());
  EXPECT_TRUE(GoesWithin(*channel, absl::Seconds(20)));
  EXPECT_TRUE(EncodeOn(server.channel()).ok());
}

}  // namespace
}  // namespace encoderd
