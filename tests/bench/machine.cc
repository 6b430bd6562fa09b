#include "tests/bench/machine.h"

#include <barrier>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/ops/machine_rate.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"

namespace encoderd::bench {
namespace {

absl::StatusOr<ops::RegisterLoop> Create(Limit limit, Precision precision) {
  if (limit == Limit::kRegisters) return ops::RegisterLoop::Create(precision);
  ASSIGN_OR_RETURN(ops::MachineMatmul created, ops::MachineMatmul::Create(precision));
  const auto matmul = std::make_shared<ops::MachineMatmul>(std::move(created));
  return ops::RegisterLoop{.run = [matmul] { matmul->Run(); },
                           .operations = ops::MachineMatmul::kOperations,
                           .instruction = matmul->implementation()};
}

// Operations per second of the calling thread.
double Rate(const ops::RegisterLoop& loop, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  double operations = 0, elapsed = 0;
  do {
    loop.run();
    operations += loop.operations;
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  } while (elapsed < seconds);
  return operations / elapsed;
}

}  // namespace

std::string MachineName(int threads) {
  std::ifstream file("/proc/cpuinfo");
  std::string cpu = "unknown CPU";
  for (std::string line; std::getline(file, line);) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (!absl::StartsWith(parts.first, "model name")) continue;
    cpu = std::string(absl::StripAsciiWhitespace(parts.second));
    break;
  }
  return absl::StrCat(cpu, ", ", threads, " cores, ", ops::IsaName());
}

absl::StatusOr<MachineRate> MeasureMachine(Limit limit, Precision precision, int threads,
                                           double seconds) {
  std::mutex mutex;
  absl::StatusOr<MachineRate> all = MachineRate();
  std::barrier start(threads);
  const auto run = [&] {
    ops::EnterNumericEnvironment();
    const auto loop = Create(limit, precision);
    if (loop.ok()) loop->run();
    start.arrive_and_wait();
    const double rate = loop.ok() ? Rate(*loop, seconds) : 0;
    const std::lock_guard lock(mutex);
    if (!loop.ok()) {
      all = loop.status();
    } else if (all.ok()) {
      all->operations += rate;
      all->implementation = loop->instruction;
    }
  };
  // Not in the calling thread, which keeps its own numeric environment.
  std::vector<std::thread> workers;
  for (int i = 0; i < threads; ++i) workers.emplace_back(run);
  for (std::thread& worker : workers) worker.join();
  return all;
}

}  // namespace encoderd::bench
