// policy.h — what goes into the next batch: pure functions of a few numbers.
//
// Role:    the whole scheduling policy, for queue.cc and batcher.cc to apply; no containers, no
//          locks, no clock.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "server/batching/batcher.h"

namespace encoderd {

// While bulk waits it leads one batch in so many: a quarter of the workers' turns when both lines
// are busy, all of them when interactive is quiet.
inline constexpr int kBulkTurn = 4;

// A batch may pass over so many sequences that no longer fit, to fill up with later ones: enough to
// fill it from ordinary traffic, few enough that looking costs nothing beside running.
inline constexpr int kMaxPassedOver = 32;

// Work is spread over idle workers as long as each gets this many tokens: from there on a matmul
// runs within 15 % of its best rate, below it weights are read from memory for too few rows.
inline constexpr int64_t kMinSharedTokens = 64;

// Which line gives the first sequence of the next batch. `batches_since_bulk`: batches that
// interactive has led since bulk last led one, or since bulk began to wait.
// REQUIRES: at least one of the lines is waiting.
constexpr Priority LeadingLine(bool interactive_waiting, bool bulk_waiting,
                               int64_t batches_since_bulk) {
  if (!bulk_waiting) return Priority::kInteractive;
  if (!interactive_waiting || batches_since_bulk >= kBulkTurn - 1) return Priority::kBulk;
  return Priority::kInteractive;
}

// Tokens to aim at: a fair share of what waits for each idle worker (this one included), so that a
// lone call uses them all.
constexpr int64_t BatchBudget(int64_t max_batch_tokens, int64_t tokens_waiting, int idle_workers) {
  int64_t share = (tokens_waiting + idle_workers - 1) / idle_workers;
  if (share < kMinSharedTokens) share = kMinSharedTokens;
  return share < max_batch_tokens ? share : max_batch_tokens;
}

// A batch while it is filled.
struct BatchSoFar {
  int64_t sequences = 0;
  int64_t tokens = 0;
  int passed_over = 0;
};

enum class Verdict { kTake, kPassOver, kFull };

// Whether the next sequence of the line joins. The first always does, however long: so the oldest
// of a line is never passed over, and one longer than the budget runs alone.
constexpr Verdict Judge(const BatchSoFar& batch, int64_t tokens, int64_t budget) {
  if (batch.sequences == 0) return Verdict::kTake;
  if (batch.tokens >= budget) return Verdict::kFull;
  if (batch.tokens + tokens <= budget) return Verdict::kTake;
  return batch.passed_over < kMaxPassedOver ? Verdict::kPassOver : Verdict::kFull;
}

// When a free worker starts: at once if a full batch waits or nothing may be held back, else when
// the oldest call has waited for max_batch_wait.
inline absl::Time StartTime(int64_t tokens_waiting, absl::Time oldest_arrival,
                            int64_t max_batch_tokens, absl::Duration max_batch_wait) {
  if (tokens_waiting >= max_batch_tokens || max_batch_wait <= absl::ZeroDuration()) {
    return absl::InfinitePast();
  }
  return oldest_arrival + max_batch_wait;
}

}  // namespace encoderd
