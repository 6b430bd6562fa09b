#include "tests/load/bench_server.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "absl/log/check.h"
#include "absl/strings/str_cat.h"

namespace encoderd::load {
namespace {

constexpr int kHogThreads = 2;
constexpr std::chrono::seconds kHogLife(120);

std::string ThisProgram() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::string Encoderd() {
  return (std::filesystem::path(ThisProgram()).parent_path() / "encoderd").string();
}

// The shell puts itself into the control group and becomes the server.
std::vector<std::string> Arguments(const BenchModel& model, const std::vector<std::string>& flags,
                                   const std::string& cgroup) {
  std::vector<std::string> arguments = {
      "-c",
      "[ -z \"$0\" ] || echo $$ > \"$0/cgroup.procs\" || exit 1; exec \"$@\"",
      cgroup,
      Encoderd(),
      absl::StrCat("--model_dir=", model.dir()),
      "--listen=127.0.0.1:0",
      "--metrics_listen=127.0.0.1:0"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return arguments;
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
    : process_("/bin/sh", Arguments(model, flags, cgroup)) {
  metrics_port_ = NumberIn(process_.AwaitLine(" Listening. "), "metrics_port");
  port_ = NumberIn(process_.AwaitLine(" Serving. "), "port");
  CHECK_GT(port_, 0) << process_.output();
  address_ = absl::StrCat("127.0.0.1:", port_);
}

BenchServer::~BenchServer() {
  if (!process_.running()) return;
  process_.Signal(SIGTERM);
  CHECK_EQ(process_.Wait(absl::Seconds(30)), 0) << process_.output();
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
