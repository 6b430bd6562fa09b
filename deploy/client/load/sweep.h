// sweep.h — the highest rate at which a server still answers in time, in few measurements.
#pragma once

#include <functional>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"

namespace encoderd::client {

struct SweepOptions {
  double start = 0;  // the first rate tried
  double most = 0;   // no higher one is tried
  double precision = 0.02;
  // How often a rate is measured that misses the bound before it counts as too high: on a machine
  // with other work a single miss says little.
  int tries = 2;
  int max_runs = 16;
};

struct SweepResult {
  double best = 0;  // the highest rate that met the bound; 0 if none did
  double failed = std::numeric_limits<double>::infinity();  // the lowest that did not
  // Whether best is within `precision` of failed, or is the most there is to try.
  bool settled = false;
};

// Goes up from `start` by halves of the rate, or down by halving it, until one rate meets the bound
// and another does not, then halves the gap. Errors: the first of `meets_bound`. REQUIRES:
// 0 < start <= most; precision, tries and max_runs above 0.
absl::StatusOr<SweepResult> FindHighestRate(
    const SweepOptions& options,
    const std::function<absl::StatusOr<bool>(double rate)>& meets_bound);

}  // namespace encoderd::client
