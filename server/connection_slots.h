// connection_slots.h — how many calls each connection has in flight.
//
// Role:  so that one bulk sender cannot own the queue, nor one slow reader the memory for answers.
// A
//        connection is what gRPC calls its peer ("ipv4:127.0.0.1:40312").
//
// A call works until it is answered and is sent until gRPC is done with it. Both are limited, the
// second one at twice the limit: a caller may have read an answer, and sent the next call, before
// gRPC has told us, and must not be refused for that.
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
    Calls& calls = calls_[peer];
    if (calls.working >= max_inflight_ || calls.working + calls.sending >= 2 * max_inflight_) {
      return false;
    }
    ++calls.working;
    return true;
  }

  // The call is answered. REQUIRES: Take returned true for this peer, once for each call of this.
  void Answered(const std::string& peer) {
    MutexLock lock(mutex_);
    Calls& calls = calls_.at(peer);
    --calls.working;
    ++calls.sending;
  }

  // The answer is sent. REQUIRES: once after each call of Answered.
  void Give(const std::string& peer) {
    MutexLock lock(mutex_);
    const auto entry = calls_.find(peer);
    --entry->second.sending;
    if (entry->second.working + entry->second.sending == 0) calls_.erase(entry);
  }

  int max_inflight() const { return max_inflight_; }

 private:
  struct Calls {
    int working = 0;
    int sending = 0;
  };

  const int max_inflight_;
  Mutex mutex_;
  std::unordered_map<std::string, Calls> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace encoderd
