// heap.h — how the C library's heap treats the memory of calls, chosen for a server.
#pragma once

#include <functional>
#include <thread>

#include "server/batching/clock.h"
#include "server/mutex.h"

namespace encoderd {

// From this size on, an allocation is a mapping of its own that the kernel gets back when it is
// freed: answers, requests, scratch. glibc raises its threshold (128 KiB) to the largest such block
// freed so far, up to 32 MiB, and then keeps what a burst has taken: with 64 clients and answers of
// 0.1 to 4 MB a server of 55 MB kept 80 to 120 MB after two bursts, and keeps 60 to 65 MB with a
// threshold that stands. The price is a fault for every fresh page, 0.2 ms for each MB of an answer
// beside the 4 ms that gRPC takes to move it. 256 KiB: far above what protobuf and gRPC take in
// their everyday.
inline constexpr int kMappedBytes = 256 << 10;

// Call once, from main, before the first thread. Heaps of glibc's are one for each worker, one for
// each of the engine's helping threads, so that one which the kernel takes off its core never has
// the lock of a heap that a worker wants, and three for gRPC's threads and the main one; instead of
// eight for every core of the host whatever the quota: each keeps its own peak.
void SetHeapPolicy(int workers);

// Gives pages that are free within the heaps back to the kernel: gRPC keeps what it receives in
// pieces of a few KiB, and the last one of a heap holds all that is below it. Looks once a second;
// when the process has grown by kTrimmedGrowth since the last time and nothing is in flight, it
// trims the heaps, and again five times within the next half minute. A trim takes some
// milliseconds. 24 requests of 60 MiB left 512 MiB behind without it.
class HeapTrimmer {
 public:
  static constexpr double kTrimmedGrowth = 32 << 20;

  // `idle`: whether nothing is in flight; asked on a thread of its own. `clock` must outlive it.
  HeapTrimmer(Clock& clock, std::function<bool()> idle);
  ~HeapTrimmer();
  HeapTrimmer(const HeapTrimmer&) = delete;
  HeapTrimmer& operator=(const HeapTrimmer&) = delete;

 private:
  void Watch();

  Clock& clock_;
  const std::function<bool()> idle_;
  Mutex mutex_;
  CondVar stopped_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace encoderd
