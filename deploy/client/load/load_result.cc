#include "deploy/client/load/load_result.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"

namespace encoderd::client {
namespace {

constexpr absl::Duration kHarmlessLag = absl::Milliseconds(1);

// gRPC's codes and Abseil's are the same numbers and have the same names.
std::string CodeName(grpc::StatusCode code) {
  return absl::StatusCodeToString(static_cast<absl::StatusCode>(code));
}

// Adds the rates: what ended within the window.
void AddRates(const std::vector<CallRecord>& records, absl::Duration window,
              absl::Duration deadline, LoadResult& result) {
  const double seconds = absl::ToDoubleSeconds(window);
  double answers = 0, in_time = 0, tokens = 0, request_bytes = 0, response_bytes = 0;
  for (const CallRecord& record : records) {
    const absl::Duration end = record.due + record.latency;
    if (!record.answered() || end < absl::ZeroDuration() || end >= window) continue;
    answers += 1;
    in_time += record.latency <= deadline;
    tokens += record.tokens;
    request_bytes += record.request_bytes;
    response_bytes += record.response_bytes;
  }
  result.offered_rate = static_cast<double>(result.calls.size()) / seconds;
  result.achieved_rate = answers / seconds;
  result.goodput_rate = in_time / seconds;
  result.tokens_rate = tokens / seconds;
  result.request_bytes_rate = request_bytes / seconds;
  result.response_bytes_rate = response_bytes / seconds;
}

}  // namespace

double LoadResult::goodput_fraction() const {
  return calls.empty() ? 0 : static_cast<double>(in_time) / static_cast<double>(calls.size());
}

int64_t LoadResult::MissesOf(absl::Duration bound) const {
  return std::ranges::count_if(
      calls, [bound](const CallRecord& call) { return !call.answered() || call.latency > bound; });
}

absl::Duration LoadResult::PercentileOfAll(double fraction) const {
  std::vector<absl::Duration> latencies;
  latencies.reserve(calls.size());
  for (const CallRecord& call : calls) {
    latencies.push_back(call.answered() ? call.latency : absl::InfiniteDuration());
  }
  if (latencies.empty()) return absl::InfiniteDuration();
  std::ranges::sort(latencies);
  return Percentile(latencies, fraction);
}

bool LoadResult::generator_lagged() const {
  const bool all_sent = std::ranges::all_of(calls, &CallRecord::sent);
  return !all_sent || (lag.p99 > kHarmlessLag && lag.p99 > latency.p99 / 10);
}

std::array<LoadPart, 3> PartsOf(const LoadResult& result, absl::Duration deadline) {
  const Spike middle = SpikeOf(result.window, 1);
  std::array<LoadPart, 3> parts;
  std::array<std::vector<absl::Duration>, 3> latencies;
  for (const CallRecord& call : result.calls) {
    const size_t at = call.due < middle.begin ? 0 : call.due < middle.end ? 1 : 2;
    ++parts[at].offered;
    if (!call.answered()) continue;
    ++parts[at].answered;
    parts[at].in_time += call.latency <= deadline;
    latencies[at].push_back(call.latency);
  }
  for (size_t at = 0; at < parts.size(); ++at) {
    parts[at].latency = SummariseLatency(std::move(latencies[at]));
  }
  return parts;
}

LoadResult SummariseLoad(std::vector<CallRecord> records, absl::Duration window,
                         absl::Duration deadline) {
  LoadResult result;
  result.window = window;
  std::vector<absl::Duration> latencies, queues, computes, lags;
  for (const CallRecord& record : records) {
    if (record.due < absl::ZeroDuration() || record.due >= window) continue;
    result.calls.push_back(record);
    ++result.codes[record.sent ? CodeName(record.code) : "NOT_SENT"];
    if (record.sent) lags.push_back(record.lag);
    if (!record.answered()) continue;
    ++result.answered;
    result.in_time += record.latency <= deadline;
    latencies.push_back(record.latency);
    queues.push_back(absl::Microseconds(record.queue_us));
    computes.push_back(absl::Microseconds(record.compute_us));
  }
  result.latency = SummariseLatency(std::move(latencies));
  result.queue = SummariseLatency(std::move(queues));
  result.compute = SummariseLatency(std::move(computes));
  result.lag = SummariseLatency(std::move(lags));
  AddRates(records, window, deadline, result);
  return result;
}

}  // namespace encoderd::client
