#include "server/encode_chunked.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/answer.h"
#include "engine/tensor/buffer.h"
#include "server/answer_steps.h"
#include "server/encode_call.h"
#include "server/engine_runner.h"
#include "server/mutex.h"

namespace encoderd {
namespace {

// How long the status of a call whose default deadline has passed may wait behind a message.
constexpr absl::Duration kLastMessage = absl::Seconds(1);

class ChunkedCall;

// One step of a stream, as the batcher and the engine see it.
class StepCall final : public EngineCall {
 public:
  StepCall(std::shared_ptr<ChunkedCall> stream, Plan plan, Answer answer);

  const CallInfo& info() const override { return info_; }
  const Request& request() const override;
  const Plan& plan() const override { return plan_; }
  Answer& answer() override { return *answer_; }
  std::span<float> hidden() override;
  void Finish(absl::Status status, const CallTiming& timing) override;

  std::shared_ptr<const Answer> finished_answer() const { return answer_; }

 private:
  const std::shared_ptr<ChunkedCall> stream_;
  const Plan plan_;
  const std::shared_ptr<Answer> answer_;
  const CallInfo info_;
  bool has_run_ = false;  // of a part of one sequence: one worker's
};

// What a step gave, on its way out.
struct Computed {
  std::shared_ptr<const Answer> answer;
  std::vector<Stretch> stretches;  // the next one shrinks as it is sent
  size_t next = 0;
  int64_t bytes = 0;  // of the window

  bool sent() const { return next == stretches.size(); }  // but for what is under way
};

// Threads:    StepEnded comes from workers, the On… from gRPC's threads. What to do next is decided
//             under the lock and done without it, by Go.
// Invariants: 1. at most one message is under way, at most one step with the batcher;
//             2. live_bytes_ = bytes of the steps computed or being computed and not yet sent
//                ≤ window_bytes_;
//             3. the end comes when neither a message nor a submission is under way.
class ChunkedCall final : public EncodeCall, public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  ChunkedCall(EncodeContext& service, grpc::CallbackServerContext& context)
      : EncodeCall(service, context, Method::kEncodeChunked) {}

  // ---- What a step needs ----

  const Request& request() const { return decoded_.request; }
  CallInfo InfoOfStep(const Plan& step) {
    CallInfo info = InfoOf(step);
    info.continuation = std::exchange(first_submitted_, true);
    if (!info.continuation) info.all_steps = InfoOf(plan_).sequences;
    return info;
  }
  // The rows that a part of a sequence starts from or leaves behind. `again`: not for the first
  // time.
  std::span<float> HiddenFor(const Plan& plan, bool again);
  void StepEnded(const StepCall& step, absl::Status status, const CallTiming& timing);

  // ---- What gRPC tells us ----

  void OnWriteDone(bool ok) override;
  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  std::shared_ptr<ChunkedCall> Self() {
    return std::static_pointer_cast<ChunkedCall>(shared_from_this());
  }

  // A stream's sum has no limit; its head has the caller's, and what is held the server's.
  void LimitAnswer(RequestLimits& limits) const override {
    limits.max_response_bytes = std::numeric_limits<int64_t>::max();
  }
  std::optional<Refusal> PrepareAnswer(int64_t& answer_bytes) override;
  std::optional<Refusal> Begin() override;

  std::optional<Refusal> Submit(Plan plan);
  void SubmitNext();
  void AddComputed(const StepCall& step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddTiming(const CallTiming& timing) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  enum class Action { kNothing, kWrite, kSubmit, kEnd };

  // Does everything that can be done now. `sent` is freed behind the next write, which it would
  // hold up, and before the next step takes memory.
  void Go(std::shared_ptr<const Answer> sent = nullptr);
  Action NextAction() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Puts the next message together, if there is one. Throws before it changes anything.
  bool TakeMessage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::ByteBuffer NextPiece() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first failure is the one that is told.
  void Fail(Refusal refusal) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (!failure_.has_value()) failure_ = std::move(refusal);
  }
  void EndStream();

  bool EndWork(const absl::Status& status) override;
  void OnDefaultDeadline() override;
  void FinishReactor(const grpc::Status& status) override { ServerWriteReactor::Finish(status); }

  bool first_submitted_ = false;
  int64_t window_bytes_ = 0;
  int64_t hidden_bytes_ = 0;        // of the two that follow
  Buffer hidden_;                   // rows between the parts of a sequence
  Buffer hidden_before_;            // the same, as the running step found them
  grpc::ByteBuffer message_;        // under way: belongs to who has set writing_, with its
  grpc::WriteOptions write_options_;
  std::optional<grpc::Alarm> cut_;  // of a stream that nobody reads

