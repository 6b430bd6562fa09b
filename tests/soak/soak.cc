#include "tests/soak/soak.h"

#include <signal.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/load/drive.h"

namespace encoderd::soak {
namespace {

constexpr BertShape kSmall = {2, 64, 2, 256, 1000, 4096};
constexpr int32_t kIds = 1000;

bool Await(const BenchServer& server, const std::string& series, const auto& reached) {
  const absl::Time end = absl::Now() + absl::Seconds(10);
  while (!reached(ScrapeOf(server)[series])) {
    if (absl::Now() > end) return false;
    absl::SleepFor(absl::Milliseconds(5));
  }
  return true;
}

}  // namespace

absl::Duration Soak::Span(double seconds) const { return Turn(seconds, 1); }

absl::Duration Soak::Turn(double seconds, int turns) const {
  return std::max(absl::Seconds(seconds * minutes / 10) / turns, absl::Seconds(2));
}

const load::BenchModel& SmallModel() {
  static const load::BenchModel model(kSmall);
  return model;
}

v1::EncodeRequest RequestOf(const std::vector<int64_t>& lengths, v1::Priority priority) {
  v1::EncodeRequest request;
  for (const int64_t length : lengths) {
    v1::Sequence& sequence = *request.add_sequences();
    for (int64_t i = 0; i < length; ++i) {
      sequence.add_input_ids(static_cast<int32_t>((i * 7919 + length) % kIds));
    }
  }
  request.mutable_outputs()->add_pooled()->set_kind(v1::POOLING_MEAN);
  request.set_priority(priority);
  return request;
}

Call::~Call() {
  status();
  report_.CallEnded(took(), deadline_);
}

client::LoadResult Drive(const Soak& soak, const client::LoadOptions& options) {
  auto result = client::RunLoad(options, [&](const client::LoadProgress& progress) {
    soak.report.Progress(absl::StrFormat(
        "%.0f of %.0f s, %d calls ended, %d failed, %d in flight, p50 %.1f ms",
        absl::ToDoubleSeconds(progress.elapsed), absl::ToDoubleSeconds(progress.total),
        progress.latency.count + progress.failed, progress.failed, progress.in_flight,
        Milliseconds(progress.latency.p50)));
  });
  CHECK(result.ok()) << result.status();
  for (const client::CallRecord& call : result->calls) {
    soak.report.CallEnded(call.latency, options.deadline);
  }
  return *std::move(result);
}

client::LoadOptions ClosedLoop(const BenchServer& server, const std::string& lengths,
                               absl::Duration duration, int64_t outstanding) {
  client::LoadOptions options = load::LoadOf(server, lengths, absl::ToDoubleSeconds(duration));
  options.arrival = client::Arrival::kSaturate;
  options.outstanding = outstanding;
  options.deadline = kPatience;
  options.warm_up = absl::Milliseconds(500);
  return options;
}

client::LoadOptions OpenLoop(const BenchServer& server, const std::string& lengths,
                             absl::Duration duration, double rate) {
  client::LoadOptions options = ClosedLoop(server, lengths, duration, 4096);
  options.arrival = client::Arrival::kPoisson;
  options.rate = rate;
  return options;
}

std::string CodesText(const client::LoadResult& result) {
  std::vector<std::string> parts;
  for (const auto& [code, count] : result.codes) parts.push_back(absl::StrCat(code, " ", count));
  return absl::StrJoin(parts, ", ");
}

void CheckAllAnswered(const Soak& soak, const std::string& what, const client::LoadResult& result) {
  soak.report.Check(result.answered == result.offered() && result.answered > 0,
                    what + ": every call answered", absl::StrCat(result.offered(), " OK"),
                    CodesText(result));
}

void CheckEnds(const Soak& soak, BenchServer& server, absl::Duration limit) {
  const absl::Time start = absl::Now();
  server.process().Signal(SIGTERM);
  const int code = server.process().Wait(limit);
  soak.report.Check(
      code == 0, "ends when told to", absl::StrCat("0 in ", absl::FormatDuration(limit)),
      absl::StrFormat("%d after %.2f s", code, absl::ToDoubleSeconds(absl::Now() - start)));
  if (code == 0) return;
  // Its last words may say why.
  const std::string output = server.process().output();
  soak.report.Note(output.substr(output.size() - std::min<size_t>(output.size(), 2000)));
  server.process().Signal(SIGKILL);
  server.process().Wait();
}

bool AwaitAtMost(const BenchServer& server, const std::string& series, double value) {
  return Await(server, series, [value](double now) { return now <= value; });
}

bool AwaitAtLeast(const BenchServer& server, const std::string& series, double value) {
  return Await(server, series, [value](double now) { return now >= value; });
}

double Milliseconds(absl::Duration duration) { return absl::ToDoubleMilliseconds(duration); }

double Mebibytes(double bytes) { return bytes / (1 << 20); }

}  // namespace encoderd::soak
