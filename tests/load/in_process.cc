#include "tests/load/in_process.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>

#include "server/cpu_quota.h"
#include "tests/engine/ask.h"

namespace encoderd::load {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;
constexpr int64_t kBatchTokens = 512;

SteadyTime Now() { return std::chrono::steady_clock::now(); }

Request Sequences(const std::vector<int32_t>& ids, int64_t sequences, Output output) {
  Request request;
  request.sequences.assign(static_cast<size_t>(sequences), Sequence{.input_ids = ids});
  if (output == Output::kPooled) {
    request.outputs.pooled.push_back({.kind = Pooling::kMean});
  } else {
    request.outputs.last_hidden_state = true;
  }
  return request;
}

// Runs `work` on a thread per CPU at once, each with a worker of its own.
void OnEveryCpu(const Engine& engine, const std::function<void(Worker&)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < Cpus(); ++i) {
    threads.emplace_back([&] { work(*NewWorker(engine)); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

InProcess::InProcess(const BenchModel& model) : engine_(LoadEngine(model.dir())) {}

std::vector<absl::Duration> InProcess::CallTimes(int64_t tokens, Output output, int count) const {
  const std::vector<int32_t> ids = Ids(tokens);
  const auto worker = NewWorker(*engine_);
  std::vector<absl::Duration> times;
  for (int i = -kWarmUpCalls; i < count; ++i) {
    const SteadyTime start = Now();
    Ask(*engine_, *worker, Sequences(ids, 1, output));
    if (i >= 0) times.push_back(absl::FromChrono(Now() - start));
  }
  return times;
}

double InProcess::TokenRate(int64_t tokens, Output output, double seconds) const {
  const std::vector<int32_t> ids = Ids(tokens);
  const int64_t sequences = std::max<int64_t>(1, kBatchTokens / tokens);
  std::mutex mutex;
  double rate = 0;
  OnEveryCpu(*engine_, [&](Worker& worker) {
    Ask(*engine_, worker, Sequences(ids, sequences, output));
    const SteadyTime start = Now();
    double elapsed = 0;
    int64_t done = 0;
    while (elapsed < seconds) {
      Ask(*engine_, worker, Sequences(ids, sequences, output));
      done += sequences * tokens;
      elapsed = std::chrono::duration<double>(Now() - start).count();
    }
    const std::lock_guard lock(mutex);
    rate += static_cast<double>(done) / elapsed;
  });
  return rate;
}

std::vector<absl::Duration> InProcess::BusyCallTimes(int64_t tokens, double seconds) const {
  const std::vector<int32_t> ids = Ids(tokens);
  std::mutex mutex;
  std::vector<absl::Duration> all;
  OnEveryCpu(*engine_, [&](Worker& worker) {
    std::vector<absl::Duration> times;
    absl::Duration elapsed;
    while (absl::ToDoubleSeconds(elapsed) < seconds) {
      const SteadyTime start = Now();
      Ask(*engine_, worker, Sequences(ids, 1, Output::kPooled));
      times.push_back(absl::FromChrono(Now() - start));
      elapsed += times.back();
    }
    const std::lock_guard lock(mutex);
    all.insert(all.end(), times.begin(), times.end());
  });
  return all;
}

std::vector<int32_t> Ids(int64_t tokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>((i * 7919 + 13) % 30000));
  return ids;
}

int Cpus() { return ReadCpuQuota().Cpus(); }

double MedianSeconds(const std::vector<absl::Duration>& durations) {
  std::vector<double> seconds;
  for (const absl::Duration duration : durations) {
    seconds.push_back(absl::ToDoubleSeconds(duration));
  }
  return Median(std::move(seconds));
}

}  // namespace encoderd::load
