// unknown_methods.h — calls of methods that the server does not have: refused as gRPC would, and
// counted.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include "server/access.h"
#include "server/batching/clock.h"
#include "server/call_record.h"
#include "server/status.h"

namespace encoderd {

class UnknownMethods final : public grpc::CallbackGenericService {
 public:
  // What is referred to must outlive every call.
  UnknownMethods(const Access& access, Clock& clock, CallObserver& calls)
      : access_(access), clock_(clock), calls_(calls) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Refusing final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Refusing(const grpc::Status& status) { Finish(status); }
      void OnDone() override { delete this; }
    };

    const absl::Time arrival = clock_.Now();
    calls_.CallStarted();
    const Refusal refusal = access_.Refuse(*context).value_or(
        Refusal{.status = absl::UnimplementedError("no such method; expected one of "
                                                   "encoderd.v1.EncoderService: Encode, "
                                                   "EncodeChunked, GetModel"),
                .reason = "UNKNOWN_METHOD"});
    const CallRecord record = {.identity = IdentifyCall(*context),
                               .code = static_cast<int>(refusal.status.code()),
                               .reason = refusal.reason,
                               .whole = clock_.Now() - arrival};
    calls_.CallEnded(record);
    return new Refusing(ToGrpcStatus(refusal, record.identity.request_id));
  }

 private:
  const Access& access_;
  Clock& clock_;
  CallObserver& calls_;
};

}  // namespace encoderd
