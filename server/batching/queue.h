// queue.h — the sequences that wait, by call, in two lines.
//
// Role:    the container of the batcher, which locks around it and keeps its bounds.
// Threads: none; the caller locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "server/batching/batcher.h"

namespace encoderd {

class CallQueue {
 public:
  struct Batch {
    std::vector<Slot> slots;  // those of one call next to each other
    int64_t tokens = 0;
    std::vector<std::shared_ptr<Call>> expired;  // met on the way with a deadline before now; gone
  };

  // Puts all sequences of the call at the end of its line.
  void Add(std::shared_ptr<Call> call);

  // Takes the call's sequences out, if there are any.
  void Remove(const Call& call);

  // Takes the next batch out, filled by the rules of policy.h; empty when nothing waits or all of
  // it had expired.
  Batch Take(absl::Time now, int64_t max_batch_tokens, int idle_workers);

  int64_t calls() const { return static_cast<int64_t>(places_.size()); }
  int64_t sequences() const { return sequences_; }
  int64_t tokens() const { return tokens_[0] + tokens_[1]; }
  // Tokens that are run before a call that is added now to the line of `priority`. Bulk's turns are
  // left out of the interactive line's: they change it by less than the rate is known.
  int64_t TokensAhead(Priority priority) const;
  // Of the calls at the front; InfiniteFuture when nothing waits.
  absl::Time OldestArrival() const;

 private:
  struct Waiting {
    std::shared_ptr<Call> call;
    std::deque<size_t> sequences;  // not started, in order
  };
  using Line = std::list<Waiting>;

  static size_t LineOf(const Call& call) { return static_cast<size_t>(call.info().priority); }

  // Adds to the batch from one line; false once the batch is full.
  bool Fill(size_t line, absl::Time now, int64_t budget, int& passed_over, Batch& batch);
  // Same for one call of it.
  bool FillFromCall(Waiting& waiting, int64_t budget, int& passed_over, Batch& batch);
  Line::iterator Erase(Line::iterator place);

  std::array<Line, 2> lines_;
  std::unordered_map<const Call*, Line::iterator> places_;
  std::array<int64_t, 2> tokens_ = {0, 0};
  int64_t sequences_ = 0;
  int64_t batches_since_bulk_ = 0;
};

}  // namespace encoderd
