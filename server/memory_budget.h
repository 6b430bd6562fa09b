// memory_budget.h — the memory that all calls together may hold.
//
// Role:  so that neither a queue of large requests nor readers who do not take their answers can
//        fill memory. A call holds its request, as received and as parsed, and its answer, from
//        before the answer is allocated until gRPC and the workers have both let go of it.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "server/batching/clock.h"
#include "server/mutex.h"

namespace encoderd {

// Of one EncodeRequest.
inline constexpr int64_t kMaxRequestBytes = int64_t{64} << 20;

// What one call holds: gRPC keeps the request's bytes beside what was parsed from them.
constexpr int64_t CallBytes(int64_t request_bytes, int64_t answer_bytes) {
  return 2 * request_bytes + answer_bytes;
}

// Thread-safe.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // False, and nothing taken, when less than `bytes` is left.
  bool Take(int64_t bytes) {
    MutexLock lock(mutex_);
    if (bytes > max_bytes_ - taken_) return false;
    taken_ += bytes;
    return true;
  }

  // REQUIRES: taken before.
  void Give(int64_t bytes) {
    MutexLock lock(mutex_);
    taken_ -= bytes;
    if (taken_ == 0) all_given_.NotifyAll();
  }

  // Waits until everything is given back, at most until `deadline` of the clock. False: it is not.
  bool AwaitAllGiven(Clock& clock, absl::Time deadline) {
    MutexLock lock(mutex_);
    while (taken_ > 0 && clock.Now() < deadline) clock.WaitUntil(all_given_, mutex_, deadline);
    return taken_ == 0;
  }

  int64_t taken() const {
    MutexLock lock(mutex_);
    return taken_;
  }
  int64_t max_bytes() const { return max_bytes_; }

 private:
  const int64_t max_bytes_;
  mutable Mutex mutex_;
  CondVar all_given_;
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace encoderd
