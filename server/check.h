// check.h — what `encoderd --check` prints: what a model is and what serving it takes.
#pragma once

#include <cstdint>
#include <string>

#include "engine/engine.h"
#include "server/options.h"
#include "server/served_model.h"

namespace encoderd {

// Memory that serving the model takes, bytes.
struct MemoryNeed {
  int64_t process = 0;  // binary, libraries, connections, kernels: measured on an empty server
  int64_t weights = 0;
  int64_t scratch = 0;  // of all workers and helpers
  int64_t shadow = 0;   // a second copy of the weights, and scratch for both: --shadow_rate
  int64_t calls = 0;    // the most that all calls together may hold: max_inflight_bytes

  int64_t Total() const { return process + weights + scratch + shadow + calls; }
};

// REQUIRES: options.workers is at least 1.
MemoryNeed MemoryNeedOf(const ServedModel& model, const Options& options);

// The report, lines of "what: value" and the spec as JSON.
std::string CheckReport(const ServedModel& model, const Options& options);

}  // namespace encoderd
