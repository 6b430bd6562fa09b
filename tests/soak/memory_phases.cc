// Resident memory: after bursts, and under shapes that never repeat.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/soak/phases.h"

namespace encoderd::soak {
namespace {

double ResidentMiB(const BenchServer& server) {
  return Mebibytes(static_cast<double>(server.ResidentBytes()));
}

double WeightsMiB(BenchServer& server) {
  return Mebibytes(NumberIn(server.process().AwaitLine("weights_bytes="), "weights_bytes"));
}

// ---- Bursts -------------------------------------------------------------------------------------

// 64 clients whose answers of 3.9 MB are all in the making at once. Returns the resident memory
// once they are gone.
double AfterBurst(const Soak& soak, const BenchServer& server, int number) {
  client::LoadOptions options = ClosedLoop(server, "fixed:512", soak.Span(10), 64);
  options.connections = 64;
  options.outputs.clear_pooled();
  for (int layer = 0; layer < 5; ++layer) options.outputs.add_hidden_states(layer);
  options.max_response_bytes = 8 << 20;
  const client::LoadResult result = Drive(soak, options);
  CheckAllAnswered(soak, absl::StrCat("burst ", number, " of 64 clients"), result);
  soak.report.Note(absl::StrFormat("%.1f MB a call", result.calls.front().response_bytes / 1e6));
  absl::SleepFor(soak.Span(5));
  return ResidentMiB(server);
}

// ---- Shapes -------------------------------------------------------------------------------------

struct Sample {
  double minutes;
  double mebibytes;
};

// From the median of the first third of the samples to that of the last. Between two trims the heap
// grows by one to two MiB and then falls back: a slope fitted through all samples sees the teeth of
// that saw and not its height.
double GrowthPerMinute(const std::vector<Sample>& samples) {
  const auto third = static_cast<std::ptrdiff_t>(samples.size() / 3);
  const auto middle = [](auto begin, auto end) {
    std::vector<double> minutes, mebibytes;
    for (; begin != end; ++begin) {
      minutes.push_back(begin->minutes);
      mebibytes.push_back(begin->mebibytes);
    }
    return Sample{.minutes = Median(std::move(minutes)), .mebibytes = Median(std::move(mebibytes))};
  };
  const Sample first = middle(samples.begin(), samples.begin() + third);
  const Sample last = middle(samples.end() - third, samples.end());
  return (last.mebibytes - first.mebibytes) / (last.minutes - first.minutes);
}

int64_t SequencesPerCall(uint64_t round) { return static_cast<int64_t>(1 + round * 5 % 8); }

// Calls of all lengths, alone and up to 32 at a time. The first block alone is run: shapes count
// here, and work does not.
client::LoadResult SendShapes(const Soak& soak, const BenchServer& server, absl::Duration duration,
                              uint64_t round) {
  client::LoadOptions options =
      ClosedLoop(server, "uniform:1-512", duration, static_cast<int64_t>(1 + round * 7 % 32));
  options.sequences = SequencesPerCall(round);
  options.warm_up = absl::ZeroDuration();
  options.seed = round;
  options.outputs.mutable_pooled(0)->set_layer(1);
  return Drive(soak, options);
}

}  // namespace

void Bursts(const Soak& soak) {
  BenchServer server(load::MiniLm(), {"--max_queue_time=10m"});
  const double weights = WeightsMiB(server);
  const double first = AfterBurst(soak, server, 1);
  const double second = AfterBurst(soak, server, 2);
  soak.report.AtMost("resident memory after the bursts", std::max(first, second), weights + 256,
                     "MiB");
  soak.report.AtMost("resident memory after the second burst ÷ after the first", second / first,
                     1.05, "");
  soak.report.Note(absl::StrFormat("weights %.0f MiB, after the bursts %.0f and %.0f MiB", weights,
                                   first, second));
  CheckEnds(soak, server, absl::Seconds(5));
}

void RandomShapes(const Soak& soak) {
  BenchServer server(load::MiniLm());
  constexpr int64_t kWarmCalls = 2000;
  const absl::Time start = absl::Now();
  absl::Time end = absl::InfiniteFuture();
  std::vector<Sample> samples;
  int64_t sequences = 0, calls = 0, answered = 0;
  for (uint64_t round = 1; absl::Now() < end; ++round) {
    const client::LoadResult result = SendShapes(soak, server, absl::Seconds(1), round);
    calls += result.offered();
    answered += result.answered;
    sequences += result.answered * SequencesPerCall(round);
    if (answered < kWarmCalls) continue;
    if (samples.empty()) end = absl::Now() + soak.Span(90);
    samples.push_back({absl::ToDoubleMinutes(absl::Now() - start), ResidentMiB(server)});
  }
  const double early = samples.front().mebibytes;
  soak.report.Check(answered == calls, "every call answered", absl::StrCat(calls),
                    absl::StrCat(answered));
  soak.report.AtMost("growth of resident memory", GrowthPerMinute(samples), 1, "MiB/min");
  soak.report.AtMost("resident memory at the end ÷ once warm", samples.back().mebibytes / early,
                     1.05, "");
  soak.report.Note(absl::StrFormat("%d sequences; %.1f MiB once warm, %.1f at the end", sequences,
                                   early, samples.back().mebibytes));
  CheckEnds(soak, server, absl::Seconds(5));
}

}  // namespace encoderd::soak
