// latency.h — exact percentiles, and what can be said of a percentile from a limited number of
// calls.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/time/time.h"

namespace encoderd::client {

// The least of the values that a share of at least `fraction` does not exceed (nearest rank, no
// interpolation: always a value that was measured). REQUIRES: `sorted` rises and is not empty;
// 0 < fraction <= 1.
absl::Duration Percentile(std::span<const absl::Duration> sorted, double fraction);

struct LatencySummary {
  int64_t count = 0;  // where it is 0, so are all the others
  absl::Duration mean;
  absl::Duration p50;
  absl::Duration p90;
  absl::Duration p99;
  absl::Duration p999;
  absl::Duration max;
};
LatencySummary SummariseLatency(std::vector<absl::Duration> values);

// How sure it is, 0 to 1, that calls miss with a probability of less than `probability`, when
// `misses` of `calls` did: 1 - P(Binomial(calls, probability) <= misses). With no miss at all, 299
// calls make 95 % and 459 make 99 % for a probability of 1 %. The calls are taken as independent;
// those of one busy spell are not, so it is an upper bound. REQUIRES: 0 <= misses <= calls;
// 0 < probability < 1.
// Source: MLPerf Inference rules, early stopping.
double ConfidenceOfFewerMisses(int64_t misses, int64_t calls, double probability);

}  // namespace encoderd::client
