// in_process.h — the engine without a server around it: what a call is measured against.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "engine/engine.h"
#include "tests/load/bench_server.h"
#include "tests/report/measurement.h"

namespace encoderd::load {

using report::Median;

enum class Output { kPooled, kLastHiddenState };

class InProcess {
 public:
  explicit InProcess(const BenchModel& model);

  // Durations of `count` calls of one sequence, one after the other on one worker.
  std::vector<absl::Duration> CallTimes(int64_t tokens, Output output, int count) const;

  // Tokens per second of all CPUs, each running batches of 512 tokens of equal sequences, over
  // `seconds`.
  double TokenRate(int64_t tokens, Output output, double seconds) const;

  // Durations of calls of one sequence while every CPU runs such calls, over `seconds`.
  std::vector<absl::Duration> BusyCallTimes(int64_t tokens, double seconds) const;

 private:
  std::unique_ptr<Engine> engine_;
};

// Ids of one sequence, the same for the server and the engine.
std::vector<int32_t> Ids(int64_t tokens);

// Calls before the first that is timed, one after the other: they warm caches and connections.
inline constexpr int kWarmUpCalls = 2;

// CPUs that a server started beside us would use.
int Cpus();

double MedianSeconds(const std::vector<absl::Duration>& durations);

}  // namespace encoderd::load
