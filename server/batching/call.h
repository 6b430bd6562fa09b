// call.h — a call as batching sees it: how much work it is, until when, and whom to tell its end.
//
// Role: the words that the parts of server/batching and their users share; no decisions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace encoderd {

enum class Priority { kInteractive = 0, kBulk = 1 };

// One sequence, by what its cost depends on.
struct SequenceInfo {
  int64_t tokens = 0;  // at least 1
  // What runs of the model's blocks, as a share of all of them; heads add the blocks that would
  // take as long.
  double blocks = 1;
  int64_t answer_bytes = 0;
};

// What the batcher knows of a call.
struct CallInfo {
  std::vector<SequenceInfo> sequences;  // at least one
  Priority priority = Priority::kInteractive;
  absl::Time arrival;                            // by the batcher's clock, as is `deadline`
  absl::Time deadline = absl::InfiniteFuture();  // nobody waits for the answer from then on

  // A call whose answer is produced in steps is a call for each step, submitted when the one before
  // it has ended. The first says what all of them are, so that it is refused if that cannot be done
  // in time; the others are continuations, which the queue's limits and a drain do not refuse.
  std::vector<SequenceInfo> all_steps;  // empty: `sequences`
  bool continuation = false;
};

struct CallTiming {
  absl::Duration queue;      // arrival to the start of the first batch; to the end if none started
  absl::Duration compute;    // start of the first batch to the end of the last
  int64_t batches = 0;       // that the call was spread over
  int64_t batch_tokens = 0;  // of the largest of them
};

// One call, shared between its owner and the batcher.
class Call {
 public:
  virtual ~Call() = default;

  // Constant from Submit on.
  virtual const CallInfo& info() const = 0;

  // The end of an accepted call: comes exactly once, from any thread, never under the batcher's
  // lock, and possibly before Submit has returned. It may call back into the batcher except for
  // Drain and Stop, and must not block: a worker waits for it.
  // After an error a worker may still be writing into what the call owns, until the last reference
  // to the call is gone; after OK none is.
  //   OK                 every sequence has run
  //   kInternal          the engine failed for this call, alone too
  //   a slot's own error what the runner said of one of the call's sequences (the first such)
  //   kDeadlineExceeded  the deadline passed before the call was answered, or what is left of it
  //                      cannot be run until then
  //   kUnavailable       the batcher stopped first
  //   Cancel's status
  virtual void Finish(absl::Status status, const CallTiming& timing) = 0;
};

// One sequence of a batch.
struct Slot {
  std::shared_ptr<Call> call;
  size_t sequence = 0;  // index into call->info().sequences
  absl::Status status;  // set by Run: an error ends this slot's call and no other

  const SequenceInfo& info() const { return call->info().sequences[sequence]; }
};

inline int64_t TokensOf(std::span<const Slot> slots) {
  int64_t tokens = 0;
  for (const Slot& slot : slots) tokens += slot.info().tokens;
  return tokens;
}

}  // namespace encoderd
