// SIGTERM while clients are at work.
#include <signal.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "deploy/client/load/latency.h"
#include "tests/soak/health_watch.h"
#include "tests/soak/phases.h"

namespace encoderd::soak {
namespace {

bool AllAnswered(BenchServer& server) {
  return absl::StrContains(server.process().output(), "every accepted call was answered");
}

// What calls took, before and after a signal.
struct Latencies {
  std::vector<absl::Duration> before, after;
};

double P99(std::vector<absl::Duration>& latencies) {
  std::ranges::sort(latencies);
  return Milliseconds(client::Percentile(latencies, 0.99));
}

// 50 calls a second, on and on; those answered until the end of the delay are added to `latencies`.
void DrainUnderSteadyLoad(const Soak& soak, Latencies& latencies) {
  const absl::Duration delay = std::max(soak.Span(5), absl::Seconds(4)), before = delay;
  const absl::Duration after = soak.Span(2);
  BenchServer server(load::MiniLm(), {absl::StrCat("--drain_delay=", absl::FormatDuration(delay))});
  client::LoadOptions options = OpenLoop(server, "fixed:32", before + delay + after, 50);
  options.arrival = client::Arrival::kEven;
  options.connections = 4;
  options.warm_up = absl::Seconds(1);
  options.deadline = absl::Seconds(5);

  absl::Duration signalled;  // since the start of the window
  absl::Duration to_exit;
  int code = -1;
  const absl::Time window = absl::Now() + options.warm_up;
  std::thread terminate([&] {
    absl::SleepFor(window + before - absl::Now());
    const absl::Time start = absl::Now();
    signalled = start - window;
    server.process().Signal(SIGTERM);
    code = server.process().Wait(delay + absl::Seconds(21));
    to_exit = absl::Now() - start;
  });
  const client::LoadResult result = Drive(soak, options);
  terminate.join();

  // Clocks of sender and server start within this of one another.
  constexpr absl::Duration kMargin = absl::Milliseconds(100);
  std::string lost;
  int64_t late = 0, wrong = 0;
  for (const client::CallRecord& call : result.calls) {
    const absl::Duration sent = call.due + call.lag - signalled;
    const bool early = sent < delay - kMargin;
    if (early && call.answered()) {
      (sent < absl::ZeroDuration() ? latencies.before : latencies.after).push_back(call.latency);
    } else if (early) {
      absl::StrAppend(&lost, " code ", call.code, " sent after ", absl::FormatDuration(sent));
    } else if (!call.answered()) {
      ++(call.code == grpc::StatusCode::UNAVAILABLE ? late : wrong);
    }
  }
  soak.report.Check(lost.empty(),
                    "50 calls/s and SIGTERM: calls lost that came before the delay's end", "none",
                    lost.empty() ? "none" : lost);
  soak.report.Check(late > 0 && wrong == 0, "late calls", "UNAVAILABLE alone",
                    absl::StrFormat("%d, others %d", late, wrong));
  soak.report.Check(code == 0 && AllAnswered(server) && to_exit < delay + absl::Seconds(1), "exit",
                    absl::StrCat("0 after ", absl::FormatDuration(delay), " to 1s more"),
                    absl::StrFormat("%d after %.2f s", code, absl::ToDoubleSeconds(to_exit)));
}

// 50 calls wait for one worker, somebody watches the health, somebody is connected and idle.
void DrainWithAQueue(const Soak& soak, absl::Duration drain_timeout, int sequences,
                     bool all_answered) {
  BenchServer server(load::MiniLm(),
                     {"--workers=1", "--max_queue_time=10m", "--drain_delay=1s",
                      absl::StrCat("--drain_timeout=", absl::FormatDuration(drain_timeout))});
  const auto idle = server.Connect();
  const auto channel = server.Connect();
  const auto encoder = v1::EncoderService::NewStub(channel);
  HealthWatch watch(server.Connect());
  idle->WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience));
  std::vector<std::unique_ptr<Call>> calls;
  const std::vector<int64_t> lengths(static_cast<size_t>(sequences), 256);
  for (int i = 0; i < 50; ++i) {
    calls.push_back(std::make_unique<Call>(soak, *encoder, RequestOf(lengths)));
  }
  AwaitAtLeast(server, "encoderd_queue_calls", 45);

  const absl::Time start = absl::Now();
  server.process().Signal(SIGTERM);
  const absl::Duration limit = absl::Seconds(1) + drain_timeout + absl::Seconds(1);
  const int code = server.process().Wait(limit);
  const double took = absl::ToDoubleSeconds(absl::Now() - start);
  int answered = 0, unavailable = 0;
  for (const auto& call : calls) {
    answered += call->ok() ? 1 : 0;
    unavailable += call->status().error_code() == grpc::StatusCode::UNAVAILABLE ? 1 : 0;
  }
  const std::string name = absl::StrFormat("SIGTERM with 50 calls queued, %.0f s to drain",
                                           absl::ToDoubleSeconds(drain_timeout));
  soak.report.Check(code == 0, name + ": exit",
                    absl::StrFormat("0 in %.0f s", absl::ToDoubleSeconds(limit)),
                    absl::StrFormat("%d after %.2f s", code, took));
  soak.report.Check(all_answered ? answered == 50 && AllAnswered(server)
                                 : answered + unavailable == 50 && unavailable > 0,
                    name + ": calls", all_answered ? "50 OK" : "OK or UNAVAILABLE",
                    absl::StrFormat("%d OK, %d UNAVAILABLE", answered, unavailable));
  const std::string seen = watch.AwaitEnd();
  soak.report.Check(seen == "SERVING, NOT_SERVING", name + ": the health's watcher sees",
                    "NOT_SERVING, the end", seen);
}

}  // namespace

void Drains(const Soak& soak) {
  Latencies latencies;
  for (int round = 0; round < 3; ++round) DrainUnderSteadyLoad(soak, latencies);
  soak.report.AtMost("p99 during the delay ÷ before, three times",
                     P99(latencies.after) / P99(latencies.before), 2, "");
  DrainWithAQueue(soak, absl::Seconds(20), /*sequences=*/1, /*all_answered=*/true);
  DrainWithAQueue(soak, absl::Seconds(1), /*sequences=*/8, /*all_answered=*/false);
}

}  // namespace encoderd::soak
