// Goal: no failure is invisible: each raises one counter of calls, with its code, and one of
//       reasons, with a reason of the list; and what gRPC refuses before anybody here sees it is what
//       server/README.md says.
// Method: a whole server around the fake engine, over a socket; every counter before and after.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/drained_service.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"
#include "tests/server/metrics_text.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr const char* kInFlight = "encoderd_calls_in_flight";
constexpr const char* kMethods[] = {"Encode", "EncodeChunked"};

std::string PathOf(const std::string& method) { return "/encoderd.v1.EncoderService/" + method; }

std::string Ids(int32_t id) { return IdsRequest({{id}}).SerializeAsString(); }

// The counters of calls and of reasons.
using Counters = std::map<std::string, double>;

Counters ReadCounters(const std::string& metrics_text) {
  Counters counters = ReadMetrics(metrics_text);
  std::erase_if(counters, [](const auto& counter) {
    return !counter.first.starts_with("encoderd_calls_total{") &&
           !counter.first.starts_with("encoderd_refusals_total{");
  });
  return counters;
}

// Those that were raised, each as often as it was.
std::vector<std::string> Raised(const Counters& before, const Counters& after) {
  std::vector<std::string> raised;
  for (const auto& [counter, value] : after) {
    raised.insert(raised.end(), static_cast<size_t>(value - before.at(counter)), counter);
  }
  return raised;
}

// By `act`. No other call may begin or end meanwhile.
std::vector<std::string> Raised(const TestServer& server, const std::function<void()>& act) {
  const Counters before = ReadCounters(server.MetricsText());
  const double in_flight = server.Metric(kInFlight);
  act();
  server.AwaitMetric(kInFlight, in_flight);
  return Raised(before, ReadCounters(server.MetricsText()));
}

// One of each and no more.
auto OneFailure(const std::string& method, const std::string& code, std::string_view reason) {
  EXPECT_EQ(std::ranges::count(kReasons, reason), 1) << reason;
  return ElementsAre(
      absl::StrCat("encoderd_calls_total{code=\"", code, "\",method=\"", method, "\"}"),
      absl::StrCat("encoderd_refusals_total{reason=\"", std::string(reason), "\"}"));
}

// ---- What is counted ----------------------------------------------------------------------------

TEST(FailuresTest, OfRequestsAreCountedOnce) {
  TestServer server;
  const std::string malformed = "\x0a\x05x";
  const std::string too_large(size_t{65} << 20, '\0');
  for (const char* method : {"Encode", "EncodeChunked", "GetModel"}) {
    const auto send = [&](const std::string& bytes) {
      return Raised(server, [&] { CallRaw(server.channel(), PathOf(method), bytes); });
    };
    EXPECT_THAT(send(malformed), OneFailure(method, "INVALID_ARGUMENT", "MALFORMED"));
    EXPECT_THAT(send(too_large), OneFailure(method, "INVALID_ARGUMENT", "REQUEST_TOO_LARGE"));
    EXPECT_THAT(send("\x0a\x01x"), OneFailure(method, "NOT_FOUND", "MODEL_NOT_FOUND"));
  }
  for (const char* path : {"/encoderd.v1.EncoderService/Decode", "/no.such.Service/Method"}) {
    EXPECT_THAT(Raised(server, [&] { CallRaw(server.channel(), path, ""); }),
                OneFailure("other", "UNIMPLEMENTED", "UNKNOWN_METHOD"));
  }
}

TEST(FailuresTest, OfTheEngineAreCountedOnce) {
  TestServer server;
  for (const char* method : kMethods) {
    const auto send = [&](int32_t id) {
      return Raised(server, [&] { CallRaw(server.channel(), PathOf(method), Ids(id)); });
    };
    EXPECT_THAT(send(FakeEngine::kFailsBatch), OneFailure(method, "INTERNAL", "ENGINE_FAILURE"));
    EXPECT_THAT(send(FakeEngine::kNonFinite), OneFailure(method, "INTERNAL", "NON_FINITE_RESULT"));
    server.engine().SetMemory(FakeEngine::Memory::kExhausted);
    EXPECT_THAT(send(1), OneFailure(method, "RESOURCE_EXHAUSTED", "OUT_OF_MEMORY"));
    server.engine().SetMemory(FakeEngine::Memory::kPlenty);
  }
}

