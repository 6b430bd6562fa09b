// Goal:   how much sooner a lone call of 512 tokens of BERT-base is answered when helpers lend it the
//         idle cores, and that they do no harm beside a program that takes all the CPU it can get.
// Method: an engine with one worker and one with a worker per core, in turns, so that both see the
//         same machine; a row is the median of the turns' ratios. The bits are compared before
//         anything is timed. The hog is a thread per core of a child process.
//
// usage: lone_call_bench [TURNS] (default 7; a turn takes about 1 s, and twice that beside the hog)
//        Prints rows "name value": lone_big_call (on idle cores) and lone_big_call_beside_hog.
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/ask.h"
#include "tests/engine/random_model.h"

extern char** environ;

namespace encoderd {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kTokens = 512;
constexpr char kHogFlag[] = "--hog";
// It ends by itself, whatever becomes of its parent.
constexpr auto kHogTime = std::chrono::minutes(2);

int Cores() { return static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); }

int Hog() {
  const Clock::time_point end = Clock::now() + kHogTime;
  std::vector<std::thread> threads;
  for (int i = 0; i < Cores(); ++i) {
    threads.emplace_back([&] {
      while (Clock::now() < end) {
        for (std::atomic<int> spins = 1'000'000; spins > 0; --spins) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return 0;
}

// A hog for as long as this lives.
class CpuHog {
 public:
  CpuHog() {
    std::string program = "/proc/self/exe", flag = kHogFlag;
    char* const argv[] = {program.data(), flag.data(), nullptr};
    CHECK_EQ(posix_spawn(&child_, program.c_str(), nullptr, nullptr, argv, environ), 0);
  }
  ~CpuHog() {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }

 private:
  pid_t child_ = 0;
};

// One call on an engine with so many workers.
class LoneCall {
 public:
  LoneCall(const std::string& folder, int workers) {
    auto engine = Engine::Load({.model_dir = folder, .workers = workers});
    CHECK(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    worker_ = NewWorker(*engine_);
    for (int64_t i = 0; i < kTokens; ++i)
      ids_.push_back(static_cast<int32_t>((i * 7919 + 13) % 30000));
    Request request = {.sequences = {{.input_ids = ids_}}};
    request.outputs.last_hidden_state = true;
    call_ = std::make_unique<Prepared>(*engine_, std::move(request));
    call_->AppendItems(items_);
  }

  double Seconds() {
    const Clock::time_point start = Clock::now();
    CHECK(worker_->Run(items_, NeverAbandoned).ok());
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::span<const std::byte> Bytes() const { return call_->answer.last_hidden_state.data.bytes(); }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Worker> worker_;
  std::vector<int32_t> ids_;
  std::unique_ptr<Prepared> call_;
  std::vector<BatchItem> items_;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void Report(const char* name, LoneCall& alone, LoneCall& helped, int turns) {
  std::vector<double> ratios, slow, fast;
  for (int turn = 0; turn < turns; ++turn) {
    slow.push_back(alone.Seconds());
    fast.push_back(helped.Seconds());
    ratios.push_back(slow.back() / fast.back());
  }
  std::printf("%s %.3f\n", name, Median(ratios));
  std::fprintf(stderr, "%s: %.1f ms on one worker, %.1f ms with helpers\n", name,
               1e3 * Median(slow), 1e3 * Median(fast));
  std::fflush(stdout);
}

void Run(int turns) {
  const TempFolder folder;
  WriteRandomBert(kBertBase, folder);
  LoneCall alone(folder.path(), 1), helped(folder.path(), Cores());
  for (int i = 0; i < 3; ++i) {
    alone.Seconds();
    helped.Seconds();
    CHECK(std::ranges::equal(alone.Bytes(), helped.Bytes())) << "helpers have moved bits";
  }
  Report("lone_big_call", alone, helped, turns);
  const CpuHog hog;
  Report("lone_big_call_beside_hog", alone, helped, turns);
}

}  // namespace
}  // namespace encoderd

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], encoderd::kHogFlag) == 0) return encoderd::Hog();
  encoderd::Run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 7);
  return 0;
}
