#include "server/batching/queue.h"

#include <algorithm>
#include <utility>

#include "server/batching/policy.h"

namespace encoderd {

void CallQueue::Add(std::shared_ptr<Call> call) {
  const CallInfo& info = call->info();
  const size_t line = LineOf(*call);
  const Call* key = call.get();
  Waiting waiting{.call = std::move(call), .sequences = {}};
  for (size_t i = 0; i < info.tokens.size(); ++i) {
    waiting.sequences.push_back(i);
    tokens_[line] += info.tokens[i];
  }
  sequences_ += static_cast<int64_t>(info.tokens.size());
  lines_[line].push_back(std::move(waiting));
  places_[key] = std::prev(lines_[line].end());
}

void CallQueue::Remove(const Call& call) {
  if (auto place = places_.find(&call); place != places_.end()) Erase(place->second);
}

CallQueue::Line::iterator CallQueue::Erase(Line::iterator place) {
  const Call& call = *place->call;
  for (size_t i : place->sequences) tokens_[LineOf(call)] -= call.info().tokens[i];
  sequences_ -= static_cast<int64_t>(place->sequences.size());
  places_.erase(&call);
  return lines_[LineOf(call)].erase(place);
}

CallQueue::Batch CallQueue::Take(absl::Time now, int64_t max_batch_tokens, int idle_workers) {
  constexpr size_t kInteractive = static_cast<size_t>(Priority::kInteractive);
  constexpr size_t kBulk = static_cast<size_t>(Priority::kBulk);
  const bool bulk_waiting = !lines_[kBulk].empty();
  const size_t lead = static_cast<size_t>(
      LeadingLine(!lines_[kInteractive].empty(), bulk_waiting, batches_since_bulk_));
  const int64_t budget = BatchBudget(max_batch_tokens, tokens(), idle_workers);

  // What the leading line leaves free the other one may fill.
  Batch batch;
  int passed_over = 0;
  if (Fill(lead, now, budget, passed_over, batch)) {
    Fill(1 - lead, now, budget, passed_over, batch);
  }

  // A turn counts only when work was taken, and only while bulk waits for its own.
  if (!batch.slots.empty()) {
    batches_since_bulk_ = bulk_waiting && lead == kInteractive ? batches_since_bulk_ + 1 : 0;
  }
  return batch;
}

bool CallQueue::Fill(size_t line, absl::Time now, int64_t budget, int& passed_over, Batch& batch) {
  for (auto place = lines_[line].begin(); place != lines_[line].end();) {
    if (place->call->info().deadline <= now) {
      batch.expired.push_back(place->call);
      place = Erase(place);
      continue;
    }
    const bool room = FillFromCall(*place, budget, passed_over, batch);
    place = place->sequences.empty() ? Erase(place) : std::next(place);
    if (!room) return false;
  }
  return true;
}

bool CallQueue::FillFromCall(Waiting& waiting, int64_t budget, int& passed_over, Batch& batch) {
  for (auto next = waiting.sequences.begin(); next != waiting.sequences.end();) {
    const int64_t tokens = waiting.call->info().tokens[*next];
    const BatchSoFar so_far = {.sequences = static_cast<int64_t>(batch.slots.size()),
                               .tokens = batch.tokens,
                               .passed_over = passed_over};
    switch (Judge(so_far, tokens, budget)) {
      case Verdict::kFull:
        return false;
      case Verdict::kPassOver:
        ++passed_over;
        ++next;
        break;
      case Verdict::kTake:
        batch.slots.push_back({.call = waiting.call, .sequence = *next, .status = {}});
        batch.tokens += tokens;
        tokens_[LineOf(*waiting.call)] -= tokens;
        --sequences_;
        next = waiting.sequences.erase(next);
        break;
    }
  }
  return true;
}

int64_t CallQueue::TokensAhead(Priority priority) const {
  return priority == Priority::kInteractive ? tokens_[static_cast<size_t>(priority)] : tokens();
}

absl::Time CallQueue::OldestArrival() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const Line& line : lines_) {
    if (!line.empty()) oldest = std::min(oldest, line.front().call->info().arrival);
  }
  return oldest;
}

}  // namespace encoderd