TEST(FailuresTest, OfTheQueueAreCountedOnce) {
  Options options = TestOptions();
  options.max_queue_requests = 1;
  TestServer server(options);
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  {
    PendingCall waiting(server.encoder(), IdsRequest({{2}}));
    server.AwaitMetric("encoderd_queue_calls", 1);
    for (const char* method : kMethods) {
      EXPECT_THAT(Raised(server, [&] { CallRaw(server.channel(), PathOf(method), Ids(3)); }),
                  OneFailure(method, "RESOURCE_EXHAUSTED", "QUEUE_FULL"));
    }
    server.engine().latch().Open();
    EXPECT_TRUE(waiting.status().ok());
  }
  EXPECT_TRUE(running.status().ok());
}

TEST(FailuresTest, OfCallersWhoGoAndOfDeadlinesAreCountedOnce) {
  TestServer server;
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  for (const char* method : kMethods) {
    EXPECT_THAT(Raised(server,
                       [&] {
                         CallRaw(server.channel(), PathOf(method), Ids(2), nullptr,
                                 [](grpc::ClientContext& context) {
                                   context.set_deadline(
                                       absl::ToChronoTime(absl::Now() + absl::Milliseconds(50)));
                                 });
                       }),
                OneFailure(method, "DEADLINE_EXCEEDED", "DEADLINE"));
  }
  EXPECT_THAT(Raised(server,
                     [&] {
                       PendingCall waiting(server.encoder(), IdsRequest({{2}}));
                       server.AwaitMetric("encoderd_queue_calls", 1);
                       waiting.Cancel();
                     }),
              OneFailure("Encode", "CANCELLED", "CANCELLED"));
  server.engine().latch().Open();
  EXPECT_TRUE(running.status().ok());
}

TEST(FailuresTest, BeforeServingAreCountedOnce) {
  TestServer server(TestOptions(), TestServer::NotLoaded());
  for (const char* method : {"Encode", "EncodeChunked", "GetModel"}) {
    EXPECT_THAT(Raised(server, [&] { CallRaw(server.channel(), PathOf(method), Ids(1)); }),
                OneFailure(method, "UNAVAILABLE", "LOADING"));
  }
}

TEST(FailuresTest, AfterServingAreCountedOnce) {
  auto metrics = Metrics::Start("", Version(), "test");
  ASSERT_TRUE(metrics.ok());
  const DrainedService service(**metrics);
  const auto channel = service.Connect();
  for (const char* method : {"Encode", "EncodeChunked", "GetModel"}) {
    const Counters before = ReadCounters((*metrics)->Text());
    CallRaw(channel, PathOf(method), Ids(1));
    EXPECT_THAT(Raised(before, ReadCounters((*metrics)->Text())),
                OneFailure(method, "UNAVAILABLE", "DRAINING"));
  }
}

// ---- What is not: gRPC refuses it before anybody here sees it -----------------------------------

TEST(KnownGapsTest, WhatGrpcRefusesItselfIsNotCounted) {
  TestServer server;
  struct Refused {
    std::string bytes;
    std::function<void(grpc::ClientContext&)> set;
    grpc::StatusCode code;
  };
  const Refused all[] = {
      {std::string(size_t{129} << 20, '\0'), nullptr, grpc::StatusCode::RESOURCE_EXHAUSTED},
      {Ids(1),
       [](grpc::ClientContext& call) { call.AddMetadata("x-long", std::string(20 << 10, 'x')); },
       grpc::StatusCode::RESOURCE_EXHAUSTED},
      {Ids(1),
       [](grpc::ClientContext& call) { call.set_compression_algorithm(GRPC_COMPRESS_GZIP); },
       grpc::StatusCode::UNIMPLEMENTED}};
  EXPECT_THAT(Raised(server,
                     [&] {
                       for (const Refused& one : all) {
                         const grpc::Status status = CallRaw(server.Connect(), PathOf("Encode"),
                                                             one.bytes, nullptr, one.set);
                         EXPECT_EQ(status.error_code(), one.code) << status.error_message();
                       }
                       EXPECT_TRUE(server.server().Drain());  // no handler is left that could count
                     }),
              IsEmpty());
}

}  // namespace
}  // namespace encoderd
