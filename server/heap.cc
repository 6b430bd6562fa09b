#include "server/heap.h"

#include <malloc.h>

#include <utility>

#include "absl/time/time.h"
#include "server/process_stats.h"

namespace encoderd {
namespace {

// Calls that gRPC has not ended yet still hold what the first trim of a series finds in use.
constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLastPause = absl::Seconds(16);

}  // namespace

void SetHeapPolicy(int workers) {
  // Either threshold, once set, stands still.
  mallopt(M_MMAP_THRESHOLD, kMappedBytes);
  mallopt(M_TRIM_THRESHOLD, kMappedBytes);
  mallopt(M_ARENA_MAX, 2 * workers + 2);
}

HeapTrimmer::HeapTrimmer(Clock& clock, std::function<bool()> idle)
    : clock_(clock), idle_(std::move(idle)), thread_([this] { Watch(); }) {}

HeapTrimmer::~HeapTrimmer() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  stopped_.NotifyAll();
  thread_.join();
}

void HeapTrimmer::Watch() {
  const auto resident = [] { return ReadProcessStats().value_or(ProcessStats{}).resident_bytes; };
  double trimmed = resident();
  absl::Time next = absl::InfiniteFuture();  // trim of a series
  absl::Duration pause;                      // before the one after that
  MutexLock lock(mutex_);
  while (!stop_) {
    const absl::Time now = clock_.Now();
    if (resident() > trimmed + kTrimmedGrowth) {
      next = now;
      pause = kFirstPause;
    }
    if (now >= next && idle_()) {
      malloc_trim(0);
      trimmed = resident();
      next = pause <= kLastPause ? now + pause : absl::InfiniteFuture();
      pause *= 2;
    }
    clock_.WaitUntil(stopped_, mutex_, now + absl::Seconds(1));
  }
}

}  // namespace encoderd
