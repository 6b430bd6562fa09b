#include "tests/soak/dead_mans_switch.h"

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/time/clock.h"

namespace encoderd::soak {
namespace {

void KillChildren() {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child; children >> child;) kill(child, SIGKILL);
  }
}

}  // namespace

DeadMansSwitch::DeadMansSwitch() : thread_([this] { Watch(); }) {}

DeadMansSwitch::~DeadMansSwitch() {
  {
    MutexLock lock(mutex_);
    ended_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

void DeadMansSwitch::Feed(const std::string& what, absl::Duration limit) {
  MutexLock lock(mutex_);
  what_ = what;
  limit_ = absl::Now() + limit;
}

void DeadMansSwitch::Watch() {
  MutexLock lock(mutex_);
  while (!ended_) {
    changed_.WaitFor(mutex_, std::chrono::seconds(1));
    if (absl::Now() < limit_) continue;
    std::printf("\n  FAIL  HUNG: %s did not end by itself; the program ends\n", what_.c_str());
    std::fflush(stdout);
    KillChildren();
    std::_Exit(1);
  }
}

}  // namespace encoderd::soak
