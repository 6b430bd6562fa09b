// queue.h — the sequences that wait, by call, in two lines of two lanes each.
//
// Role:    the container of the scheduler, which keeps its bounds.
// Threads: none; the caller locks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/time/time.h"
#include "server/batching/call.h"
#include "server/batching/cost_model.h"
#include "server/batching/policy.h"

namespace encoderd {

class CallQueue {
 public:
  struct Rules {
    int workers = 1;
    int64_t max_batch_tokens = 512;  // a longer sequence runs alone
    bool predict_deadlines = true;
  };

  struct Batch {
    std::vector<Slot> slots;  // those of one call next to each other
    int64_t tokens = 0;
    // Met on the way and gone from the queue: the deadline has passed, or it will have when the
    // rest of the call could have been run at the earliest.
    std::vector<std::shared_ptr<Call>> expired;
    std::vector<std::shared_ptr<Call>> hopeless;
  };

  // `model` must outlive the queue.
  CallQueue(const Rules& rules, const CostModel& model) : rules_(rules), model_(model) {}

  // Puts all sequences of the call at the end of its line. `probe`: it is run even if predicted to
  // end too late. std::bad_alloc may leave a part of them here, for Remove to take out.
  void Add(std::shared_ptr<Call> call, bool probe = false);

  // Takes the call's sequences out, if there are any.
  void Remove(const Call& call);

  // Takes the next batch out, filled by the rules of policy.h; empty when nothing waits or all of
  // it was expired or hopeless.
  Batch Take(absl::Time now, int idle_workers);

  int64_t calls() const { return static_cast<int64_t>(places_.size()); }
  int64_t sequences() const { return sequences_; }
  int64_t tokens() const { return tokens_; }
  // Of what waits in the line of `priority`, as predicted now; each sequence with its share of a
  // full batch.
  absl::Duration Cost(Priority priority) const;
  // Of the calls at the front; InfiniteFuture when nothing waits.
  absl::Time OldestArrival() const;

 private:
  // A call's sequences of one lane.
  struct Waiting {
    std::shared_ptr<Call> call;
    uint64_t ticket = 0;  // in the order of Add
    bool probe = false;
    std::deque<size_t> sequences;  // not started, in order
    absl::Duration base;           // their cost before the correction
  };
  using Lane = std::list<Waiting>;
  struct Line {
    std::array<Lane, 2> lanes;  // kShort, kLong
    bool long_led_last = false;
    absl::Duration base;  // of all that waits here

    bool empty() const { return lanes[0].empty() && lanes[1].empty(); }
  };
  static constexpr size_t kShort = 0;
  static constexpr size_t kLong = 1;

  // A batch under way.
  struct Filling {
    absl::Time now;
    int idle_workers = 1;  // that which takes the batch included
    BatchLimits limits;
    Work work;
    int passed_over = 0;
    Batch batch;
  };

  Line& LineOf(const Call& call) { return lines_[static_cast<size_t>(call.info().priority)]; }
  size_t LaneOf(const SequenceInfo& sequence) const {
    return sequence.tokens > rules_.max_batch_tokens ? kLong : kShort;
  }

  // Adds to the batch from one lane; false once the batch is full.
  bool Fill(Lane& lane, Filling& filling);
  // Same for one call of it.
  bool FillFromCall(Waiting& waiting, Filling& filling);
  Verdict JudgeNext(const Waiting& waiting, const SequenceInfo& next, const Filling& filling) const;
  // True: the call has been taken out of the queue, because no answer to it would be in time.
  bool DropLate(const Waiting& waiting, Filling& filling);
  // The time that the call has, or infinite when deadlines are not predicted.
  absl::Duration TimeLeft(const Waiting& waiting, absl::Time now) const;
  void TakeOut(Waiting& waiting, const SequenceInfo& sequence);
  Lane::iterator EraseIfEmpty(Lane& lane, Lane::iterator place);

  const Rules rules_;
  const CostModel& model_;
  std::array<Line, 2> lines_;  // by Priority
  // Where each call waits: an iterator per lane, of which at least one is there.
  struct Places {
    std::array<std::optional<Lane::iterator>, 2> lanes;
  };
  std::unordered_map<const Call*, Places> places_;
  int64_t tokens_ = 0;
  int64_t sequences_ = 0;
  int64_t batches_since_bulk_ = 0;
  uint64_t next_ticket_ = 0;
};

}  // namespace encoderd
