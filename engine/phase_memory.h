// phase_memory.h — the memory that batches run in, made once for the whole engine.
//
// There is enough that nobody ever waits for any: a running batch has at most one layout, one open
// phase and two generations, and a helper that is still inside an old phase holds at most as much.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/block_phase.h"

namespace encoderd {

// Thread-safe.
class PhaseMemory {
 public:
  // Errors: kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<PhaseMemory>> Create(const PhaseShape& shape);

  // Bytes that each worker adds, and each helper.
  static int64_t BytesPerThread(const PhaseShape& shape);

  // A place for a worker, 0 and up, with memory for its batches; and the place given back. Errors:
  // kResourceExhausted.
  absl::StatusOr<int> Join();
  void Leave(int seat);

  // Free objects, those of the seat's own first: they are in its core's cache.
  PoolRef<BatchLayout> TakeLayout(int seat) { return PoolRef(Take(layouts_, seat, 1)); }
  PoolRef<Generation> TakeGeneration(int seat) { return PoolRef(Take(generations_, seat, 2)); }
  // The phase is free again after its Release.
  BlockPhase* TakePhase(int seat) { return Take(phases_, seat, 1); }

 private:
  template <typename T>
  using Objects = std::vector<std::unique_ptr<T>>;

  explicit PhaseMemory(const PhaseShape& shape) : shape_(shape) {}

  absl::Status AddThread();
  template <typename T>
  T* Take(const Objects<T>& objects, int seat, size_t per_thread);

  const PhaseShape shape_;
  std::mutex mutex_;  // guards the lists; never held by a helper
  Objects<BatchLayout> layouts_;
  Objects<BlockPhase> phases_;
  Objects<Generation> generations_;
  std::vector<bool> seats_;  // taken
};

}  // namespace encoderd
