// process.h — another process, observed from outside: what it prints and how it ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "server/mutex.h"

namespace encoderd {

class Process {
 public:
  // Starts `program`, a path, with the arguments and gathers what it writes to stdout and stderr.
  // It is killed when the calling thread ends, however that comes about.
  Process(const std::string& program, const std::vector<std::string>& arguments);
  // Kills it if it still runs.
  ~Process();

  void Signal(int signal) const;

  // Of all its threads; those that they start later inherit it. Fails the test where this user may
  // not.
  void SetNice(int nice) const;

  // What all its threads together have taken of CPUs so far.
  absl::Duration CpuTime() const;

  // Memory that it has in RAM now, in bytes.
  int64_t ResidentBytes() const;
  // The most that it has had so far.
  int64_t PeakResidentBytes() const;
  // Open files, sockets among them.
  int Files() const;
  int Threads() const;

  // Waits until the output has a line with `text` and returns the line; fails the test when the
  // process ends or 20 s pass first.
  std::string AwaitLine(const std::string& text);

  // Waits for the end. The exit code, 128 + the signal that ended it, or -1 when it does not end
  // within `timeout`.
  int Wait(absl::Duration timeout = absl::Seconds(20));

  bool running();
  std::string output();  // so far

 private:
  void Read();

  pid_t pid_ = -1;
  int pipe_ = -1;
  int exit_code_ = -1;
  bool ended_ = false;
  Mutex mutex_;
  CondVar more_;
  std::string output_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread reader_;
};

// The number after `name` and "=" in a log line.
int NumberIn(const std::string& line, const std::string& name);

}  // namespace encoderd
