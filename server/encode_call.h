// encode_call.h — what every call that runs the encoder goes through, whatever its answer looks
// like on the wire: in, checked and counted, and out again.
//
// Role:  base of Encode (encode_whole.cc) and EncodeChunked (encode_chunked.cc), which add how the
//        work is submitted and how its answer is sent.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/request.h"
#include "engine/validation.h"
#include "server/answer_encoder.h"
#include "server/batching/batcher.h"
#include "server/call_record.h"
#include "server/encode_service.h"
#include "server/mutex.h"
#include "server/request_decoder.h"
#include "server/status.h"

namespace encoderd {

// Threads:    the methods run on gRPC's threads and the batcher's workers; a method's own class
//             says how it orders them.
// Invariants: 1. Succeed or Refuse is called exactly once, and nothing touches gRPC's context after
//                that but Cut();
//             2. the call lives until OnDone, and as long as anybody else holds it: a worker may
//                still be writing into what it owns.
class EncodeCall : public std::enable_shared_from_this<EncodeCall> {
 public:
  EncodeCall(EncodeContext& service, grpc::CallbackServerContext& context, Method method);
  virtual ~EncodeCall();
  EncodeCall(const EncodeCall&) = delete;
  EncodeCall& operator=(const EncodeCall&) = delete;

  // Keeps the call until gRPC is done with it, and begins.
  void Start(const grpc::ByteBuffer& bytes);

 protected:
  // ---- What a method adds ----

  // Sets what Validate is to hold the answer's size against.
  virtual void LimitAnswer(RequestLimits& limits) const = 0;
  // Sets what the answer to the plan takes of the memory budget at most.
  virtual std::optional<Refusal> PrepareAnswer(int64_t& answer_bytes) = 0;
  // Submits the work. Nothing: the batcher has it, and the call may have ended by now.
  virtual std::optional<Refusal> Begin() = 0;
  // Ends the work that the batcher has with `status`, as if the batcher did. False: it has none.
  virtual bool EndWork(const absl::Status& status) = 0;
  // A call without a deadline of its own has had the default one.
  virtual void OnDefaultDeadline() = 0;
  // The reactor's Finish. gRPC may be done with the call before this returns.
  virtual void FinishReactor(const grpc::Status& status) = 0;

  // ---- What the method's reactor hands on ----

  // The caller went, or gRPC's own timer of the deadline fired.
  void Cancelled();
  // gRPC is done with the call.
  void Done();

  // ---- What a method uses ----

  // Counts what the call holds against its connection while it works, not only once it is answered.
  // REQUIRES: from Begin, before the work.
  std::optional<Refusal> HoldOfConnection();
  // What the batcher is to know of the work that the plan says.
  CallInfo InfoOf(const Plan& plan) const;
  // Why the batcher would not take work, with when to come again.
  Refusal NotSubmitted(absl::Status status) const;

  // The end of a call whose answer is complete.
  void Succeed(std::optional<CallTiming> timing);
  void Refuse(Refusal refusal, std::optional<CallTiming> timing);
  // The largest message that the caller can receive, no more than the server allows.
  int64_t max_response_bytes() const { return max_response_bytes_; }
  // Succeed or Refuse has been called; the answer may still be on its way.
  bool ended() const { return ended_.load(std::memory_order_acquire); }
  // Drops the connection's stream, whatever state it is in. From callbacks of gRPC's only.
  void Cut();

  absl::Duration Elapsed() const { return service_.clock.Now() - arrival_; }
  ResponseInfo InfoOfResponse(std::optional<CallTiming> timing) const;
  static absl::Status DeadlineError();
  // What it is when gRPC says that the caller is gone: that, the deadline's end or the server's.
  absl::Status GoneError() const;

  EncodeContext& service_;
  CallRecord record_;  // what is known of the call so far; a method adds the answer's bytes
  DecodedRequest decoded_;
  Plan plan_;

 private:
  std::optional<Refusal> Admit(const grpc::ByteBuffer& bytes);
  std::optional<Refusal> TakeSlot();
  std::optional<Refusal> TakeMemory(int64_t request_bytes, int64_t answer_bytes);
  std::optional<Refusal> Check();
  void SetDeadline();
  Refusal ConnectionBusy() const;
  absl::Duration RetryAfter() const;
  bool has_deadline() const { return !record_.without_deadline; }  // of the caller's own
  void End(const grpc::Status& status);

  grpc::CallbackServerContext& context_;
  const absl::Time arrival_;
  absl::Time deadline_;               // by the service's clock
  std::shared_ptr<EncodeCall> self_;  // until Done
  bool has_slot_ = false;
  int64_t max_response_bytes_ = 0;
  int64_t held_bytes_ = 0;           // of the memory budget
  bool held_of_connection_ = false;  // while the call works
  std::atomic<bool> admitted_ = false;
  std::atomic<bool> ended_ = false;
  std::optional<grpc::Alarm> alarm_;  // of the default deadline
  Mutex done_mutex_;
  bool done_ ABSL_GUARDED_BY(done_mutex_) = false;  // gRPC's objects are gone
};

Refusal OutOfMemory(std::string_view what);

// What the batcher said of work that it had accepted, or would not accept.
Refusal RefusalOf(absl::Status status);

// True when a call that gRPC has cancelled ran out of its time rather than having been given up.
// gRPC does not say which: a caller's own timer and its cancellation look alike, and reach the
// server a little before the server's own timer, by the way that clocks and timeouts are rounded
// (grpc-timeout keeps 3 digits). `allowed`: the whole time that the call was given; `left`: what is
// left of it.
bool RanOutOfTime(absl::Duration allowed, absl::Duration left);

}  // namespace encoderd
