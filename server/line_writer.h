// line_writer.h — lines on their way to a file or to stdout, for which nobody waits.
//
// Role:    under the access log. A line goes into memory, and a thread of its own writes what has
//          come every tenth of a second.
// Bound:   1 MiB in memory, and as much that is being written. A line that finds no room there, or
//          that cannot be written (a full disk, a pipe that nobody reads any more), is dropped; the
//          next ones are tried again.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/statusor.h"
#include "server/mutex.h"

namespace encoderd {

// Threads: Add from any; Flush one at a time.
class LineWriter {
 public:
  // Called with how many lines were just dropped, by the thread that found out.
  using OnDropped = std::function<void(int64_t lines)>;

  // Appends to the file, which is made where it is missing; "-" is stdout. A file that is moved
  // away or deleted is made anew, so that whoever rotates logs need tell nobody. Errors:
  // kInvalidArgument when it cannot be opened.
  static absl::StatusOr<std::unique_ptr<LineWriter>> Open(const std::string& path,
                                                          OnDropped on_dropped);
  // Flushes.
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // REQUIRES: `line` ends with a newline, has no other and is at most 4096 bytes, what a pipe takes
  // in one piece.
  void Add(std::string_view line);

  // Waits until the lines that have come so far are written or dropped: at most a second for
  // somebody to take them.
  void Flush();

 private:
  using Clock = std::chrono::steady_clock;

  LineWriter(std::string path, int fd, OnDropped on_dropped);

  void Run();
  void Write(std::string_view lines);
  void FollowPath();
  size_t Put(std::string_view bytes);
  bool AwaitRoom();

  const std::string path_;
  const OnDropped on_dropped_;

  Mutex mutex_;
  CondVar changed_;
  std::string pending_ ABSL_GUARDED_BY(mutex_);
  int64_t added_ ABSL_GUARDED_BY(mutex_) = 0;  // lines
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;   // of them, written or dropped
  // When a Flush that is under way stops waiting for room.
  std::optional<Clock::time_point> give_up_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;

  // The writer's.
  int fd_;
  bool torn_ = false;  // what was written last is part of a line
  std::thread thread_;
};

}  // namespace encoderd
