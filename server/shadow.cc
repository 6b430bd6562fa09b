#include "server/shadow.h"

#include <pthread.h>
#include <sched.h>

#include <new>
#include <utility>

#include "absl/log/log.h"
#include "engine/ops/mask.h"
#include "engine/status_macros.h"
#include "engine/accuracy.h"

namespace encoderd {
namespace {

// Between two looks for an idle worker.
constexpr absl::Duration kLook = absl::Milliseconds(10);

// Vigna's splitmix64: neighbouring numbers become independent ones.
uint64_t Mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// From now on the thread runs only where nobody else wants to. Where that is not allowed it is one
// thread like any other, which the looks for idle workers still hold back.
void RunOnSpareTimeOnly() {
  const sched_param none = {};
  if (pthread_setschedparam(pthread_self(), SCHED_IDLE, &none) != 0) {
    LOG(WARNING) << "--shadow_rate: the kernel does not give the thread the lowest priority.";
  }
}

}  // namespace

// ---- A copy -------------------------------------------------------------------------------------

template <typename T>
void OwnedSequence::Keep(std::span<T>& span) {
  if (span.empty()) return;
  const auto bytes = std::as_bytes(span);
  std::vector<std::byte>& copy = kept_.emplace_back(bytes.begin(), bytes.end());
  span = {reinterpret_cast<T*>(copy.data()), span.size()};
}

OwnedSequence::OwnedSequence(const Sequence& sequence) : sequence_(sequence) {
  Keep(sequence_.input_ids);
  Keep(sequence_.token_type_ids);
  Keep(sequence_.position_ids);
  if (sequence_.inputs_embeds.has_value()) {
    Keep(sequence_.inputs_embeds->shape);
    Keep(sequence_.inputs_embeds->data);
  }
  Mask& mask = sequence_.mask;
  Keep(mask.keys);
  Keep(mask.pairs);
  Keep(mask.head_pairs);
  Keep(mask.segment_ids);
  sequence_.spans.clear();  // of outputs that are not compared
}

size_t OwnedSequence::BytesOf(const Sequence& sequence) {
  const Mask& mask = sequence.mask;
  size_t bytes = sequence.input_ids.size_bytes() + sequence.token_type_ids.size_bytes() +
                 sequence.position_ids.size_bytes() + mask.keys.size_bytes() +
                 mask.pairs.size_bytes() + mask.head_pairs.size_bytes() +
                 mask.segment_ids.size_bytes();
  if (sequence.inputs_embeds.has_value()) bytes += sequence.inputs_embeds->data.size_bytes();
  return bytes;
}

// ---- On workers' threads ------------------------------------------------------------------------

bool Shadow::IsSampled() {
  const uint64_t number = count_.fetch_add(1, std::memory_order_relaxed);
  return Mixed(options_.seed + number) % static_cast<uint64_t>(options_.rate) == 0;
}

void Shadow::Offer(const Sequence& sequence) {
  if (!IsSampled()) return;
  metrics_.ShadowSampled();
  if (OwnedSequence::BytesOf(sequence) > kMaxBytes) {
    metrics_.ShadowDropped(ShadowDrop::kTooLarge);
    return;
  }
  // The thread that holds the lock may be off its core for as long as others want that.
  if (!mutex_.TryLock()) {
    metrics_.ShadowDropped(ShadowDrop::kNoRoom);
    return;
  }
  bool taken = waiting_.size() < kMaxWaiting;
  if (taken) {
    try {
      waiting_.push_back(std::make_unique<OwnedSequence>(sequence));
    } catch (const std::bad_alloc&) {
      taken = false;
    }
  }
  mutex_.Unlock();
  if (taken) {
    changed_.NotifyOne();
  } else {
    metrics_.ShadowDropped(ShadowDrop::kNoRoom);
  }
}

// ---- The shadow's thread ------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Shadow>> Shadow::Start(const ShadowOptions& options,
                                                      const Engine& served, const Engine& reference,
                                                      Metrics& metrics, Clock& clock) {
  std::unique_ptr<Shadow> shadow(new Shadow(options, served, reference, metrics, clock));
  ASSIGN_OR_RETURN(shadow->served_worker_, served.CreateLoneWorker());
  ASSIGN_OR_RETURN(shadow->reference_worker_, reference.CreateLoneWorker());
  shadow->thread_ = std::thread([&shadow = *shadow] {
    pthread_setname_np(pthread_self(), "shadow");
    RunOnSpareTimeOnly();
    shadow.Work();
  });
  return shadow;
}

Shadow::~Shadow() {
  stopping_ = true;
  {
    // So that the thread is either before its look at stopping_ or asleep.
    MutexLock lock(mutex_);
  }
  changed_.NotifyAll();
  if (thread_.joinable()) thread_.join();
}

void Shadow::Work() {
  while (const std::unique_ptr<OwnedSequence> sample = Next()) {
    absl::Status status;
    do {
      if (!AwaitIdleWorker()) return;
      status = Compare(sample->sequence());
    } while (absl::IsCancelled(status));
    if (!status.ok()) metrics_.ShadowDropped(ShadowDrop::kFailed);
  }
}

std::unique_ptr<OwnedSequence> Shadow::Next() {
  MutexLock lock(mutex_);
  while (!stopping_ && waiting_.empty()) {
    clock_.WaitUntil(changed_, mutex_, absl::InfiniteFuture());
  }
  if (stopping_) return nullptr;
  std::unique_ptr<OwnedSequence> sample = std::move(waiting_.front());
  waiting_.pop_front();
  return sample;
}

bool Shadow::AwaitIdleWorker() {
  MutexLock lock(mutex_);
  while (!stopping_ && !WorkerIsIdle()) {
    clock_.WaitUntil(changed_, mutex_, clock_.Now() + kLook);
  }
  return !stopping_;
}

absl::Status Shadow::Compare(const Sequence& sequence) {
  const auto give_up = [this] { return stopping_ || !WorkerIsIdle(); };
  ASSIGN_OR_RETURN(const AnswerTensor got,
                   LastHiddenState(served_.spec(), *served_worker_, sequence, give_up));
  ASSIGN_OR_RETURN(const AnswerTensor expected,
                   LastHiddenState(reference_.spec(), *reference_worker_, sequence, give_up));
  metrics_.ShadowCompared(
      LargestError(expected.data.floats(), got.data.floats(), served_.spec().hidden_size));
  return absl::OkStatus();
}

}  // namespace encoderd
