// Goal: a call that belongs to a trace is found in it: its answer and its log lines name the trace and the
// span of this server's, and nothing that a caller sends as a trace does any harm.
// Method: a whole server around the fake engine, over a socket; log lines as the process gets them.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/log/log_sink.h"
#include "absl/log/log_sink_registry.h"
#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;

constexpr const char* kTraceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
// Of the same trace, of another span.
constexpr const char* kAnswered = "00-4bf92f3577b34da6a3ce929d0e0e4736-[0-9a-f]{16}-01";

// What the metadata of an answer has under `traceparent`.
std::vector<std::string> TraceparentsOf(const grpc::ClientContext& context) {
  std::vector<std::string> found;
  for (const auto* metadata :
       {&context.GetServerInitialMetadata(), &context.GetServerTrailingMetadata()}) {
    const auto [first, last] = metadata->equal_range("traceparent");
    for (auto entry = first; entry != last; ++entry) {
      found.emplace_back(entry->second.data(), entry->second.size());
    }
  }
  return found;
}

// One way to call a server. Gives the code.
struct Way {
  const char* name;
  std::function<grpc::StatusCode(TestServer&, grpc::ClientContext&)> call;
  grpc::StatusCode code;
};

grpc::StatusCode EncodeIds(TestServer& server, grpc::ClientContext& context, int32_t id) {
  v1::EncodeResponse response;
  return server.encoder().Encode(&context, IdsRequest({{id}}), &response).error_code();
}

grpc::StatusCode EncodeIdsChunked(TestServer& server, grpc::ClientContext& context, int32_t id) {
  const auto reader = server.encoder().EncodeChunked(&context, IdsRequest({{id}}));
  for (v1::EncodeChunk chunk; reader->Read(&chunk);) {
  }
  return reader->Finish().error_code();
}

grpc::StatusCode GetModel(TestServer& server, grpc::ClientContext& context,
                          const std::string& name) {
  v1::GetModelRequest request;
  request.set_model(name);
  v1::GetModelResponse model;
  return server.encoder().GetModel(&context, request, &model).error_code();
}

const Way kWays[] = {
    {"Encode", [](auto& server, auto& context) { return EncodeIds(server, context, 1); },
     grpc::StatusCode::OK},
    {"Encode, refused", [](auto& server, auto& context) { return EncodeIds(server, context, -1); },
     grpc::StatusCode::INVALID_ARGUMENT},
    {"Encode, failed",
     [](auto& server, auto& context) {
       return EncodeIds(server, context, FakeEngine::kFailsBatch);
     },
     grpc::StatusCode::INTERNAL},
    {"EncodeChunked",
     [](auto& server, auto& context) { return EncodeIdsChunked(server, context, 1); },
     grpc::StatusCode::OK},
    {"EncodeChunked, refused",
     [](auto& server, auto& context) { return EncodeIdsChunked(server, context, -1); },
     grpc::StatusCode::INVALID_ARGUMENT},
    {"EncodeChunked, failed",
     [](auto& server, auto& context) {
       return EncodeIdsChunked(server, context, FakeEngine::kNonFinite);
     },
     grpc::StatusCode::INTERNAL},
    {"GetModel", [](auto& server, auto& context) { return GetModel(server, context, ""); },
     grpc::StatusCode::OK},
    {"GetModel, refused",
     [](auto& server, auto& context) { return GetModel(server, context, "another"); },
     grpc::StatusCode::NOT_FOUND}};

TEST(TraceTest, EveryAnswerNamesTheServersSpanInTheCallersTrace) {
  TestServer server;
  for (const Way& way : kWays) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", kTraceparent);
    ASSERT_EQ(way.call(server, context), way.code) << way.name;
    EXPECT_THAT(
        TraceparentsOf(context),
        ::testing::ElementsAre(AllOf(MatchesRegex(kAnswered), Not(HasSubstr("00f067aa0ba902b7")))))
        << way.name;
  }
}

TEST(TraceTest, TwoCallsOfOneSpanAreTwoSpans) {
  TestServer server;
  std::vector<std::string> answered;
  for (int i = 0; i < 2; ++i) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", kTraceparent);
    EncodeIds(server, context, 1);
    answered.push_back(TraceparentsOf(context).at(0));
  }
  EXPECT_NE(answered[0], answered[1]);
}

TEST(TraceTest, WithoutATraceThereIsNone) {
  TestServer server;
  for (const Way& way : kWays) {
    grpc::ClientContext context;
    context.AddMetadata("tracestate", "vendor=1");
    ASSERT_EQ(way.call(server, context), way.code) << way.name;
    EXPECT_THAT(TraceparentsOf(context), IsEmpty()) << way.name;
    EXPECT_EQ(context.GetServerTrailingMetadata().count("tracestate"), 0) << way.name;
  }
}

TEST(TraceTest, WhatIsNoTraceIsIgnored) {
  TestServer server;
  for (const std::string& text :
       {std::string("-"), std::string(5000, '0'),
        std::string("00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"),
        std::string("00-00000000000000000000000000000000-00f067aa0ba902b7-01")}) {
    grpc::ClientContext context;
    context.AddMetadata("traceparent", text);
    EXPECT_EQ(EncodeIds(server, context, 1), grpc::StatusCode::OK) << text;
    EXPECT_THAT(TraceparentsOf(context), IsEmpty()) << text;
  }
  grpc::ClientContext twice;
  twice.AddMetadata("traceparent", kTraceparent);
  twice.AddMetadata("traceparent", kTraceparent);
  EXPECT_EQ(EncodeIds(server, twice, 1), grpc::StatusCode::OK);
  EXPECT_THAT(TraceparentsOf(twice), IsEmpty());
}

// Keeps what is logged while it lives.
class LogLines : public absl::LogSink {
 public:
  LogLines() { absl::AddLogSink(this); }
  ~LogLines() override { absl::RemoveLogSink(this); }

  void Send(const absl::LogEntry& entry) override {
    const absl::string_view message = entry.text_message();
    MutexLock lock(mutex_);
    lines_.emplace_back(message.data(), message.size());
  }
  std::vector<std::string> lines() {
    MutexLock lock(mutex_);
    return lines_;
  }

 private:
  Mutex mutex_;
  std::vector<std::string> lines_ ABSL_GUARDED_BY(mutex_);
};

TEST(TraceTest, AFailureIsLoggedWithItsTraceAndTheSpanThatTheAnswerNames) {
  TestServer server;
  LogLines log;
  grpc::ClientContext context;
  context.AddMetadata("traceparent", kTraceparent);
  ASSERT_EQ(EncodeIds(server, context, FakeEngine::kNonFinite), grpc::StatusCode::INTERNAL);
  const std::string span = TraceparentsOf(context).at(0).substr(36, 16);
  EXPECT_THAT(log.lines(),
              Contains(AllOf(
                  HasSubstr("A call failed. reason=NON_FINITE_RESULT"),
                  HasSubstr(" trace_id=4bf92f3577b34da6a3ce929d0e0e4736 span_id=" + span + " "))));
}

TEST(TraceTest, AFailureWithoutATraceIsLoggedWithout) {
  TestServer server;
  LogLines log;
  grpc::ClientContext context;
  ASSERT_EQ(EncodeIds(server, context, FakeEngine::kNonFinite), grpc::StatusCode::INTERNAL);
  EXPECT_THAT(log.lines(), Contains(HasSubstr("A call failed.")));
  EXPECT_THAT(log.lines(), Not(Contains(ContainsRegex("trace_id|span_id"))));
}

}  // namespace
}  // namespace encoderd
