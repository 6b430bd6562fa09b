#include "tests/soak/health_watch.h"

#include "absl/strings/str_cat.h"

namespace encoderd::soak {

using grpc::health::v1::HealthCheckResponse;

HealthWatch::HealthWatch(const std::shared_ptr<grpc::Channel>& channel)
    : stub_(grpc::health::v1::Health::NewStub(channel)),
      reader_(stub_->Watch(&context_, {})),
      thread_([this] { Read(); }) {
  MutexLock lock(mutex_);
  while (statuses_.empty()) changed_.Wait(mutex_);
}

HealthWatch::~HealthWatch() {
  context_.TryCancel();
  if (thread_.joinable()) thread_.join();
}

std::string HealthWatch::AwaitEnd() {
  thread_.join();
  MutexLock lock(mutex_);
  return statuses_;
}

void HealthWatch::Read() {
  HealthCheckResponse response;
  while (reader_->Read(&response)) {
    MutexLock lock(mutex_);
    absl::StrAppend(&statuses_, statuses_.empty() ? "" : ", ",
                    HealthCheckResponse::ServingStatus_Name(response.status()));
    changed_.NotifyAll();
  }
}

}  // namespace encoderd::soak
