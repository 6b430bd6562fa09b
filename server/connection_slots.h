// connection_slots.h — what each connection has in flight.
//
// Role:  so that one bulk sender cannot own the queue, nor one slow reader the memory for answers.
//        A connection is what gRPC calls its peer ("ipv4:127.0.0.1:40312").
//
// A call works until it is answered, and then counts by the bytes it holds until gRPC says that the
// answer is sent. That may be long after the caller has read it, on a busy machine: a caller that
// sends its next small call meanwhile must not be refused for it. A stream works for as long as its
// reader takes, and so counts by its bytes from its beginning. How many answers may be under way is
// bounded by gRPC's limit of streams per connection.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "server/mutex.h"

namespace encoderd {

// Thread-safe. Its size is that of the calls in flight.
class ConnectionSlots {
 public:
  ConnectionSlots(int max_working, int64_t max_unread_bytes)
      : max_working_(max_working), max_unread_bytes_(max_unread_bytes) {}

  // False, and nothing taken, when the connection has max_working calls at work, or answers and
  // streams of max_unread_bytes or more on their way.
  bool Take(const std::string& peer) {
    MutexLock lock(mutex_);
    Calls& calls = calls_[peer];
    if (calls.working >= max_working_ || calls.unread_bytes >= max_unread_bytes_) return false;
    ++calls.working;
    return true;
  }

  // A call at work is a stream, and holds so many bytes until it is sent. False, and nothing taken,
  // when that makes more than max_unread_bytes with what the connection holds; one alone may be
  // larger. REQUIRES: between Take and Answered.
  bool Hold(const std::string& peer, int64_t bytes) {
    MutexLock lock(mutex_);
    int64_t& held = calls_.at(peer).unread_bytes;
    if (held > 0 && bytes > max_unread_bytes_ - held) return false;
    held += bytes;
    return true;
  }

  // The call is answered and holds so many bytes beside those of Hold. REQUIRES: Take returned true
  // for this peer, once for each call of this.
  void Answered(const std::string& peer, int64_t bytes) {
    MutexLock lock(mutex_);
    Calls& calls = calls_.at(peer);
    --calls.working;
    ++calls.sending;
    calls.unread_bytes += bytes;
  }

  // The answer is sent. REQUIRES: once after each call of Answered, with the bytes of that and of
  // Hold.
  void Give(const std::string& peer, int64_t bytes) {
    MutexLock lock(mutex_);
    const auto entry = calls_.find(peer);
    --entry->second.sending;
    entry->second.unread_bytes -= bytes;
    if (entry->second.working + entry->second.sending == 0) calls_.erase(entry);
  }

  int max_working() const { return max_working_; }
  int64_t max_unread_bytes() const { return max_unread_bytes_; }

 private:
  struct Calls {
    int working = 0;
    int sending = 0;
    int64_t unread_bytes = 0;
  };

  const int max_working_;
  const int64_t max_unread_bytes_;
  Mutex mutex_;
  std::unordered_map<std::string, Calls> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace encoderd
