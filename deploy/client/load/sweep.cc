#include "deploy/client/load/sweep.h"

#include <algorithm>
#include <cmath>

#include "engine/status_macros.h"

namespace encoderd::client {
namespace {

double NextRate(const SweepOptions& options, const SweepResult& known) {
  if (known.best == 0 && std::isinf(known.failed)) return options.start;
  if (known.best == 0) return known.failed / 2;
  if (std::isinf(known.failed)) return std::min(known.best * 1.5, options.most);
  return (known.best + known.failed) / 2;
}

}  // namespace

absl::StatusOr<SweepResult> FindHighestRate(
    const SweepOptions& options,
    const std::function<absl::StatusOr<bool>(double rate)>& meets_bound) {
  SweepResult result;
  int misses = 0;  // of the rate that is being tried
  for (int run = 0; run < options.max_runs && !result.settled; ++run) {
    const double rate = NextRate(options, result);
    ASSIGN_OR_RETURN(const bool met, meets_bound(rate));
    if (!met && ++misses < options.tries) continue;
    misses = 0;
    (met ? result.best : result.failed) = rate;
    result.settled = result.best >= options.most ||
                     result.failed - result.best <= options.precision * result.best;
  }
  return result;
}

}  // namespace encoderd::client
