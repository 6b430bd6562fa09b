// connection_slots.h — how many calls each connection has in flight.
//
// Role:  so that one bulk sender cannot own the queue. A connection is what gRPC calls its peer
//        ("ipv4:127.0.0.1:40312").
#pragma once

#include <string>
#include <unordered_map>

#include "server/mutex.h"

namespace encoderd {

// Thread-safe. Its size is that of the calls in flight.
class ConnectionSlots {
 public:
  explicit ConnectionSlots(int max_inflight) : max_inflight_(max_inflight) {}

  // False, and nothing taken, when the connection has all of its calls in flight.
  bool Take(const std::string& peer) {
    MutexLock lock(mutex_);
    const auto [entry, is_new] = inflight_.try_emplace(peer, 0);
    if (entry->second >= max_inflight_) return false;
    ++entry->second;
    return true;
  }

  // REQUIRES: Take returned true for this peer, once for each Give.
  void Give(const std::string& peer) {
    MutexLock lock(mutex_);
    const auto entry = inflight_.find(peer);
    if (--entry->second == 0) inflight_.erase(entry);
  }

  int max_inflight() const { return max_inflight_; }

 private:
  const int max_inflight_;
  Mutex mutex_;
  std::unordered_map<std::string, int> inflight_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace encoderd
