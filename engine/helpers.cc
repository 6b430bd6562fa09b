#include "engine/helpers.h"

#include <algorithm>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/ops/runtime.h"
#include "engine/status_macros.h"

namespace encoderd {

absl::StatusOr<std::unique_ptr<Helpers>> Helpers::Start(const EncoderSpec& spec,
                                                        const EncoderWeights& weights,
                                                        int64_t max_sequence_tokens, int workers) {
  std::unique_ptr<Helpers> helpers(new Helpers(workers));
  for (int i = 1; i < workers; ++i) {
    ASSIGN_OR_RETURN(helpers->runners_.emplace_back(),
                     BlockRunner::Create(spec, weights, max_sequence_tokens));
  }
  helpers->threads_.reserve(helpers->runners_.size());
  for (const auto& runner : helpers->runners_) {
    try {
      helpers->threads_.emplace_back([&helpers = *helpers, &runner = *runner] {
        ops::EnterNumericEnvironment();
        helpers.Work(runner);
      });
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          absl::StrCat("engine: expected to start ", workers - 1, " threads beside ", workers,
                       " workers, got ", helpers->threads_.size(), " (", error.what(),
                       "); allow more threads (pids.max, ulimit -u) or set fewer workers"));
    }
  }
  return helpers;
}

Helpers::~Helpers() {
  ending_ = true;
  offered_.fetch_add(1);
  offered_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Helpers::BatchBegins() {
  batches_.fetch_add(1);
  busy_.fetch_add(1);
}

void Helpers::BatchEnds() {
  busy_.fetch_sub(1);
  batches_.fetch_sub(1);
}

void Helpers::Offer(int seat, BlockPhase& phase, int tiles) {
  if (seat >= workers_) return;
  offers_[static_cast<size_t>(seat)].store(&phase, std::memory_order_release);
  offered_.fetch_add(1);
  const int wanted = std::min({IdleCores(), tiles - 1, PhaseShape::kMaxHelpersOfPhase});
  for (int i = 0; i < wanted; ++i) offered_.notify_one();
}

void Helpers::Withdraw(int seat) {
  if (seat >= workers_) return;
  offers_[static_cast<size_t>(seat)].store(nullptr, std::memory_order_relaxed);
}

void Helpers::Work(BlockRunner& runner) {
  while (true) {
    const uint32_t seen = offered_.load();
    if (ending_) return;
    HelpWherePossible(runner);
    offered_.wait(seen);
  }
}

void Helpers::HelpWherePossible(BlockRunner& runner) {
  for (std::atomic<BlockPhase*>& offer : offers_) {
    // Phases outlive the helpers. One that has been withdrawn since is closed, or open again and
    // shared again.
    BlockPhase* const phase = offer.load(std::memory_order_acquire);
    if (phase == nullptr) continue;
    if (!TakeCore()) return;
    bool yielded = false;
    if (phase->tiles.Enter()) {
      phase->tiles.Help(
          [&](int tile, TilePhase::Copy, absl::FunctionRef<bool()> stop) {
            return runner.Run(*phase, tile, phase->first[static_cast<size_t>(tile)], stop);
          },
          [&] { return yielded = yielded || YieldCore(); });
      if (phase->tiles.Leave()) phase->Release();
    }
    if (!yielded) busy_.fetch_sub(1);
  }
}

bool Helpers::TakeCore() {
  int busy = busy_.load();
  while (busy < workers_) {
    if (busy_.compare_exchange_weak(busy, busy + 1)) return true;
  }
  return false;
}

bool Helpers::YieldCore() {
  int busy = busy_.load();
  while (busy > workers_) {
    if (busy_.compare_exchange_weak(busy, busy - 1)) return true;
  }
  return false;
}

}  // namespace encoderd
