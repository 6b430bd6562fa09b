// Clients that go without a word, beside clients that stay.
#include <algorithm>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/soak/phases.h"
#include "tests/soak/raw_connection.h"

namespace encoderd::soak {
namespace {

constexpr int kThreads = 4;
constexpr double kVanishingPerSecond = 60;  // of all threads together

// Connects, sends a call, closes the connection up to 20 ms later; over and over.
void Vanish(int port, absl::Duration duration, int count, unsigned seed) {
  const std::string bytes = EncodeOverHttp2(RequestOf({8}));
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> microseconds(0, 20'000);
  const absl::Time start = absl::Now();
  for (int i = 0; i < count; ++i) {
    {
      RawConnection connection(port);
      connection.Send(bytes);
      absl::SleepFor(absl::Microseconds(microseconds(random)));
    }
    absl::SleepFor(start + duration * (i + 1) / count - absl::Now());
  }
}

// The p50 of eight steady clients, in ms, with clients that vanish beside them or not.
double SteadyP50(const Soak& soak, const BenchServer& server, absl::Duration duration,
                 bool vanishing) {
  client::LoadOptions options = OpenLoop(server, "fixed:64", duration, 40);
  options.arrival = client::Arrival::kEven;
  options.connections = 8;
  options.warm_up = absl::ZeroDuration();
  std::vector<std::thread> threads;
  const int count = vanishing ? std::max(1, static_cast<int>(absl::ToDoubleSeconds(duration) *
                                                             kVanishingPerSecond / kThreads))
                              : 0;
  for (unsigned i = 0; i < kThreads && vanishing; ++i) {
    threads.emplace_back(Vanish, server.port(), duration, count, i);
  }
  const client::LoadResult result = Drive(soak, options);
  for (std::thread& thread : threads) thread.join();
  if (vanishing) {
    CheckAllAnswered(
        soak, absl::StrFormat("8 steady clients beside %d that vanish", count * kThreads), result);
  }
  return Milliseconds(result.latency.p50);
}

}  // namespace

void VanishingClients(const Soak& soak) {
  BenchServer server(load::MiniLm());
  const absl::Duration turn = soak.Turn(40, 6);
  // The first turns make whatever is made once.
  SteadyP50(soak, server, turn / 2, true);
  AwaitAtMost(server, "encoderd_connections", 0);
  const int files = server.process().Files(), threads = server.process().Threads();
  const double resident = Mebibytes(static_cast<double>(server.ResidentBytes()));

  std::vector<double> ratios;
  for (int i = 0; i < 3; ++i) {
    const double without = SteadyP50(soak, server, turn, false);
    ratios.push_back(SteadyP50(soak, server, turn, true) / without);
  }
  soak.report.AtMost("p50 of steady clients beside vanishing ones ÷ without", Median(ratios), 1.2,
                     "");

  for (const char* gauge : {"encoderd_calls_in_flight", "encoderd_queue_calls",
                            "encoderd_inflight_bytes", "encoderd_connections"}) {
    AwaitAtMost(server, gauge, 0);
    soak.report.Equal(std::string(gauge) + " afterwards", ScrapeOf(server)[gauge], 0);
  }
  // gRPC closes in its own time what a client has left.
  const absl::Time end = absl::Now() + absl::Seconds(10);
  while (server.process().Files() > files && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  soak.report.AtMost("open files afterwards", server.process().Files(), files, "");
  // gRPC's timers have a thread more or less at any time.
  soak.report.AtMost("threads afterwards", server.process().Threads(), threads + 2, "");
  soak.report.AtMost("resident memory afterwards",
                     Mebibytes(static_cast<double>(server.ResidentBytes())), 1.05 * resident,
                     "MiB");
  CheckEnds(soak, server, absl::Seconds(5));
}

}  // namespace encoderd::soak
