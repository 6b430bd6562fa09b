// Sequences of very different lengths on one server.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/engine/io/temp_folder.h"
#include "tests/soak/phases.h"

namespace encoderd::soak {
namespace {

// A file of lengths, drawn evenly by the load generator.
class LengthsFile {
 public:
  // So many lines of each length.
  explicit LengthsFile(const std::map<int64_t, int>& lengths) {
    std::string lines;
    for (const auto& [length, count] : lengths) {
      for (int i = 0; i < count; ++i) absl::StrAppend(&lines, length, "\n");
    }
    path_ = folder_.Write("lengths", lines);
  }
  std::string name() const { return "file:" + path_; }

 private:
  const TempFolder folder_;
  std::string path_;
};

// ---- Mixed lengths ------------------------------------------------------------------------------

constexpr int kClients = 20;

client::LoadOptions TwentyClients(const BenchServer& server, const LengthsFile& lengths,
                                  absl::Duration duration) {
  client::LoadOptions options = ClosedLoop(server, lengths.name(), duration, kClients);
  options.connections = kClients;
  return options;
}

// Tokens answered per second in each of so many equal parts of the window.
std::vector<double> RatesOverTime(const client::LoadResult& result, int parts) {
  std::vector<double> rates(static_cast<size_t>(parts));
  const absl::Duration part = result.window / parts;
  for (const client::CallRecord& call : result.calls) {
    const auto index = static_cast<size_t>((call.due + call.latency) / part);
    if (call.answered() && index < rates.size()) rates[index] += call.tokens;
  }
  for (double& rate : rates) rate /= absl::ToDoubleSeconds(part);
  return rates;
}

absl::Duration LongestGap(const client::LoadResult& result) {
  std::vector<absl::Duration> ends;
  for (const client::CallRecord& call : result.calls) ends.push_back(call.due + call.latency);
  std::ranges::sort(ends);
  absl::Duration longest;
  for (size_t i = 1; i < ends.size(); ++i) longest = std::max(longest, ends[i] - ends[i - 1]);
  return longest;
}

// A machine that others use is faster in one minute than in the next, so the old server is compared
// with a fresh one, in turns.
void CheckAsFastAsAFreshOne(const Soak& soak, const BenchServer& old, const LengthsFile& lengths) {
  const BenchServer fresh(SmallModel());
  constexpr int kTurns = 7;
  std::vector<double> ratios;
  for (int turn = 0; turn < kTurns; ++turn) {
    const auto rate = [&](const BenchServer& server) {
      return Drive(soak, TwentyClients(server, lengths, soak.Turn(12, kTurns))).tokens_rate;
    };
    const double fresh_rate = rate(fresh);
    ratios.push_back(rate(old) / fresh_rate);
  }
  soak.report.AtLeast("throughput after it ÷ a fresh server's, in turns", Median(ratios), 0.9, "");
}

// Batches of so few tokens that every call is larger than the largest batch.
void CheckCallsBeyondTheBatch(const Soak& soak) {
  BenchServer server(SmallModel(), {"--max_batch_tokens=8"});
  for (const int64_t sequences : {3, 9, 100}) {
    client::LoadOptions options = ClosedLoop(server, "uniform:1-64", soak.Span(3), 4);
    options.sequences = sequences;
    CheckAllAnswered(soak, absl::StrCat(sequences, " sequences a call, 8 tokens a batch"),
                     Drive(soak, options));
  }
  CheckEnds(soak, server, absl::Seconds(5));
}

// ---- Long among short ---------------------------------------------------------------------------

constexpr int64_t kShort = 8, kLong = 512;

double PercentileMs(std::vector<double> values, double fraction) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

// Sends 31 short calls at once, behind a long one or not, and adds what the short ones took, in ms.
void SendBurst(const Soak& soak, v1::EncoderService::Stub& encoder, bool with_long,
               std::vector<double>& took) {
  std::vector<std::unique_ptr<Call>> calls;
  if (with_long) calls.push_back(std::make_unique<Call>(soak, encoder, RequestOf({kLong})));
  for (int i = 0; i < 31; ++i) {
    calls.push_back(std::make_unique<Call>(soak, encoder, RequestOf({kShort})));
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool ok = calls[i]->ok();
    if (i > 0 || !with_long) took.push_back(ok ? Milliseconds(calls[i]->took()) : 1e9);
  }
}

void CheckBursts(const Soak& soak, const BenchServer& server, double long_ms) {
  const auto encoder = v1::EncoderService::NewStub(server.Connect());
  const Scrape before = ScrapeOf(server);
  std::vector<double> alone, beside;
  const absl::Time end = absl::Now() + soak.Span(10);
  int64_t bursts = 0;
  for (; bursts < 20 || absl::Now() < end; ++bursts) {
    SendBurst(soak, *encoder, false, alone);
    SendBurst(soak, *encoder, true, beside);
  }
  const double limit = 3 * PercentileMs(alone, 0.95) + long_ms;
  soak.report.AtMost("31 short beside a long one: p95 of the short ones",
                     PercentileMs(beside, 0.95), limit, "ms");
  soak.report.Note(absl::StrFormat("p95 without the long one %.2f ms; a long one alone %.2f ms",
                                   PercentileMs(alone, 0.95), long_ms));
  const double ran =
      ScrapeOf(server)["encoderd_batch_tokens_sum"] - before["encoderd_batch_tokens_sum"];
  soak.report.AtMost("tokens run ÷ tokens sent",
                     ran / static_cast<double>(bursts * (2 * 31 * kShort + kLong)), 1.5, "");
}

struct StreamFound {
  double short_p95_ms = 0;
  double longest_wait_ms = 0;   // of a long sequence
  double longest_batch_ms = 0;  // that any call was in
  int64_t most_in_flight = 0;
};

StreamFound ReadStream(const client::LoadResult& result) {
  StreamFound found;
  std::vector<double> short_ms;
  std::vector<std::pair<absl::Duration, int>> changes;
  for (const client::CallRecord& call : result.calls) {
    changes.emplace_back(call.due, 1);
    changes.emplace_back(call.due + call.latency, -1);
    found.longest_batch_ms = std::max(found.longest_batch_ms, call.compute_us / 1e3);
    if (call.tokens == kShort) short_ms.push_back(Milliseconds(call.latency));
    if (call.tokens == kLong)
      found.longest_wait_ms = std::max(found.longest_wait_ms, call.queue_us / 1e3);
  }
  found.short_p95_ms = PercentileMs(std::move(short_ms), 0.95);
  std::ranges::sort(changes);
  int64_t in_flight = 0;
  for (const auto& [time, change] : changes) {
    in_flight += change;
    found.most_in_flight = std::max(found.most_in_flight, in_flight);
  }
  return found;
}

void CheckStream(const Soak& soak, const BenchServer& server, double long_ms) {
  const LengthsFile mixed({{kShort, 49}, {kLong, 1}});
  const std::string only_short = absl::StrCat("fixed:", kShort);
  // Half of what the server can do with the mixture.
  const double rate =
      Drive(soak, ClosedLoop(server, mixed.name(), soak.Span(4), 32)).achieved_rate / 2;
  constexpr int kTurns = 3;
  std::vector<double> alone, beside;
  double longest_wait_ms = 0, stated_ms = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const client::LoadResult without =
        Drive(soak, OpenLoop(server, only_short, soak.Turn(20, kTurns), 0.98 * rate));
    const client::LoadResult with =
        Drive(soak, OpenLoop(server, mixed.name(), soak.Turn(20, kTurns), rate));
    CheckAllAnswered(soak, "stream of short ones with 2 % long ones", with);
    alone.push_back(ReadStream(without).short_p95_ms);
    const StreamFound found = ReadStream(with);
    beside.push_back(found.short_p95_ms);
    longest_wait_ms = std::max(longest_wait_ms, found.longest_wait_ms);
    // As batcher.h states it: two batches for each sequence in front, and two for its own.
    stated_ms = std::max(
        stated_ms, 2 * static_cast<double>(found.most_in_flight + 1) * found.longest_batch_ms);
  }
  soak.report.AtMost("stream: p95 of the short ones", Median(beside), 3 * Median(alone) + long_ms,
                     "ms");
  soak.report.Note(
      absl::StrFormat("%.0f calls/s; p95 without long ones %.2f ms", rate, Median(alone)));
  soak.report.AtMost("stream: longest wait of a long one", longest_wait_ms, stated_ms, "ms");
}

}  // namespace

