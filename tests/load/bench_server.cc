#include "tests/load/bench_server.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "absl/log/check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace encoderd::load {
namespace {

constexpr int kHogThreads = 2;
constexpr std::chrono::seconds kHogLife(120);

std::string ThisProgram() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::vector<std::string> WithModel(const BenchModel& model, std::vector<std::string> flags) {
  flags.push_back(absl::StrCat("--model_dir=", model.dir()));
  return flags;
}

}  // namespace

const BenchModel& MiniLm() {
  static const BenchModel model(kMiniLmL6);
  return model;
}

const BenchModel& BertBase() {
  static const BenchModel model(kBertBase);
  return model;
}

BenchServer::BenchServer(const BenchModel& model, const std::vector<std::string>& flags,
                         const std::string& cgroup)
    : Encoderd(WithModel(model, flags), cgroup) {
  AwaitServing();
  CHECK(absl::StrContains(process().output(), "Serving.")) << process().output();
}

BenchServer::~BenchServer() {
  if (!process().running()) return;
  process().Signal(SIGTERM);
  CHECK_EQ(process().Wait(absl::Seconds(30)), 0) << process().output();
}

CpuHog::CpuHog() : process_(ThisProgram(), {kHogFlag}) { process_.AwaitLine("hogging"); }

void BeACpuHog() {
  std::puts("hogging");
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + kHogLife;
  auto spin = [end] {
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kHogThreads; ++i) threads.emplace_back(spin);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace encoderd::load
