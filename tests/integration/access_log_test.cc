// Goal: the access log has one line for each call that the server has ended, with what became of it
//       and what it is found by elsewhere, and nothing of what the caller sent.
// Method: a whole server around the fake engine, over a socket; the file that it writes.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class AccessLogTest : public ::testing::Test {
 protected:
  ~AccessLogTest() override { std::remove(path_.c_str()); }

  Options WithLog() const {
    Options options = TestOptions();
    options.access_log = path_;
    return options;
  }
  // Of the server, once it has drained: all of them.
  std::vector<json> Lines(TestServer& server) const {
    server.server().Drain();
    std::vector<json> lines;
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
    return lines;
  }
  std::string Text() const {
    std::stringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "calls_", getpid());
};

std::set<std::string> Names(const json& line) {
  std::set<std::string> names;
  for (const auto& [name, value] : line.items()) names.insert(name);
  return names;
}

const std::set<std::string> kAlways = {"time",         "method",    "code",   "peer",
                                       "request_id",   "sequences", "tokens", "request_bytes",
                                       "answer_bytes", "whole_us"};
const std::set<std::string> kWhenRefused = {"reason"};
const std::set<std::string> kWhenTraced = {"trace_id", "parent_span_id", "span_id"};
const std::set<std::string> kWhenQueued = {"queue_us", "compute_us", "batches", "batch_tokens"};

std::set<std::string> Together(std::vector<std::set<std::string>> parts) {
  std::set<std::string> all;
  for (auto& part : parts) all.merge(part);
  return all;
}

