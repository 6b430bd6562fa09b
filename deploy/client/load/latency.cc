#include "deploy/client/load/latency.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace encoderd::client {

absl::Duration Percentile(std::span<const absl::Duration> sorted, double fraction) {
  const double count = static_cast<double>(sorted.size());
  // 0.9 x 10 is a little above 9 in binary: a rank is only the next one if it is so by more.
  const double rank = std::ceil(fraction * count - count * 1e-12);
  return sorted[static_cast<size_t>(std::clamp(rank, 1.0, count)) - 1];
}

LatencySummary SummariseLatency(std::vector<absl::Duration> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const absl::Duration sum = std::accumulate(values.begin(), values.end(), absl::ZeroDuration());
  return {.count = static_cast<int64_t>(values.size()),
          .mean = sum / static_cast<double>(values.size()),
          .p50 = Percentile(values, 0.5),
          .p90 = Percentile(values, 0.9),
          .p99 = Percentile(values, 0.99),
          .p999 = Percentile(values, 0.999),
          .max = values.back()};
}

double ConfidenceOfFewerMisses(int64_t misses, int64_t calls, double probability) {
  const double n = static_cast<double>(calls);
  double sum = 0;
  for (int64_t i = 0; i <= misses; ++i) {
    const double k = static_cast<double>(i);
    // In logarithms: the coefficients of some thousand calls are beyond any double.
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) +
                    k * std::log(probability) + (n - k) * std::log1p(-probability));
  }
  return std::clamp(1 - sum, 0.0, 1.0);
}

}  // namespace encoderd::client