  Mutex mutex_;
  grpc::ByteBuffer head_ ABSL_GUARDED_BY(mutex_);
  std::optional<AnswerSteps> steps_ ABSL_GUARDED_BY(mutex_);
  std::optional<Plan> next_step_ ABSL_GUARDED_BY(mutex_);  // taken from steps_, waits for room
  std::shared_ptr<StepCall> running_ ABSL_GUARDED_BY(mutex_);  // with the batcher
  std::deque<Computed> computed_ ABSL_GUARDED_BY(mutex_);      // the first one is being sent
  int64_t live_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t sent_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::optional<CallTiming> timing_ ABSL_GUARDED_BY(mutex_);  // of the steps so far
  std::optional<Refusal> failure_ ABSL_GUARDED_BY(mutex_);
  bool begun_ ABSL_GUARDED_BY(mutex_) = false;  // the batcher has accepted the first step
  bool submitting_ ABSL_GUARDED_BY(mutex_) = false;
  bool all_submitted_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool head_taken_ ABSL_GUARDED_BY(mutex_) = false;
  bool timing_taken_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ ABSL_GUARDED_BY(mutex_) = false;
};

// ---- Steps as the batcher sees them -------------------------------------------------------------

StepCall::StepCall(std::shared_ptr<ChunkedCall> stream, Plan plan, Answer answer)
    : stream_(std::move(stream)),
      plan_(std::move(plan)),
      answer_(std::make_shared<Answer>(std::move(answer))),
      info_(stream_->InfoOfStep(plan_)) {}

const Request& StepCall::request() const { return stream_->request(); }
std::span<float> StepCall::hidden() {
  // Whole sequences, which several workers may run at once.
  if (plan_.first_block == 0 && !plan_.keeps_hidden) return {};
  return stream_->HiddenFor(plan_, std::exchange(has_run_, true));
}
void StepCall::Finish(absl::Status status, const CallTiming& timing) {
  stream_->StepEnded(*this, std::move(status), timing);
}

// ---- In -----------------------------------------------------------------------------------------

std::optional<Refusal> ChunkedCall::PrepareAnswer(int64_t& answer_bytes) {
  const auto too_large = [](std::string description) {
    return RefusalOf(Violations{.listed = {{.reason = "ANSWER_TOO_LARGE",
                                            .field = "max_response_bytes",
                                            .description = std::move(description)}},
                                .total = 1});
  };
  const ResponseInfo info = InfoOfResponse(std::nullopt);
  const int64_t head_bytes = FramingBytes(plan_, info.numerics_id.size() + info.request_id.size());
  if (head_bytes > max_response_bytes()) {
    return too_large(absl::StrCat("the head of the answer, which has every shape, needs ",
                                  head_bytes, " bytes; expected at most ", max_response_bytes(),
                                  ": send fewer sequences, or raise max_response_bytes as far as "
                                  "the server allows"));
  }
  // What is held never exceeds what Encode may hold, so that it fits wherever Encode does.
  const EncoderSpec& spec = service_.served.engine->spec();
  const int64_t most = service_.options.max_response_bytes - head_bytes;
  window_bytes_ = std::min(kStreamBytes, most);
  int64_t step_bytes = window_bytes_ / 2;
  if (plan_.answer_bytes <= step_bytes) {
    step_bytes = window_bytes_ = plan_.answer_bytes;
  } else {
    const LeastMemory least = LeastMemoryOf(spec, plan_);
    hidden_bytes_ = 2 * least.hidden_bytes;
    if (const int64_t needed = least.step_bytes + hidden_bytes_; needed > most) {
      return too_large(absl::StrCat(
          "what is held at once, one block of the longest sequence, needs ", needed,
          " bytes; the server allows ", most,
          ": ask for dtype BF16 or FP16, which halves it, or send a shorter sequence"));
    }
    window_bytes_ = std::max(least.step_bytes, std::min(window_bytes_, most - hidden_bytes_));
    step_bytes = window_bytes_ / 2;
  }
  answer_bytes = head_bytes + hidden_bytes_ + window_bytes_;
  MutexLock lock(mutex_);
  steps_.emplace(spec, plan_, step_bytes);
  return std::nullopt;
}

std::optional<Refusal> ChunkedCall::Begin() {
  // A stream that is not read works for ever.
  if (auto refusal = HoldOfConnection()) return refusal;
  for (Buffer* rows : {&hidden_, &hidden_before_}) {
    auto buffer = Buffer::Allocate(static_cast<size_t>(hidden_bytes_ / 2), "hidden rows");
    if (!buffer.ok()) return OutOfMemory("the hidden rows");
    *rows = *std::move(buffer);
  }
  Plan first;
  {
    MutexLock lock(mutex_);
    head_ = EncodeHeadBytes(AnswerShapes(service_.served.engine->spec(), plan_), plan_,
                            InfoOfResponse(std::nullopt));
    first = *steps_->Next();
    live_bytes_ = first.answer_bytes;
  }
  if (auto refusal = Submit(std::move(first))) return refusal;
  {
    MutexLock lock(mutex_);
    begun_ = true;
  }
  Go();
  return std::nullopt;
}

// ---- Work ---------------------------------------------------------------------------------------

// Allocates the step's answer and hands it to the batcher. The step may end before this returns.
std::optional<Refusal> ChunkedCall::Submit(Plan plan) {
  absl::StatusOr<Answer> answer = service_.served.engine->AllocateAnswer(plan);
  if (!answer.ok()) return OutOfMemory("the answer");
  const auto step = std::make_shared<StepCall>(Self(), std::move(plan), *std::move(answer));
  {
    MutexLock lock(mutex_);
    running_ = step;
  }
  absl::Status status = service_.served.batcher->Submit(step);
  std::optional<absl::Status> failed;  // while it was being submitted
  {
    MutexLock lock(mutex_);
    if (!status.ok()) running_.reset();
    if (running_ == step && failure_.has_value()) failed = failure_->status;
  }
  if (!status.ok()) return NotSubmitted(std::move(status));
  if (failed.has_value()) service_.served.batcher->Cancel(*step, *std::move(failed));
  return std::nullopt;
}

void ChunkedCall::SubmitNext() {
  Plan plan;
  {
    MutexLock lock(mutex_);
    plan = *std::move(next_step_);
    next_step_.reset();
  }
  std::optional<Refusal> refusal;
  try {
    refusal = Submit(std::move(plan));
  } catch (const std::bad_alloc&) {
    refusal = OutOfMemory("the answer");
  }
  MutexLock lock(mutex_);
  submitting_ = false;
  if (refusal.has_value()) Fail(*std::move(refusal));
}

// A batch that failed is run again, and its steps must find the rows that they found before.
std::span<float> ChunkedCall::HiddenFor(const Plan& plan, bool again) {
  const auto values = static_cast<size_t>(plan.token_offsets.back() *
                                          service_.served.engine->spec().hidden_size);
  const std::span<float> rows = hidden_.floats().first(values);
  const std::span<float> before = hidden_before_.floats().first(values);
  if (plan.first_block > 0 && plan.keeps_hidden) {
    std::ranges::copy(again ? before : rows, (again ? rows : before).begin());
  }
  return rows;
}

void ChunkedCall::StepEnded(const StepCall& step, absl::Status status, const CallTiming& timing) {
  {
    MutexLock lock(mutex_);
    running_.reset();
    AddTiming(timing);
    try {
      if (status.ok()) AddComputed(step);
    } catch (const std::bad_alloc&) {
      Fail(OutOfMemory("the answer"));
    }
    if (!status.ok()) Fail(RefusalOf(std::move(status)));
  }
  Go();
}

void ChunkedCall::AddComputed(const StepCall& step) {
  std::shared_ptr<const Answer> answer = step.finished_answer();
  std::vector<Stretch> stretches = StretchesOf(plan_, step.plan(), *answer);
  if (stretches.empty()) return;  // blocks on the way to others that give something
  computed_.push_back({.answer = std::move(answer),
                       .stretches = std::move(stretches),
                       .bytes = step.plan().answer_bytes});
}

void ChunkedCall::AddTiming(const CallTiming& timing) {
  if (!timing_.has_value()) {
    timing_ = timing;
    return;
  }
  timing_->compute += timing.compute;  // without the waits for the reader
  timing_->batches += timing.batches;
  timing_->batch_tokens = std::max(timing_->batch_tokens, timing.batch_tokens);
}

// ---- Out ----------------------------------------------------------------------------------------

void ChunkedCall::Go(std::shared_ptr<const Answer> sent) {
  const auto self = shared_from_this();  // the end may free the call
  while (true) {
    Action action = Action::kNothing;
    {
      MutexLock lock(mutex_);
      try {
        action = NextAction();
      } catch (const std::bad_alloc&) {
        Fail(OutOfMemory("the answer"));
        continue;
      }
    }
    switch (action) {
      case Action::kNothing:
        return;
      case Action::kWrite:
        StartWrite(&message_, write_options_);
        break;
      case Action::kSubmit:
        sent.reset();
        SubmitNext();
        break;
      case Action::kEnd:
        EndStream();
        return;
    }
  }
}

ChunkedCall::Action ChunkedCall::NextAction() {
  if (!begun_ || over_) return Action::kNothing;
  const bool working = running_ != nullptr || submitting_;
  if (failure_.has_value()) {
    if (writing_ || working) return Action::kNothing;
    over_ = true;
    return Action::kEnd;
  }
  if (!working && !all_submitted_ && !next_step_.has_value()) {
    next_step_ = steps_->Next();
    all_submitted_ = !next_step_.has_value();
  }
  if (!writing_ && timing_taken_) {
    over_ = true;
    return Action::kEnd;
  }
  if (!writing_ && TakeMessage()) {
    writing_ = true;
    return Action::kWrite;
  }
  if (working || !next_step_.has_value()) return Action::kNothing;
  if (live_bytes_ + next_step_->answer_bytes > window_bytes_) return Action::kNothing;
  live_bytes_ += next_step_->answer_bytes;
  submitting_ = true;
  return Action::kSubmit;
}

bool ChunkedCall::TakeMessage() {
  if (!head_taken_) {
    message_ = std::move(head_);
    head_taken_ = true;
  } else if (!computed_.empty()) {
    message_ = NextPiece();
    // Through: done means that the kernel has it, with all before it, and the step's memory can go.
    // Within a step it is enough that the stream has room for more.
    write_options_ = grpc::WriteOptions();
    if (computed_.front().sent()) write_options_.set_write_through();
  } else if (all_submitted_ && running_ == nullptr) {
    message_ = EncodeTimingBytes(plan_, *timing_);
    timing_taken_ = true;
  } else {
    return false;
  }
  sent_bytes_ += static_cast<int64_t>(message_.Length());
  return true;
}

grpc::ByteBuffer ChunkedCall::NextPiece() {
  Computed& computed = computed_.front();
  Stretch& rest = computed.stretches[computed.next];
  Stretch piece = rest;
  piece.data = rest.data.first(std::min(rest.data.size(), kMaxPieceBytes));
  grpc::ByteBuffer bytes = EncodePieceBytes(computed.answer, piece);
  rest.offset += piece.data.size();
  rest.data = rest.data.subspan(piece.data.size());
  if (rest.data.empty()) ++computed.next;
  return bytes;
}

void ChunkedCall::OnWriteDone(bool ok) {
  std::shared_ptr<const Answer> sent;
  {
    MutexLock lock(mutex_);
    writing_ = false;
    message_.Clear();
    if (!computed_.empty() && computed_.front().sent()) {
      sent = std::move(computed_.front().answer);
      live_bytes_ -= computed_.front().bytes;
      computed_.pop_front();
    }
  }
  // Not sent: the caller is gone, and OnCancel may come only later.
  if (ok || !EndWork(GoneError())) Go(std::move(sent));
}

// Nothing else is under way.
void ChunkedCall::EndStream() {
  std::optional<Refusal> failure;
  std::optional<CallTiming> timing;
  {
    MutexLock lock(mutex_);
    failure = std::move(failure_);
    timing = timing_;
    record_.answer_bytes = sent_bytes_;
  }
  if (failure.has_value()) {
    Refuse(*std::move(failure), timing);
  } else {
    Succeed(timing);
  }
}

bool ChunkedCall::EndWork(const absl::Status& status) {
  std::shared_ptr<StepCall> running;
  {
    MutexLock lock(mutex_);
    if (over_ || failure_.has_value()) return false;
    Fail(RefusalOf(status));
    running = running_;
  }
  if (running != nullptr) service_.served.batcher->Cancel(*running, status);
  Go();
  return true;
}

void ChunkedCall::OnDefaultDeadline() {
  EndWork(DeadlineError());
  // The status waits behind a message that somebody who does not read never takes.
  cut_.emplace();
  cut_->Set(absl::ToChronoTime(absl::Now() + kLastMessage),
            [call = std::weak_ptr<ChunkedCall>(Self())](bool fired) {
              const auto self = call.lock();
              if (fired && self != nullptr) self->Cut();
            });
}

}  // namespace

grpc::ServerWriteReactor<grpc::ByteBuffer>* StartEncodeChunked(EncodeContext& service,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request) {
  const auto call = std::make_shared<ChunkedCall>(service, *context);
  call->Start(*request);
  return call.get();
}

}  // namespace encoderd
