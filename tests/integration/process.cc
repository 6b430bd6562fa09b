#include "tests/integration/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/log/check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace encoderd {
namespace {

// Has the kernel end what it becomes when the thread that started it ends: a child does not outlive
// a parent that was killed or aborted.
constexpr const char* kSetpriv = "/usr/bin/setpriv";

int Entries(const std::string& folder) {
  std::error_code gone;
  const std::filesystem::directory_iterator entries(folder, gone);
  return static_cast<int>(std::distance(begin(entries), end(entries)));
}

}  // namespace

Process::Process(const std::string& program, const std::vector<std::string>& arguments) {
  int ends[2];
  CHECK_EQ(pipe2(ends, O_CLOEXEC), 0);
  pipe_ = ends[0];
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<std::string> command = {kSetpriv, "--pdeathsig", "KILL", "--", program};
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  CHECK_EQ(posix_spawn(&pid_, kSetpriv, &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  reader_ = std::thread([this] { Read(); });
}

Process::~Process() {
  if (running()) {
    Signal(SIGKILL);
    Wait();
  }
  reader_.join();
  close(pipe_);
}

void Process::Signal(int signal) const { kill(pid_, signal); }

void Process::SetNice(int nice) const {
  std::error_code gone;
  for (const auto& task :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid_, "/task"), gone)) {
    const auto thread = static_cast<id_t>(std::stoul(task.path().filename().string()));
    if (setpriority(PRIO_PROCESS, thread, nice) == 0 || errno == ESRCH) continue;
    ADD_FAILURE() << "nice " << nice << ": " << strerror(errno);
  }
}

absl::Duration Process::CpuTime() const {
  clockid_t clock;
  timespec time;
  CHECK_EQ(clock_getcpuclockid(pid_, &clock), 0);
  CHECK_EQ(clock_gettime(clock, &time), 0);
  return absl::DurationFromTimespec(time);
}

int64_t Process::ResidentBytes() const {
  std::ifstream statm(absl::StrCat("/proc/", pid_, "/statm"));
  int64_t all_pages = 0, resident_pages = 0;
  statm >> all_pages >> resident_pages;
  CHECK(statm.good()) << "the process has ended";
  return resident_pages * sysconf(_SC_PAGESIZE);
}

int64_t Process::PeakResidentBytes() const {
  std::ifstream status(absl::StrCat("/proc/", pid_, "/status"));
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == "VmHWM:" && status >> kib) return kib << 10;
  }
  CHECK(false) << "the process has ended";
}

int Process::Threads() const { return Entries(absl::StrCat("/proc/", pid_, "/task")); }

int Process::Files() const { return Entries(absl::StrCat("/proc/", pid_, "/fd")); }

void Process::Read() {
  char buffer[4096];
  for (ssize_t bytes; (bytes = read(pipe_, buffer, sizeof(buffer))) > 0;) {
    MutexLock lock(mutex_);
    output_.append(buffer, static_cast<size_t>(bytes));
    more_.NotifyAll();
  }
  MutexLock lock(mutex_);
  closed_ = true;
  more_.NotifyAll();
}

std::string Process::AwaitLine(const std::string& text) {
  const absl::Time end = absl::Now() + absl::Seconds(20);
  MutexLock lock(mutex_);
  while (true) {
    const size_t at = output_.find(text);
    const size_t line_end = at == std::string::npos ? at : output_.find('\n', at);
    if (line_end != std::string::npos) {
      const size_t before = output_.rfind('\n', at);
      const size_t begin = before == std::string::npos ? 0 : before + 1;
      return output_.substr(begin, line_end - begin);
    }
    if (closed_ || absl::Now() >= end) {
      ADD_FAILURE() << "no line with \"" << text << "\" in:\n" << output_;
      return "";
    }
    more_.WaitFor(mutex_, std::chrono::milliseconds(100));
  }
}

int Process::Wait(absl::Duration timeout) {
  const absl::Time end = absl::Now() + timeout;
  while (running()) {
    if (absl::Now() >= end) return -1;
    absl::SleepFor(absl::Milliseconds(1));  // others may be measured meanwhile
  }
  // The pipe has the rest.
  MutexLock lock(mutex_);
  while (!closed_) more_.Wait(mutex_);
  return exit_code_;
}

bool Process::running() {
  if (ended_) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return true;
  exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ended_ = true;
  return false;
}

std::string Process::output() {
  MutexLock lock(mutex_);
  return output_;
}

int NumberIn(const std::string& line, const std::string& name) {
  for (const absl::string_view word : absl::StrSplit(line, ' ')) {
    if (absl::StartsWith(word, absl::StrCat(name, "="))) {
      return std::stoi(std::string(word.substr(name.size() + 1)));
    }
  }
  ADD_FAILURE() << "no " << name << "= in: " << line;
  return 0;
}

}  // namespace encoderd
