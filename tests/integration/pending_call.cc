#include "tests/integration/pending_call.h"

#include <utility>

#include "absl/time/clock.h"

namespace encoderd {

PendingCall::PendingCall(v1::EncoderService::Stub& encoder, const v1::EncodeRequest& request,
                         absl::Duration timeout)
    : start_(absl::Now()), request_(request) {
  if (timeout != absl::InfiniteDuration()) {
    context_.set_deadline(absl::ToChronoTime(start_ + timeout));
  }
  encoder.async()->Encode(&context_, &request_, &response_, [this](grpc::Status status) {
    MutexLock lock(mutex_);
    took_ = absl::Now() - start_;
    status_ = std::move(status);
    ended_.NotifyAll();
  });
}

PendingCall::~PendingCall() { status(); }

const grpc::Status& PendingCall::status() {
  MutexLock lock(mutex_);
  while (!status_.has_value()) ended_.Wait(mutex_);
  return *status_;
}

}  // namespace encoderd
