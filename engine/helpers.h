// helpers.h — threads that lend idle cores to a running batch.
//
// Each of the engine's workers has a core of its own. While fewer batches run than there are
// workers, a batch opens its next blocks to helpers, and a helper may take the place of a worker
// that is idle and compute tiles of them. When a batch starts and finds all cores taken, a helper
// leaves before its next operation. Helpers sleep where there is nothing for them to do.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/block_phase.h"
#include "engine/block_runner.h"
#include "engine/model/spec.h"
#include "engine/weights.h"

namespace encoderd {

// Thread-safe.
class Helpers {
 public:
  // Starts workers - 1 threads. What it is given must outlive the helpers, and so must every phase
  // that is offered to them. Errors: kResourceExhausted, for memory and for threads.
  static absl::StatusOr<std::unique_ptr<Helpers>> Start(const EncoderSpec& spec,
                                                        const EncoderWeights& weights,
                                                        int64_t max_sequence_tokens, int workers);
  ~Helpers();

  // A batch begins, and ends, on its worker's core.
  void BatchBegins();
  void BatchEnds();

  // Workers without a batch: so many helpers may help. Those that are still on their way out of an
  // earlier phase count, since they come to the next.
  int IdleWorkers() const {
    return std::max(0, workers_ - batches_.load(std::memory_order_relaxed));
  }
  // Cores on which neither a batch nor a helper runs.
  int IdleCores() const { return std::max(0, workers_ - busy_.load(std::memory_order_relaxed)); }

  // Offers an open phase, one for each seat (phase_memory.h) at a time, and wakes as many helpers
  // as it has use for; a helper that is awake sees it before it sleeps. Withdraw takes it back.
  // Seats beyond the number of workers get no help.
  void Offer(int seat, BlockPhase& phase, int tiles);
  void Withdraw(int seat);

 private:
  explicit Helpers(int workers) : workers_(workers), offers_(static_cast<size_t>(workers)) {}

  void Work(BlockRunner& runner);
  void HelpWherePossible(BlockRunner& runner);
  bool TakeCore();   // for helping; false when all are taken
  bool YieldCore();  // gives a helper's core back if more are taken than there are

  const int workers_;
  std::atomic<int> batches_{0};                   // running
  std::atomic<int> busy_{0};                      // batches running and helpers helping
  std::vector<std::atomic<BlockPhase*>> offers_;  // by seat
  std::atomic<uint32_t> offered_{0};              // counts offers; helpers sleep on it
  std::atomic<bool> ending_{false};
  std::vector<std::unique_ptr<BlockRunner>> runners_;
  std::vector<std::thread> threads_;
};

}  // namespace encoderd
