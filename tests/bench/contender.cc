#include "tests/bench/contender.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <utility>

#include "absl/log/check.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/status_macros.h"

namespace encoderd::bench {
namespace {

using nlohmann::json;

// The longest of its steps: conversion and quantisation of a model, on two busy cores.
constexpr absl::Duration kPatience = absl::Minutes(10);

absl::Duration CpuTime(pid_t pid) {
  clockid_t clock;
  timespec time;
  if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) return {};
  return absl::DurationFromTimespec(time);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Contender>> Contender::Start(std::vector<std::string> command,
                                                            const std::string& log) {
  signal(SIGPIPE, SIG_IGN);  // one that has ended is an error of its own
  int to[2], from[2];
  CHECK_EQ(pipe2(to, O_CLOEXEC), 0);
  CHECK_EQ(pipe2(from, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0644);
  std::vector<char*> argv;
  for (std::string& word : command) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int failed = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(to[0]);
  close(from[1]);
  std::unique_ptr<Contender> contender(new Contender(failed == 0 ? pid : 0, to[1], from[0]));
  if (failed != 0) {
    return absl::UnavailableError(absl::StrCat(command[0], ": ", strerror(failed)));
  }
  ASSIGN_OR_RETURN(const json hello, contender->Hear());
  contender->version_ = hello.value("version", "");
  contender->ways_ = hello.value("ways", std::vector<std::string>());
  return contender;
}

Contender::~Contender() {
  close(input_);
  close(output_);
  if (pid_ == 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

absl::Status Contender::Learn(const Work& work) {
  return Ask({{"do", "learn"}, {"work", work.name}, {"sequences", work.sequences}}).status();
}

absl::StatusOr<std::vector<float>> Contender::Encode(
    const std::vector<std::vector<int32_t>>& sequences) {
  ASSIGN_OR_RETURN(const json answer, Ask({{"do", "encode"}, {"sequences", sequences}}));
  std::string bytes;
  if (!absl::Base64Unescape(answer.value("hidden", ""), &bytes) || bytes.empty()) {
    return absl::UnavailableError("expected \"hidden\" in base64");
  }
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

absl::StatusOr<double> Contender::Time(const std::string& work, const Setting& setting,
                                       double seconds) {
  ASSIGN_OR_RETURN(const json answer, Ask({{"do", "time"},
                                           {"work", work},
                                           {"batching", setting.batching},
                                           {"way", setting.way},
                                           {"seconds", seconds}}));
  AwaitIdle();
  return answer.value("rate", 0.0);
}

absl::StatusOr<std::string> Contender::Kernels() {
  ASSIGN_OR_RETURN(const json answer, Ask({{"do", "kernels"}}));
  return answer.value("kernels", "");
}

absl::StatusOr<json> Contender::Ask(const json& request) {
  const std::string line = request.dump() + "\n";
  for (std::span<const char> rest = line; !rest.empty();) {
    const ssize_t written = write(input_, rest.data(), rest.size());
    if (written < 0) return absl::UnavailableError(absl::StrCat("ended: ", strerror(errno)));
    rest = rest.subspan(static_cast<size_t>(written));
  }
  return Hear();
}

absl::StatusOr<json> Contender::Hear() {
  const absl::Time end = absl::Now() + kPatience;
  size_t line_end;
  while ((line_end = heard_.find('\n')) == std::string::npos) {
    pollfd readable = {.fd = output_, .events = POLLIN};
    const auto left = static_cast<int>(absl::ToInt64Milliseconds(end - absl::Now()));
    if (left <= 0 || poll(&readable, 1, left) <= 0) {
      return absl::UnavailableError(
          absl::StrCat("no answer within ", absl::FormatDuration(kPatience)));
    }
    char buffer[1 << 16];
    const ssize_t got = read(output_, buffer, sizeof(buffer));
    if (got <= 0) return absl::UnavailableError("ended without an answer; see its log");
    heard_.append(buffer, static_cast<size_t>(got));
  }
  json answer = json::parse(heard_.substr(0, line_end), nullptr, /*allow_exceptions=*/false);
  heard_.erase(0, line_end + 1);
  if (!answer.is_object()) return absl::UnavailableError("expected a JSON object");
  if (answer.contains("error")) return absl::UnavailableError(answer.value("error", "error"));
  return answer;
}

// Thread pools spin for a while after their last work; the next contender must not pay for that.
void Contender::AwaitIdle() const {
  const absl::Time end = absl::Now() + absl::Seconds(1);
  absl::Duration before = CpuTime(pid_);
  while (absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(5));
    const absl::Duration now = CpuTime(pid_);
    if (now - before < absl::Microseconds(100)) return;
    before = now;
  }
}

}  // namespace encoderd::bench
