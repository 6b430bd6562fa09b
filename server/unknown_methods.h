// unknown_methods.h — calls of methods that the server does not have: refused as gRPC would, and
// counted.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include "server/batching/clock.h"
#include "server/call_identity.h"
#include "server/metrics.h"
#include "server/status.h"

namespace encoderd {

class UnknownMethods final : public grpc::CallbackGenericService {
 public:
  UnknownMethods(Clock& clock, Metrics& metrics) : clock_(clock), metrics_(metrics) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    class Refusing final : public grpc::ServerGenericBidiReactor {
     public:
      explicit Refusing(const grpc::Status& status) { Finish(status); }
      void OnDone() override { delete this; }
    };

    const absl::Time arrival = clock_.Now();
    const CallIdentity identity = IdentifyCall(*context);
    metrics_.CallStarted();
    const Refusal refusal = {
        .status = absl::UnimplementedError(
            "no such method; expected one of encoderd.v1.EncoderService: Encode, EncodeChunked, "
            "GetModel"),
        .reason = "UNKNOWN_METHOD"};
    metrics_.CallEnded({.method = Method::kOther,
                        .code = static_cast<int>(refusal.status.code()),
                        .reason = refusal.reason,
                        .whole = clock_.Now() - arrival});
    return new Refusing(ToGrpcStatus(refusal, identity.request_id));
  }

 private:
  Clock& clock_;
  Metrics& metrics_;
};

}  // namespace encoderd
