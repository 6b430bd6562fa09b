// pending_call.h — an Encode call under way.
#pragma once

#include <grpcpp/client_context.h>

#include <optional>

#include "absl/time/time.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "server/mutex.h"

namespace encoderd {

// Starts when made; waits for its end when destroyed.
class PendingCall {
 public:
  PendingCall(v1::EncoderService::Stub& encoder, const v1::EncodeRequest& request,
              absl::Duration timeout = absl::InfiniteDuration());
  ~PendingCall();

  void Cancel() { context_.TryCancel(); }
  // Waits for the end.
  const grpc::Status& status();

  // Of a call that has ended.
  const v1::EncodeResponse& response() const { return response_; }
  const grpc::ClientContext& context() const { return context_; }
  absl::Duration took() const { return took_; }

 private:
  const absl::Time start_;
  absl::Duration took_;
  grpc::ClientContext context_;
  v1::EncodeRequest request_;
  v1::EncodeResponse response_;
  Mutex mutex_;
  CondVar ended_;
  std::optional<grpc::Status> status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace encoderd
