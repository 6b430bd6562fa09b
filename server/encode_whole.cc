#include "server/encode_whole.h"

#include <memory>
#include <new>
#include <optional>
#include <utility>

#include "server/encode_call.h"
#include "server/engine_runner.h"

namespace encoderd {
namespace {

// One call is one call of the batcher's.
class WholeCall final : public EncodeCall, public EngineCall, public grpc::ServerUnaryReactor {
 public:
  WholeCall(EncodeContext& service, grpc::CallbackServerContext& context,
            grpc::ByteBuffer& response)
      : EncodeCall(service, context, Method::kEncode), response_(response) {}

  // ---- What the batcher and the engine see ----

  const CallInfo& info() const override { return info_; }
  const Request& request() const override { return decoded_.request; }
  const Plan& plan() const override { return plan_; }
  Answer& answer() override { return *answer_; }

  void Finish(absl::Status status, const CallTiming& timing) override {
    if (!status.ok()) {
      Refuse(RefusalOf(std::move(status)), timing);
      return;
    }
    try {
      response_ = EncodeResponseBytes(std::move(answer_), plan_, InfoOfResponse(timing));
    } catch (const std::bad_alloc&) {
      Refuse(OutOfMemory("the answer"), timing);
      return;
    }
    record_.answer_bytes = static_cast<int64_t>(response_.Length());
    Succeed(timing);
  }

  // ---- What gRPC tells us ----

  void OnCancel() override { Cancelled(); }
  void OnDone() override { Done(); }

 private:
  void LimitAnswer(RequestLimits& limits) const override {
    const size_t ids_bytes =
        record_.identity.request_id.size() + service_.served.engine->info().numerics_id.size();
    limits.max_response_bytes = max_response_bytes();
    limits.framing_bytes = [ids_bytes](const Plan& plan) { return FramingBytes(plan, ids_bytes); };
  }

  std::optional<Refusal> PrepareAnswer(int64_t& answer_bytes) override {
    answer_bytes = plan_.answer_bytes;
    return std::nullopt;
  }

  std::optional<Refusal> Begin() override {
    absl::StatusOr<Answer> answer = service_.served.engine->AllocateAnswer(plan_);
    if (!answer.ok()) {
      Refusal refusal = OutOfMemory("the answer");
      refusal.status = answer.status();
      return refusal;
    }
    answer_ = std::make_shared<Answer>(*std::move(answer));
    info_ = InfoOf(plan_);
    // The batcher's share of the one object.
    absl::Status status = service_.served.batcher->Submit({shared_from_this(), this});
    if (status.ok()) return std::nullopt;
    return NotSubmitted(std::move(status));
  }

  bool EndWork(const absl::Status& status) override {
    return service_.served.batcher->Cancel(*this, status);
  }

  void OnDefaultDeadline() override {
    // Answered, and still not read: what it holds goes to others.
    if (!EndWork(DeadlineError()) && ended()) Cut();
  }

  void FinishReactor(const grpc::Status& status) override { ServerUnaryReactor::Finish(status); }

  grpc::ByteBuffer& response_;
  std::shared_ptr<Answer> answer_;
  CallInfo info_;
};

}  // namespace

grpc::ServerUnaryReactor* StartEncode(EncodeContext& service, grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
  const auto call = std::make_shared<WholeCall>(service, *context, *response);
  call->Start(*request);
  return call.get();
}

}  // namespace encoderd
