// listener.h — accepts connections, at most so many at a time.
//
// Role:    gRPC 1.51 accepts whoever comes; so this accepts, and server.cc hands gRPC the sockets.
// Rules:   whoever takes a socket closes it and tells nobody. So what is open is looked up, when
//          the limit seems to be reached or somebody asks: a descriptor that is closed, or another
//          file by now, is no connection any more. Below the limit a connection costs one fstat.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/mutex.h"
#include "server/options.h"

namespace encoderd {

struct ConnectionCounts {
  int64_t open = 0;     // accepted and not closed
  int64_t refused = 0;  // closed at once for the limit, since the start
};

// Threads: Start and Stop one at a time; the rest from any.
class Listener {
 public:
  // Gets a connected socket (non-blocking, closed on exec) and must close it in the end.
  using Take = std::function<void(int fd)>;

  // Binds the address, or all that a name has on this machine; [::] is IPv4 too. Connections wait
  // in the kernel until Start. `flag`: who named the address, for messages. Errors: kUnavailable
  // when the address cannot be bound. REQUIRES: max_connections is at least 1.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(std::string_view flag,
                                                        const ListenAddress& address,
                                                        int max_connections);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Accepts on a thread of its own, which calls `take`. REQUIRES: called at most once.
  void Start(Take take);

  // Lets go of the address; `take` is not called any more. Connections that were taken stay.
  void Stop();

  int port() const { return port_; }
  ConnectionCounts Counts();

 private:
  Listener(std::string flag, size_t max_connections)
      : flag_(std::move(flag)), max_connections_(max_connections) {}

  void Run(const Take& take);
  void Accept(int listening, const Take& take);
  bool Admit(int fd);
  bool IsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string flag_;  // "--listen"
  const size_t max_connections_;
  int port_ = 0;
  int stop_event_ = -1;
  std::vector<int> listening_;
  std::thread thread_;

  Mutex mutex_;
  std::unordered_map<int, ino_t> open_ ABSL_GUARDED_BY(mutex_);  // descriptor → its inode
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  std::chrono::steady_clock::time_point next_look_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace encoderd