void MixedLengths(const Soak& soak) {
  const LengthsFile lengths({{8, 4}, {100, 4}, {1000, 2}, {4000, 1}, {4096, 1}});
  BenchServer server(SmallModel());
  const client::LoadResult result = Drive(soak, TwentyClients(server, lengths, soak.Span(30)));
  CheckAllAnswered(soak, "20 clients", result);
  const std::vector<double> rates = RatesOverTime(result, 10);
  soak.report.AtMost("longest time without an answer", absl::ToDoubleSeconds(LongestGap(result)), 5,
                     "s");
  soak.report.Note(absl::StrFormat("tokens/s: second tenth %.0f, median %.0f, last %.0f", rates[1],
                                   Median(rates), rates.back()));
  CheckAsFastAsAFreshOne(soak, server, lengths);
  CheckEnds(soak, server, absl::Seconds(5));
  CheckCallsBeyondTheBatch(soak);
}

void LongAmongShort(const Soak& soak) {
  BenchServer server(load::MiniLm());
  const double long_ms = Milliseconds(
      Drive(soak, ClosedLoop(server, absl::StrCat("fixed:", kLong), soak.Span(4), 1)).latency.p50);
  CheckBursts(soak, server, long_ms);
  CheckStream(soak, server, long_ms);
  CheckEnds(soak, server, absl::Seconds(5));
}

}  // namespace encoderd::soak
