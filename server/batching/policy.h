// policy.h — what goes into the next batch, and what is not begun at all: pure functions of a few
// numbers.
//
// Role:    the whole scheduling policy, for queue.cc and scheduler.cc to apply; no containers of
//          calls, no locks, no clock. All costs are predicted times (cost_model.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "server/batching/call.h"

namespace encoderd {

// ---- Who leads a batch --------------------------------------------------------------------------

// While bulk waits it leads one batch in so many: a quarter of the workers' turns when both lines
// are busy, all of them when interactive is quiet.
inline constexpr int kBulkTurn = 4;

// Which line gives the first sequence of the next batch. `batches_since_bulk`: batches that
// interactive has led since bulk last led one, or since bulk began to wait.
// REQUIRES: at least one of the lines is waiting.
constexpr Priority LeadingLine(bool interactive_waiting, bool bulk_waiting,
                               int64_t batches_since_bulk) {
  if (!bulk_waiting) return Priority::kInteractive;
  if (!interactive_waiting || batches_since_bulk >= kBulkTurn - 1) return Priority::kBulk;
  return Priority::kInteractive;
}

// Whether a line is led by the oldest of its long sequences, those longer than a batch, rather than
// by the oldest of the others. The older of the two leads, except that a long one never leads two
// batches of the line in a row while a short one waits.
// REQUIRES: at least one of the two is waiting.
constexpr bool LongLeads(bool short_waiting, bool long_waiting, bool long_is_older,
                         bool long_led_last) {
  if (!short_waiting || !long_waiting) return long_waiting;
  return long_is_older && !long_led_last;
}

// ---- What joins it ------------------------------------------------------------------------------

// A batch may pass over so many sequences that do not fit, to fill up with later ones: enough to
// fill it from ordinary traffic, few enough that looking costs nothing beside running.
inline constexpr int kMaxPassedOver = 32;

// Work is spread over idle workers as long as each gets this many tokens: from there on a matmul
// runs within 15 % of its best rate, below it weights are read from memory for too few rows.
inline constexpr int64_t kMinSharedTokens = 64;

// Tokens to aim at: a fair share of what waits for each idle worker (this one included), so that a
// lone call uses them all.
constexpr int64_t BatchBudget(int64_t max_batch_tokens, int64_t tokens_waiting, int idle_workers) {
  int64_t share = (tokens_waiting + idle_workers - 1) / idle_workers;
  if (share < kMinSharedTokens) share = kMinSharedTokens;
  return share < max_batch_tokens ? share : max_batch_tokens;
}

// A batch may cost so much more than a full one of typical sequences (cost_model.h) that ask for
// nothing but small answers. What exceeds it are long sequences, by their Σ S², and large answers.
inline constexpr double kMaxBatchCost = 1.5;

// A batch while it is filled, and as it would be with one sequence more.
struct BatchSize {
  int64_t sequences = 0;
  int64_t tokens = 0;
  absl::Duration cost;
};

struct BatchLimits {
  int64_t tokens = 0;
  // kMaxBatchCost of a full batch: caps Σ S², as well as what else costs time.
  absl::Duration cost;
  // Until the first deadline of those in the batch.
  absl::Duration time_left = absl::InfiniteDuration();
};

enum class Verdict { kTake, kPassOver, kFull };

// Whether the next sequence of the line joins. `time_left`: until its own deadline. The first
// always does, however long: so the oldest is never passed over, and one longer than the budget
// runs alone.
inline Verdict Judge(const BatchSize& batch, const BatchSize& joined, const BatchLimits& limits,
                     absl::Duration time_left, int passed_over) {
  if (batch.sequences == 0) return Verdict::kTake;
  if (batch.tokens >= limits.tokens || batch.cost >= limits.cost) return Verdict::kFull;
  const bool fits = joined.tokens <= limits.tokens && joined.cost <= limits.cost;
  // Nobody's answer is made late by company; who would come late in this batch may lead another.
  const bool in_time = joined.cost <= std::min(limits.time_left, time_left);
  if (fits && in_time) return Verdict::kTake;
  return passed_over < kMaxPassedOver ? Verdict::kPassOver : Verdict::kFull;
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

// ---- What is not begun --------------------------------------------------------------------------

// What is run before a call that is added now to the line of `priority`. Interactive: its own line,
// and bulk's turns meanwhile. Bulk: everything; interactive calls that come later are not foreseen.
inline absl::Duration WorkAhead(Priority priority, absl::Duration interactive,
                                absl::Duration bulk) {
  if (priority == Priority::kBulk) return interactive + bulk;
  return interactive + std::min(bulk, interactive / (kBulkTurn - 1));
}

// How long until a worker is free for new work, when `ahead` has to be run before it. `running`:
// what each worker still has to run, zero for idle ones; at least one worker. The work ahead fills
// the workers up like water: exact while no piece of it is longer than the result.
inline absl::Duration TimeUntilFree(std::vector<absl::Duration> running, absl::Duration ahead) {
  std::ranges::sort(running);
  absl::Duration level = running.front();
  for (size_t workers = 1; workers < running.size(); ++workers) {
    const absl::Duration step = (running[workers] - level) * workers;  // up to the next worker
    if (step >= ahead) return level + ahead / static_cast<int64_t>(workers);
    ahead -= step;
    level = running[workers];
  }
  return level + ahead / static_cast<int64_t>(running.size());
}

// Cores that a worker and those idle beside it bring to one piece of work: idle cores take rows of
// what a worker runs, as long as each gets kMinSharedTokens of them.
constexpr int SharingCores(int64_t tokens, int cores) {
  return static_cast<int>(std::clamp<int64_t>(tokens / kMinSharedTokens, 1, cores));
}

// The least time that a call takes: `whole` spread over the workers, but no less than `longest`,
// the longest piece.
inline absl::Duration LeastTime(absl::Duration whole, absl::Duration longest, int workers) {
  return std::max(longest, whole / workers);
}

// A wait is taken for so much longer when a deadline hangs on it: batches take longer and shorter
// than predicted, and a call that ends a little late has cost as much as one that ends in time.
inline constexpr double kWaitMargin = 1.2;

enum class Prospect { kInTime, kNotBehindThisQueue, kHopeless };

// What becomes of a call that has `left` until its deadline, would take `least` on an idle server
// and takes `own` on this one, behind a wait of `wait`. Behind a queue it shares its batch with
// others: up to `full_batch`, as far as there is so much to share with. (Without that, short calls
// would fill the queue up to a height at which long ones are refused.)
inline Prospect ProspectOf(absl::Duration left, absl::Duration least, absl::Duration own,
                           absl::Duration wait, absl::Duration full_batch) {
  if (least > left) return Prospect::kHopeless;
  const absl::Duration shared = std::max(own, std::min(wait, full_batch));
  return wait * kWaitMargin > left - shared ? Prospect::kNotBehindThisQueue : Prospect::kInTime;
}

// A prediction that is far too high must not refuse everything for ever: when nothing has been
// measured for this long while calls were refused as hopeless, an idle server runs one and sees.
inline constexpr absl::Duration kProbeAfter = absl::Milliseconds(500);

}  // namespace encoderd