TEST_F(AccessLogTest, TellsEachMethodsCalls) {
  TestServer server(WithLog());
  v1::EncodeRequest request = IdsRequest({{1, 2, 3}, {4}});
  request.set_request_id("call \"7\"");
  v1::EncodeResponse response;
  grpc::ClientContext encode;
  encode.AddMetadata("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  ASSERT_TRUE(server.encoder().Encode(&encode, request, &response).ok());

  grpc::ClientContext chunked;
  chunked.AddMetadata("x-request-id", "stream-1");
  const auto reader = server.encoder().EncodeChunked(&chunked, IdsRequest({{5, 6}}));
  for (v1::EncodeChunk chunk; reader->Read(&chunk);) {
  }
  ASSERT_TRUE(reader->Finish().ok());

  grpc::ClientContext get_model;
  v1::GetModelResponse model;
  ASSERT_TRUE(server.encoder().GetModel(&get_model, {}, &model).ok());

  grpc::GenericStub stub(server.channel());
  grpc::CompletionQueue events;
  grpc::ClientContext unknown;
  const auto call = stub.PrepareUnaryCall(&unknown, "/made.up/Method", grpc::ByteBuffer(), &events);
  call->StartCall();
  grpc::ByteBuffer nothing;
  grpc::Status status;
  call->Finish(&nothing, &status, nullptr);
  void* tag;
  bool ok;
  ASSERT_TRUE(events.Next(&tag, &ok));

  const std::vector<json> lines = Lines(server);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(Names(lines[0]), Together({kAlways, kWhenTraced, kWhenQueued}));
  EXPECT_EQ(lines[0]["method"], "Encode");
  EXPECT_EQ(lines[0]["code"], "OK");
  EXPECT_EQ(lines[0]["request_id"], "call \"7\"");
  EXPECT_EQ(lines[0]["sequences"], 2);
  EXPECT_EQ(lines[0]["tokens"], 4);
  EXPECT_EQ(lines[0]["request_bytes"], request.ByteSizeLong());
  EXPECT_EQ(lines[0]["answer_bytes"], response.ByteSizeLong());
  EXPECT_EQ(lines[0]["queue_us"], response.timing().queue_us());
  EXPECT_EQ(lines[0]["compute_us"], response.timing().compute_us());
  EXPECT_GE(lines[0]["whole_us"], response.timing().queue_us() + response.timing().compute_us());
  EXPECT_EQ(lines[0]["batches"], response.timing().batches());
  EXPECT_EQ(lines[0]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(lines[0]["parent_span_id"], "00f067aa0ba902b7");
  const auto& trailers = encode.GetServerTrailingMetadata();
  const auto traceparent = trailers.find("traceparent");
  ASSERT_NE(traceparent, trailers.end());
  EXPECT_EQ(lines[0]["span_id"],
            std::string(traceparent->second.data(), traceparent->second.size()).substr(36, 16));

  EXPECT_EQ(Names(lines[1]), Together({kAlways, kWhenQueued}));
  EXPECT_EQ(lines[1]["method"], "EncodeChunked");
  EXPECT_EQ(lines[1]["request_id"], "stream-1");
  EXPECT_EQ(lines[1]["tokens"], 2);
  EXPECT_GE(lines[1]["answer_bytes"], 2 * 4);

  EXPECT_EQ(Names(lines[2]), kAlways);
  EXPECT_EQ(lines[2]["method"], "GetModel");
  EXPECT_EQ(lines[2]["answer_bytes"], model.ByteSizeLong());

  EXPECT_EQ(Names(lines[3]), Together({kAlways, kWhenRefused}));
  EXPECT_EQ(lines[3]["method"], "other");
  EXPECT_EQ(lines[3]["code"], "UNIMPLEMENTED");
  EXPECT_EQ(lines[3]["reason"], "UNKNOWN_METHOD");
  EXPECT_THAT(Text(), Not(HasSubstr("made.up")));
  for (const json& line : lines) EXPECT_THAT(std::string(line["peer"]), HasSubstr("127.0.0.1:"));
}

TEST_F(AccessLogTest, TellsWhyACallFailedAndHowFarItGot) {
  TestServer server(WithLog());
  server.Encode(IdsRequest({{1, 2}, {-987654}}));
  server.Encode(IdsRequest({{FakeEngine::kNonFinite, 2}}));
  server.engine().latch().Close();
  {
    PendingCall running(server.encoder(), IdsRequest({{1}}));
    server.engine().latch().AwaitWaiting(1);
    PendingCall waiting(server.encoder(), IdsRequest({{2}}));
    server.AwaitMetric("encoderd_queue_calls", 1);
    waiting.Cancel();
    waiting.status();
    server.AwaitMetric("encoderd_refusals_total{reason=\"CANCELLED\"}", 1);
    server.engine().latch().Open();
  }

  const std::vector<json> lines = Lines(server);
  ASSERT_EQ(lines.size(), 4);
  EXPECT_EQ(Names(lines[0]), Together({kAlways, kWhenRefused}));
  EXPECT_EQ(lines[0]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(lines[0]["reason"], "TOKEN_OUT_OF_RANGE");
  EXPECT_EQ(lines[0]["sequences"], 2);
  EXPECT_EQ(lines[0]["tokens"], 0);
  EXPECT_THAT(Text(), Not(HasSubstr("987654")));  // nothing of the input

  EXPECT_EQ(Names(lines[1]), Together({kAlways, kWhenRefused, kWhenQueued}));
  EXPECT_EQ(lines[1]["code"], "INTERNAL");
  EXPECT_EQ(lines[1]["reason"], "NON_FINITE_RESULT");
  EXPECT_EQ(lines[1]["tokens"], 2);
  EXPECT_EQ(lines[1]["answer_bytes"], 0);

  EXPECT_EQ(lines[2]["code"], "CANCELLED");
  EXPECT_EQ(lines[2]["batches"], 0);
  EXPECT_EQ(lines[3]["code"], "OK");
}

TEST_F(AccessLogTest, AFullDiskHarmsNoCall) {
  Options options = TestOptions();
  options.access_log = "/dev/full";
  TestServer server(options);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
  server.server().Drain();
  EXPECT_EQ(server.Metric("encoderd_access_log_dropped_total"), 3);
}

TEST_F(AccessLogTest, AFileThatCannotBeOpenedIsToldAtTheStart) {
  Options options = TestOptions();
  options.access_log = "/no/such/folder/log";
  auto metrics = Metrics::Start("", Version(), "test");
  const auto server = Server::Listen(options, **metrics);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("--access_log: cannot open"));
}

}  // namespace
}  // namespace encoderd
