#include "server/line_writer.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "server/log.h"

namespace encoderd {
namespace {

constexpr size_t kMaxPendingBytes = 1 << 20;
constexpr std::chrono::milliseconds kPeriod{100};
constexpr std::chrono::seconds kPatience{1};

// A pipe that poll calls writable takes so much at once, without waiting and in one piece.
constexpr size_t kMaxWriteBytes = PIPE_BUF;

bool IsStdout(const std::string& path) { return path == "-"; }

// Without waiting for somebody to read a named pipe. Readable by the group, as access logs are: it
// has who called. Errors: −1 and errno.
int OpenFile(const std::string& path) {
  return open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0640);
}

// What the kernel sends to a thread that writes to a pipe without a reader or beyond a file's
// limit, and which ends the process: errno says the same.
void BlockSignalsOfWrites() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  sigaddset(&signals, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// As many of the lines as may be written at once.
std::string_view FirstLines(std::string_view lines) {
  if (lines.size() <= kMaxWriteBytes) return lines;
  return lines.substr(0, lines.rfind('\n', kMaxWriteBytes - 1) + 1);
}

}  // namespace

absl::StatusOr<std::unique_ptr<LineWriter>> LineWriter::Open(const std::string& path,
                                                             OnDropped on_dropped) {
  const int fd = IsStdout(path) ? STDOUT_FILENO : OpenFile(path);
  if (fd < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot open ", LogValue(path),
                     ": expected a file that can be appended to, or -, got: ", strerror(errno)));
  }
  return std::unique_ptr<LineWriter>(new LineWriter(path, fd, std::move(on_dropped)));
}

LineWriter::LineWriter(std::string path, int fd, OnDropped on_dropped)
    : path_(std::move(path)), on_dropped_(std::move(on_dropped)), fd_(fd) {
  pending_.reserve(kMaxPendingBytes);
  thread_ = std::thread([this] { Run(); });
}

LineWriter::~LineWriter() {
  Flush();
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
  if (!IsStdout(path_)) close(fd_);
}

void LineWriter::Add(std::string_view line) {
  {
    MutexLock lock(mutex_);
    if (pending_.size() + line.size() <= kMaxPendingBytes) {
      if (pending_.empty()) changed_.NotifyAll();
      pending_ += line;
      ++added_;
      return;
    }
  }
  on_dropped_(1);
}

void LineWriter::Flush() {
  MutexLock lock(mutex_);
  const int64_t added = added_;
  give_up_ = Clock::now() + kPatience;
  changed_.NotifyAll();
  while (done_ < added) changed_.Wait(mutex_);
  give_up_.reset();
}

// ---- The writer ---------------------------------------------------------------------------------

void LineWriter::Run() {
  BlockSignalsOfWrites();
  std::string lines;
  lines.reserve(kMaxPendingBytes);
  while (true) {
    int64_t added = 0;
    {
      MutexLock lock(mutex_);
      while (pending_.empty() && !stopping_) changed_.Wait(mutex_);
      if (pending_.empty()) return;
      // Many lines are one write, and callers wake this thread once for all of them.
      if (!give_up_.has_value()) changed_.WaitFor(mutex_, kPeriod);
      lines.swap(pending_);
      added = added_;
    }
    Write(lines);
    lines.clear();
    MutexLock lock(mutex_);
    done_ = added;
    changed_.NotifyAll();
  }
}

void LineWriter::Write(std::string_view lines) {
  FollowPath();
  if (torn_ && Put("\n") == 1) torn_ = false;
  while (!torn_ && !lines.empty()) {
    const size_t written = Put(FirstLines(lines));
    if (written == 0) break;
    torn_ = lines[written - 1] != '\n';
    lines.remove_prefix(written);
  }
  if (!lines.empty()) on_dropped_(std::ranges::count(lines, '\n'));
}

// Opens the file anew when the path does not name the one that is open.
void LineWriter::FollowPath() {
  if (IsStdout(path_)) return;
  struct stat open_file, named;
  if (fstat(fd_, &open_file) == 0 && stat(path_.c_str(), &named) == 0 &&
      open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino) {
    return;
  }
  const int fd = OpenFile(path_);
  if (fd < 0) {
    const int error = errno;  // before the log changes it
    LOG_EVERY_N_SEC(WARNING, 60) << "Cannot open a log file anew; writing on to the one that was "
                                    "moved away. file="
                                 << LogValue(path_) << " error=" << LogValue(strerror(error));
    return;
  }
  close(fd_);
  fd_ = fd;
  torn_ = false;
}

// How much of it was written: 0 when that cannot be, or when nobody has made room in time.
size_t LineWriter::Put(std::string_view bytes) {
  while (AwaitRoom()) {
    const ssize_t written = write(fd_, bytes.data(), bytes.size());
    if (written > 0) return static_cast<size_t>(written);
    const int error = errno;  // before the log changes it
    if (error == EINTR || error == EAGAIN) continue;
    LOG_EVERY_N_SEC(WARNING, 60) << "Cannot write a log file; its lines are dropped. file="
                                 << LogValue(path_) << " error=" << LogValue(strerror(error));
    return 0;
  }
  return 0;
}

// False: a Flush waits for it in vain.
bool LineWriter::AwaitRoom() {
  pollfd room = {.fd = fd_, .events = POLLOUT, .revents = 0};
  while (poll(&room, 1, static_cast<int>(kPeriod.count())) <= 0) {
    MutexLock lock(mutex_);
    if (give_up_.has_value() && Clock::now() >= *give_up_) return false;
  }
  return true;
}

}  // namespace encoderd
