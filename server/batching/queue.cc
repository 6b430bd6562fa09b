#include "server/batching/queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace encoderd {

void CallQueue::Add(std::shared_ptr<Call> call, bool probe) {
  const std::vector<SequenceInfo>& sequences = call->info().sequences;
  Line& line = LineOf(*call);
  Places& places = places_[call.get()];
  // What can throw comes before what is counted of it: Remove is exact wherever that ends.
  for (size_t i = 0; i < sequences.size(); ++i) {
    const size_t lane = LaneOf(sequences[i]);
    if (!places.lanes[lane].has_value()) {
      line.lanes[lane].push_back({.call = call, .ticket = next_ticket_, .probe = probe});
      places.lanes[lane] = std::prev(line.lanes[lane].end());
    }
    Waiting& waiting = **places.lanes[lane];
    const absl::Duration base = model_.BaseShare(sequences[i], rules_.max_batch_tokens);
    waiting.sequences.push_back(i);
    waiting.base += base;
    line.base += base;
    tokens_ += sequences[i].tokens;
    ++sequences_;
  }
  ++next_ticket_;
}

void CallQueue::Remove(const Call& call) {
  const auto places = places_.find(&call);
  if (places == places_.end()) return;
  Line& line = LineOf(call);
  for (size_t lane : {kShort, kLong}) {
    if (!places->second.lanes[lane].has_value()) continue;
    const Lane::iterator place = *places->second.lanes[lane];
    for (size_t i : place->sequences) tokens_ -= call.info().sequences[i].tokens;
    sequences_ -= static_cast<int64_t>(place->sequences.size());
    line.base -= place->base;
    line.lanes[lane].erase(place);
  }
  places_.erase(places);
}

CallQueue::Batch CallQueue::Take(absl::Time now, int idle_workers) {
  Line& interactive = lines_[static_cast<size_t>(Priority::kInteractive)];
  Line& bulk = lines_[static_cast<size_t>(Priority::kBulk)];
  if (sequences_ == 0) return {};
  const bool bulk_waits = !bulk.empty();
  const bool bulk_leads =
      LeadingLine(!interactive.empty(), bulk_waits, batches_since_bulk_) == Priority::kBulk;
  Line& lead = bulk_leads ? bulk : interactive;
  Line& other = bulk_leads ? interactive : bulk;
  const bool long_leads =
      LongLeads(!lead.lanes[kShort].empty(), !lead.lanes[kLong].empty(),
                !lead.lanes[kShort].empty() && !lead.lanes[kLong].empty() &&
                    lead.lanes[kLong].front().ticket < lead.lanes[kShort].front().ticket,
                lead.long_led_last);

  Filling filling = {
      .now = now,
      .idle_workers = idle_workers,
      .limits = {
          .tokens = BatchBudget(rules_.max_batch_tokens, tokens_, idle_workers),
          .cost = kMaxBatchCost * model_.Predict(model_.BaseOfFullBatch(rules_.max_batch_tokens))}};
  // What the leading lane leaves free others may fill. Long sequences fit into nothing; they come
  // into question where all that were to lead had expired.
  const size_t first = long_leads ? kLong : kShort;
  for (auto [line, lane] : {std::pair(&lead, first), std::pair(&lead, 1 - first),
                            std::pair(&other, kShort), std::pair(&other, kLong)}) {
    if (lane == kLong && !filling.batch.slots.empty()) continue;
    if (!Fill(line->lanes[lane], filling)) break;
  }

  // A turn counts only when work was taken, and bulk's only while bulk waits for its own.
  if (!filling.batch.slots.empty()) {
    const Slot& leader = filling.batch.slots.front();
    LineOf(*leader.call).long_led_last = LaneOf(leader.info()) == kLong;
    const bool bulk_led = leader.call->info().priority == Priority::kBulk;
    batches_since_bulk_ = bulk_waits && !bulk_led ? batches_since_bulk_ + 1 : 0;
  }
  return std::move(filling.batch);
}

