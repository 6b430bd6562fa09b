#include "server/encode_call.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <utility>
#include <variant>

#include "absl/log/log.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/batching/reason.h"
#include "server/engine_runner.h"
#include "server/log.h"
#include "server/mutex.h"

namespace encoderd {
namespace {

// What a gRPC client can receive that nobody has configured.
constexpr int64_t kDefaultResponseBytes = int64_t{4} << 20;

// Told to callers who are to try again when nothing better is known.
constexpr absl::Duration kShortestRetry = absl::Milliseconds(10);

}  // namespace

EncodeCall::EncodeCall(EncodeContext& service, grpc::CallbackServerContext& context, Method method)
    : service_(service),
      record_{
          .method = method,
          .identity = IdentifyCall(context),
          .without_deadline = context.deadline() == std::chrono::system_clock::time_point::max()},
      context_(context),
      arrival_(service.clock.Now()) {}

// Whoever of gRPC and the workers lets go last.
EncodeCall::~EncodeCall() {
  if (held_bytes_ > 0) service_.memory.Give(held_bytes_);
}

void EncodeCall::Start(const grpc::ByteBuffer& bytes) {
  self_ = shared_from_this();
  service_.calls.CallStarted();
  record_.request_bytes = static_cast<int64_t>(bytes.Length());
  std::optional<Refusal> refusal;
  try {
    refusal = Admit(bytes);
  } catch (const std::bad_alloc&) {
    refusal = OutOfMemory("the request");
  }
  // Without a refusal the batcher has the call: it may have ended by now.
  if (refusal.has_value()) Refuse(*std::move(refusal), std::nullopt);
}

// ---- In -----------------------------------------------------------------------------------------

// Everything that is checked before the work. Nothing: the batcher has accepted the call and ends
// it, possibly before this returns.
std::optional<Refusal> EncodeCall::Admit(const grpc::ByteBuffer& bytes) {
  if (auto refusal = service_.access.Refuse(context_)) return refusal;
  if (auto refusal = service_.NotServing()) return refusal;
  if (auto refusal = TakeSlot()) return refusal;
  // gRPC gives no message where the stream ended before it: that is no fault of the message.
  if (!bytes.Valid()) {
    SetDeadline();
    return RefusalOf(GoneError());
  }
  if (auto refusal = DecodeEncodeRequest(bytes, service_.options.limits, decoded_)) return refusal;
  if (const std::string& chosen = decoded_.message->request_id(); IsRequestId(chosen)) {
    record_.identity.request_id = chosen;
  }
  if (auto refusal = service_.WrongModel(decoded_.message->model())) return refusal;
  if (auto refusal = Check()) return refusal;
  int64_t answer_bytes = 0;
  if (auto refusal = PrepareAnswer(answer_bytes)) return refusal;
  if (auto refusal = TakeMemory(record_.request_bytes, answer_bytes)) return refusal;
  SetDeadline();
  admitted_.store(true, std::memory_order_release);
  return Begin();
}

std::optional<Refusal> EncodeCall::TakeSlot() {
  has_slot_ = service_.connections.Take(record_.identity.peer);
  if (has_slot_) return std::nullopt;
  return ConnectionBusy();
}

std::optional<Refusal> EncodeCall::HoldOfConnection() {
  held_of_connection_ = service_.connections.Hold(record_.identity.peer, held_bytes_);
  if (held_of_connection_) return std::nullopt;
  return ConnectionBusy();
}

Refusal EncodeCall::ConnectionBusy() const {
  return {.status = absl::ResourceExhaustedError(
              absl::StrCat("the connection has ", service_.connections.max_working(),
                           " calls in flight, as many as it may have, or has not read ",
                           service_.connections.max_unread_bytes(),
                           " bytes of its answers: use more connections, or read on")),
          .reason = "CONNECTION_BUSY",
          .retry_after = RetryAfter()};
}

std::optional<Refusal> EncodeCall::TakeMemory(int64_t request_bytes, int64_t answer_bytes) {
  const int64_t bytes = CallBytes(request_bytes, answer_bytes);
  if (service_.memory.Take(bytes)) {
    held_bytes_ = bytes;
    return std::nullopt;
  }
  return Refusal{.status = absl::ResourceExhaustedError(
                     absl::StrCat("the call needs ", bytes,
                                  " bytes; expected at most what the calls in "
                                  "flight leave of ",
                                  service_.memory.max_bytes())),
                 .reason = "MEMORY_BUDGET",
                 .retry_after = RetryAfter()};
}

// Fills in the plan, or tells every fault of the request.
std::optional<Refusal> EncodeCall::Check() {
  const v1::EncodeRequest& message = *decoded_.message;
  const int64_t ceiling = service_.options.max_response_bytes;
  const int64_t asked =
      message.max_response_bytes() == 0
          ? kDefaultResponseBytes
          : static_cast<int64_t>(std::min<uint64_t>(message.max_response_bytes(),
                                                    std::numeric_limits<int64_t>::max()));
  max_response_bytes_ = std::min(asked, ceiling);

  Violations violations = std::move(decoded_.faults);
  if (!message.request_id().empty() && !IsRequestId(message.request_id())) {
    ++violations.total;
    violations.listed.insert(
        violations.listed.begin(),
        {.reason = "UNSUPPORTED_VALUE",
         .field = "request_id",
         .description = absl::StrCat("expected at most ", kMaxRequestIdBytes,
                                     " printable ASCII characters, got ",
                                     message.request_id().size(), " bytes")});
  }
  RequestLimits limits = {.max_sequence_tokens = service_.served.max_sequence_tokens,
                          .max_request_sequences = service_.options.limits.max_request_sequences,
                          .max_request_tokens = service_.options.limits.max_request_tokens};
  LimitAnswer(limits);
  auto checked = Validate(service_.served.engine->spec(), limits, decoded_.request);
  if (auto* found = std::get_if<Violations>(&checked)) {
    violations.total += found->total;
    std::move(found->listed.begin(), found->listed.end(), std::back_inserter(violations.listed));
    violations.listed.resize(std::min(violations.listed.size(), kMaxViolations));
  } else {
    plan_ = std::get<Plan>(std::move(checked));
  }
  if (violations.total == 0) return std::nullopt;
  return RefusalOf(std::move(violations));
}

// The caller's deadline, which gRPC watches, or the default one, which we watch.
void EncodeCall::SetDeadline() {
  if (has_deadline()) {
    // Both clocks are read now: the call may have taken long to get here.
    deadline_ = service_.clock.Now() + (absl::FromChrono(context_.deadline()) - absl::Now());
    return;
  }
  deadline_ = arrival_ + service_.options.default_deadline;
  alarm_.emplace();
  alarm_->Set(absl::ToChronoTime(absl::Now() + (deadline_ - service_.clock.Now())),
              [call = weak_from_this()](bool fired) {
                const auto self = call.lock();
                if (fired && self != nullptr) self->OnDefaultDeadline();
              });
}

CallInfo EncodeCall::InfoOf(const Plan& plan) const {
  return {.sequences = SequencesOf(service_.served.engine->spec(), plan),
          .priority = decoded_.priority,
          .arrival = arrival_,
          .deadline = deadline_};
}

Refusal EncodeCall::NotSubmitted(absl::Status status) const {
  Refusal refusal = RefusalOf(std::move(status));
  if (absl::IsResourceExhausted(refusal.status)) refusal.retry_after = RetryAfter();
  return refusal;
}

absl::Duration EncodeCall::RetryAfter() const {
  return std::max(service_.served.batcher->Snapshot().predicted_wait, kShortestRetry);
}

// ---- Out ----------------------------------------------------------------------------------------

void EncodeCall::Cancelled() {
  if (!admitted_.load(std::memory_order_acquire)) return;  // refused: it has ended already
  const auto self = shared_from_this();
  EndWork(GoneError());
}

absl::Status EncodeCall::GoneError() const {
  if (service_.phase.load(std::memory_order_acquire) == EncodeContext::Phase::kCuttingOff) {
    return absl::UnavailableError("the server is shutting down");
  }
  const bool timeout =
      has_deadline() && RanOutOfTime(deadline_ - arrival_, deadline_ - service_.clock.Now());
  return timeout ? DeadlineError() : absl::CancelledError("the caller cancelled the call");
}

void EncodeCall::Done() {
  {
    MutexLock lock(done_mutex_);
    done_ = true;
  }
  if (alarm_.has_value()) alarm_->Cancel();
  if (has_slot_) service_.connections.Give(record_.identity.peer, held_bytes_);
  self_.reset();
}

void EncodeCall::Cut() {
  // Done cannot run inside TryCancel: this is called from a callback of gRPC's, and those that it
  // causes come after it.
  MutexLock lock(done_mutex_);
  if (!done_) context_.TryCancel();
}

absl::Status EncodeCall::DeadlineError() {
  return absl::DeadlineExceededError("the deadline passed before the call was answered");
}

ResponseInfo EncodeCall::InfoOfResponse(std::optional<CallTiming> timing) const {
  return {.timing = timing,
          .numerics_id = service_.served.engine->info().numerics_id,
          .request_id = record_.identity.request_id};
}

void EncodeCall::Succeed(std::optional<CallTiming> timing) {
  record_.timing = std::move(timing);
  End(grpc::Status::OK);
}

void EncodeCall::Refuse(Refusal refusal, std::optional<CallTiming> timing) {
  if (refusal.status.code() == absl::StatusCode::kInternal) {
    LOG(ERROR) << "A call failed. reason=" << refusal.reason << " " << record_.identity.ToLog()
               << " status=" << LogValue(refusal.status.ToString());
  } else {
    LOG_EVERY_N_SEC(INFO, 0.1) << "A call was refused. reason=" << refusal.reason << " "
                               << record_.identity.ToLog()
                               << " status=" << LogValue(refusal.status.ToString())
                               << " refused_so_far=" << COUNTER;
  }
  AddRetryPushback(refusal, context_);
  record_.code = static_cast<int>(refusal.status.code());
  record_.reason = refusal.reason;
  record_.timing = std::move(timing);
  End(ToGrpcStatus(refusal, record_.identity.request_id));
}

// The end of every call, once. gRPC may be done with the call before this returns.
void EncodeCall::End(const grpc::Status& status) {
  ended_.store(true, std::memory_order_release);
  if (has_slot_) {
    service_.connections.Answered(record_.identity.peer, held_of_connection_ ? 0 : held_bytes_);
  }
  record_.whole = Elapsed();
  record_.sequences = static_cast<int64_t>(decoded_.request.sequences.size());
  record_.tokens = plan_.token_offsets.empty() ? 0 : plan_.token_offsets.back();
  service_.calls.CallEnded(record_);
  FinishReactor(status);
}

// ---- Pure parts ---------------------------------------------------------------------------------

Refusal OutOfMemory(std::string_view what) {
  return {.status = absl::ResourceExhaustedError(
              absl::StrCat("no memory for ", absl::string_view(what.data(), what.size()))),
          .reason = "OUT_OF_MEMORY",
          .retry_after = absl::Seconds(1)};
}

Refusal RefusalOf(absl::Status status) {
  Refusal refusal = {.status = std::move(status)};
  refusal.reason = ReasonOf(refusal.status);
  if (absl::IsUnavailable(refusal.status)) refusal.retry_after = absl::Seconds(1);
  if (!refusal.reason.empty()) return refusal;
  switch (refusal.status.code()) {
    case absl::StatusCode::kCancelled:
      refusal.reason = "CANCELLED";
      break;
    case absl::StatusCode::kDeadlineExceeded:
      refusal.reason = "DEADLINE";
      break;
    case absl::StatusCode::kUnavailable:
      refusal.reason = "DRAINING";
      break;
    default:
      refusal.reason = "ENGINE_FAILURE";
  }
  return refusal;
}

bool RanOutOfTime(absl::Duration allowed, absl::Duration left) {
  return left <= absl::Milliseconds(20) + allowed / 50;
}

}  // namespace encoderd
