// Little or nothing to do: pings, a call that waits long, a call a second, no call at all.
#include <grpcpp/channel.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/soak/phases.h"

namespace encoderd::soak {
namespace {

// ---- Pings --------------------------------------------------------------------------------------

// A client that pings so often, with and without calls.
std::shared_ptr<grpc::Channel> PingingChannel(const BenchServer& server, absl::Duration interval) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(Milliseconds(interval)));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return server.Connect(arguments);
}

// Reports whether the channel's connection lasts so long; gRPC closes it when the server says
// GOAWAY.
void CheckConnection(const Soak& soak, grpc::Channel& channel, absl::Duration duration,
                     const std::string& what, const std::string& expected) {
  std::string got = "never connected";
  if (channel.WaitForConnected(absl::ToChronoTime(absl::Now() + kPatience))) {
    const bool changed =
        channel.WaitForStateChange(GRPC_CHANNEL_READY, absl::ToChronoTime(absl::Now() + duration));
    got = changed ? "cut off" : "connected";
  }
  soak.report.Check(got == expected, what, expected, got);
}

// How many sequences of 512 tokens one worker runs in so long.
int64_t SequencesFor(const Soak& soak, v1::EncoderService::Stub& encoder, absl::Duration duration) {
  constexpr int64_t kSample = 10;
  Call sample(soak, encoder, RequestOf(std::vector<int64_t>(kSample, 512)));
  if (!sample.ok()) return kSample;
  return std::max<int64_t>(kSample, std::llround(kSample * (duration / sample.took())));
}

// A client pings every 10 s while its call waits behind a long one, and goes on without a call.
void CheckPings(const Soak& soak) {
  BenchServer server(load::MiniLm(),
                     {"--workers=1", "--max_queue_time=10m", "--max_request_tokens=1048576",
                      "--max_queue_tokens=4194304"});
  const auto plain = v1::EncoderService::NewStub(server.Connect());
  const absl::Duration wait = soak.Span(60), deadline = 5 * wait + kPatience;
  Call ahead(
      soak, *plain,
      RequestOf(std::vector<int64_t>(static_cast<size_t>(SequencesFor(soak, *plain, wait)), 512),
                v1::PRIORITY_BULK),
      deadline);
  AwaitAtLeast(server, "encoderd_queue_calls", 1);

  // 10 s, or what the server still allows where there is less time.
  const absl::Duration interval = std::max(soak.Span(10), absl::Milliseconds(5500));
  const auto channel = PingingChannel(server, interval);
  const auto pinging = v1::EncoderService::NewStub(channel);
  Call waiting(soak, *pinging, RequestOf({512}, v1::PRIORITY_BULK), deadline);
  const bool answered = waiting.ok();
  soak.report.Check(
      answered && channel->GetState(false) == GRPC_CHANNEL_READY,
      absl::StrFormat("a call that waits while its client pings every %.1f s",
                      absl::ToDoubleSeconds(interval)),
      "OK, connected",
      absl::StrFormat("%s after %.1f s", answered ? "OK" : waiting.status().error_message(),
                      absl::ToDoubleSeconds(waiting.took())));
  CheckConnection(soak, *channel, interval * 2.5, "two more pings without a call", "connected");
  ahead.status();

  const auto abusive = PingingChannel(server, absl::Milliseconds(100));
  CheckConnection(soak, *abusive, absl::Seconds(10), "a ping every 100 ms", "cut off");
  CheckEnds(soak, server, absl::Seconds(5));
}

// ---- CPU ----------------------------------------------------------------------------------------

void CheckOneCallASecond(const Soak& soak, const BenchServer& server) {
  client::LoadOptions options = OpenLoop(server, "fixed:128", soak.Span(50), 1);
  options.arrival = client::Arrival::kEven;
  options.warm_up = absl::ZeroDuration();
  const absl::Duration cpu_before = server.CpuTime();
  const Scrape before = ScrapeOf(server);
  CheckAllAnswered(soak, "a call a second", Drive(soak, options));
  const double busy = ScrapeOf(server)["encoderd_worker_busy_seconds_total"] -
                      before["encoderd_worker_busy_seconds_total"];
  soak.report.AtMost("a call a second: CPU time ÷ time in batches",
                     absl::ToDoubleSeconds(server.CpuTime() - cpu_before) / busy, 3, "");
}

void CheckIdle(const Soak& soak, const BenchServer& server) {
  const absl::Duration span = std::max(soak.Span(30), absl::Seconds(10));
  const absl::Duration before = server.CpuTime();
  absl::SleepFor(span);
  soak.report.AtMost("no call: CPU time ÷ time",
                     absl::FDivDuration(server.CpuTime() - before, span), 0.01, "of a core");
}

}  // namespace

void Quiet(const Soak& soak) {
  // What is counted here is CPU time, which a neighbour does not change: so both at once.
  std::thread pings([&soak] { CheckPings(soak); });
  {
    BenchServer server(load::MiniLm());
    CheckOneCallASecond(soak, server);
    CheckIdle(soak, server);
    CheckEnds(soak, server, absl::Seconds(5));
  }
  pings.join();
}

}  // namespace encoderd::soak