bool CallQueue::Fill(Lane& lane, Filling& filling) {
  for (auto place = lane.begin(); place != lane.end();) {
    // Full: nobody is looked at any more, nor dropped, least of all a call that is in the batch.
    // That is met again in its other lane only, and a batch with a long sequence is full.
    if (filling.batch.tokens >= filling.limits.tokens) return false;
    Waiting& waiting = *place;
    const auto next = std::next(place);
    if (DropLate(waiting, filling)) {
      place = next;
      continue;
    }
    const bool room = FillFromCall(waiting, filling);
    place = EraseIfEmpty(lane, place);
    if (!room) return false;
  }
  return true;
}

bool CallQueue::DropLate(const Waiting& waiting, Filling& filling) {
  const absl::Time deadline = waiting.call->info().deadline;
  const SequenceInfo& next = waiting.call->info().sequences[waiting.sequences.front()];
  const absl::Duration longest =
      model_.Base(WorkOf(next)) / SharingCores(next.tokens, filling.idle_workers);
  const absl::Duration least = model_.Predict(LeastTime(waiting.base, longest, rules_.workers));
  const bool expired = deadline <= filling.now;
  if (!expired && least <= TimeLeft(waiting, filling.now)) return false;
  const std::shared_ptr<Call> call = waiting.call;
  (expired ? filling.batch.expired : filling.batch.hopeless).push_back(call);
  Remove(*call);
  return true;
}

absl::Duration CallQueue::TimeLeft(const Waiting& waiting, absl::Time now) const {
  if (!rules_.predict_deadlines || waiting.probe) return absl::InfiniteDuration();
  return waiting.call->info().deadline - now;
}

bool CallQueue::FillFromCall(Waiting& waiting, Filling& filling) {
  Batch& batch = filling.batch;
  for (auto next = waiting.sequences.begin(); next != waiting.sequences.end();) {
    const SequenceInfo& sequence = waiting.call->info().sequences[*next];
    switch (JudgeNext(waiting, sequence, filling)) {
      case Verdict::kFull:
        return false;
      case Verdict::kPassOver:
        ++filling.passed_over;
        ++next;
        break;
      case Verdict::kTake:
        filling.work += WorkOf(sequence);
        filling.limits.time_left =
            std::min(filling.limits.time_left, TimeLeft(waiting, filling.now));
        batch.slots.push_back({.call = waiting.call, .sequence = *next, .status = {}});
        batch.tokens += sequence.tokens;
        TakeOut(waiting, sequence);
        next = waiting.sequences.erase(next);
        break;
    }
  }
  return true;
}

Verdict CallQueue::JudgeNext(const Waiting& waiting, const SequenceInfo& next,
                             const Filling& filling) const {
  const BatchSize batch = {.sequences = static_cast<int64_t>(filling.batch.slots.size()),
                           .tokens = filling.batch.tokens,
                           .cost = model_.Predict(model_.Base(filling.work))};
  Work joined = filling.work;
  joined += WorkOf(next);
  return Judge(batch,
               {.sequences = batch.sequences + 1,
                .tokens = batch.tokens + next.tokens,
                .cost = model_.Predict(model_.Base(joined))},
               filling.limits, TimeLeft(waiting, filling.now), filling.passed_over);
}

void CallQueue::TakeOut(Waiting& waiting, const SequenceInfo& sequence) {
  const absl::Duration base = model_.BaseShare(sequence, rules_.max_batch_tokens);
  waiting.base -= base;
  LineOf(*waiting.call).base -= base;
  tokens_ -= sequence.tokens;
  --sequences_;
}

CallQueue::Lane::iterator CallQueue::EraseIfEmpty(Lane& lane, Lane::iterator place) {
  if (!place->sequences.empty()) return std::next(place);
  const auto places = places_.find(place->call.get());
  places->second.lanes[&lane == &LineOf(*place->call).lanes[kLong] ? kLong : kShort].reset();
  if (!places->second.lanes[kShort].has_value() && !places->second.lanes[kLong].has_value()) {
    places_.erase(places);
  }
  return lane.erase(place);
}

absl::Duration CallQueue::Cost(Priority priority) const {
  return model_.Predict(lines_[static_cast<size_t>(priority)].base);
}

absl::Time CallQueue::OldestArrival() const {
  absl::Time oldest = absl::InfiniteFuture();
  for (const Line& line : lines_) {
    for (const Lane& lane : line.lanes) {
      if (!lane.empty()) oldest = std::min(oldest, lane.front().call->info().arrival);
    }
  }
  return oldest;
}

}  // namespace encoderd
