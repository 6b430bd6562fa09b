// Goal:   how near the engine comes to what the machine's matrix multiplication can do, and how
//         many sequences a core encodes.
// Method: one thread per core on all cores at once, as the server runs. Each round times oneDNN's
//         matmul and then the engine, so that both see the same machine; a row is the median of the
//         rounds' ratios. Only operations of real tokens count: matrix products and attention, a
//         multiply-add as 2. The bits are checked before anything is timed.
//
// usage: engine_bench [ROUNDS] (default 7; a round takes about 0.6 s per row)
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/ops/machine_rate.h"
#include "engine/ops/runtime.h"
#include "tests/engine/ask.h"
#include "tests/engine/random_model.h"

namespace encoderd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kPhaseSeconds = 0.3;
constexpr int64_t kBatchTokens = 512;

// Operations that one sequence of S tokens needs.
double Operations(const EncoderSpec& spec, int64_t tokens) {
  const auto s = static_cast<double>(tokens), h = static_cast<double>(spec.hidden_size),
             f = static_cast<double>(spec.ffn_size);
  return static_cast<double>(spec.num_layers) * s * (8 * h * h + 4 * h * f + 4 * s * h);
}

// Calls `work` for kPhaseSeconds and returns how often per second.
double Rate(const std::function<void()>& work) {
  const Clock::time_point start = Clock::now();
  int64_t calls = 0;
  double seconds = 0;
  do {
    work();
    ++calls;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  } while (seconds < kPhaseSeconds);
  return static_cast<double>(calls) / seconds;
}

// A batch of equal sequences, kBatchTokens tokens of them (or one longer one), whose last hidden
// state is asked for.
class Batch {
 public:
  Batch(const Engine& engine, int64_t tokens)
      : sequences_(std::max<int64_t>(1, kBatchTokens / tokens)) {
    for (int64_t i = 0; i < tokens; ++i)
      ids_.push_back(static_cast<int32_t>((i * 7919 + 13) % 30000));
    Request request;
    request.sequences.assign(static_cast<size_t>(sequences_), Sequence{.input_ids = ids_});
    request.outputs.last_hidden_state = true;
    prepared_ = std::make_unique<Prepared>(engine, std::move(request));
    prepared_->AppendItems(items_);
  }

  int64_t sequences() const { return sequences_; }
  void Run(Worker& worker) { CHECK(worker.Run(items_, NeverAbandoned).ok()); }

  // Equal sequences have equal rows, whatever their place in the batch.
  void CheckBits(Worker& worker) {
    Run(worker);
    const auto bytes = prepared_->answer.last_hidden_state.data.bytes();
    const size_t one = bytes.size() / static_cast<size_t>(sequences_);
    for (size_t at = one; at < bytes.size(); at += one) {
      CHECK_EQ(std::memcmp(bytes.data(), bytes.data() + at, one), 0)
          << "rows depend on their place";
    }
  }

 private:
  const int64_t sequences_;
  std::vector<int32_t> ids_;
  std::unique_ptr<Prepared> prepared_;
  std::vector<BatchItem> items_;
};

struct Row {
  std::vector<double> ratios;          // engine ÷ machine, one per round
  std::vector<double> sequence_rates;  // sequences per second, all cores, one per round
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Row Measure(const Engine& engine, int64_t tokens, int rounds) {
  const auto cores = static_cast<std::ptrdiff_t>(std::max(1u, std::thread::hardware_concurrency()));
  std::vector<double> matmuls(static_cast<size_t>(cores)), batches(static_cast<size_t>(cores));
  Row row;
  std::barrier barrier(cores);
  auto run = [&](size_t core) {
    ops::EnterNumericEnvironment();
    auto matmul = ops::MachineMatmul::Create();
    CHECK(matmul.ok()) << matmul.status();
    const auto worker = NewWorker(engine);
    Batch batch(engine, tokens);
    batch.CheckBits(*worker);
    for (int round = 0; round < rounds; ++round) {
      barrier.arrive_and_wait();
      matmuls[core] = Rate([&] { matmul->Run(); });
      barrier.arrive_and_wait();
      batches[core] = Rate([&] { batch.Run(*worker); });
      barrier.arrive_and_wait();
      if (core != 0) continue;
      double machine = 0, ours = 0;
      for (const double rate : matmuls) machine += rate * ops::MachineMatmul::kOperations;
      for (const double rate : batches) ours += rate * static_cast<double>(batch.sequences());
      row.ratios.push_back(ours * Operations(engine.spec(), tokens) / machine);
      row.sequence_rates.push_back(ours);
    }
  };
  std::vector<std::thread> threads;
  for (size_t core = 1; core < static_cast<size_t>(cores); ++core) threads.emplace_back(run, core);
  run(0);
  for (std::thread& thread : threads) thread.join();
  return row;
}

void Report(const char* name, const BertShape& shape, const std::vector<int64_t>& lengths,
            int rounds) {
  const TempFolder folder;
  WriteRandomBert(shape, folder);
  const auto engine = LoadEngine(folder.path());
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  for (const int64_t tokens : lengths) {
    const Row row = Measure(*engine, tokens, rounds);
    const double rate = Median(row.sequence_rates);
    const auto [low, high] = std::minmax_element(row.ratios.begin(), row.ratios.end());
    std::printf("%-10s %6lld   %5.2f  (%.2f–%.2f)   %9.1f   %9.1f   %9.0f\n", name,
                static_cast<long long>(tokens), Median(row.ratios), *low, *high, rate, rate / cores,
                rate * static_cast<double>(tokens));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace encoderd

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  std::printf(
      "fp32, %s, %u cores, one thread per core; batches of %lld tokens; median of %d rounds\n"
      "%-10s %6s   %s   %9s   %9s   %9s\n",
      encoderd::ops::IsaName().c_str(), std::thread::hardware_concurrency(),
      static_cast<long long>(encoderd::kBatchTokens), rounds, "model", "tokens",
      "÷ matmul rate (range)", "seq/s", "per core", "tokens/s");
  std::fflush(stdout);
  encoderd::Report("MiniLM-L6", encoderd::kMiniLmL6, {16, 32, 64, 128, 256, 512}, rounds);
  encoderd::Report("BERT-base", encoderd::kBertBase, {16, 128, 512}, rounds);
  return 0;
}
