#include "server/poll_heartbeat.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/slice.h>

#include <utility>

namespace encoderd {
namespace {

// Not an empty ByteBuffer, which is no message.
grpc::ByteBuffer EmptyMessage() {
  const grpc::Slice nothing;
  return grpc::ByteBuffer(&nothing, 1);
}

}  // namespace

// Without credentials, a channel is one on which every call fails at once.
PollHeartbeat::PollHeartbeat(Clock& clock, std::function<void()> on_beat)
    : clock_(clock),
      on_beat_(std::move(on_beat)),
      nowhere_(grpc::CreateChannel("nowhere", std::shared_ptr<grpc::ChannelCredentials>())),
      request_(EmptyMessage()),
      thread_([this] { Watch(); }) {}

PollHeartbeat::~PollHeartbeat() {
  {
    MutexLock lock(mutex_);
    stop_ = true;
  }
  changed_.NotifyAll();
  thread_.join();
  MutexLock lock(mutex_);
  while (beating_.has_value()) changed_.Wait(mutex_);
}

void PollHeartbeat::Watch() {
  MutexLock lock(mutex_);
  absl::Time next = clock_.Now();
  while (!stop_) {
    const absl::Time now = clock_.Now();
    if (now >= next) {
      next = now + kPeriod;
      // One that no thread has taken yet is still there for the first that is free.
      if (!beating_.has_value()) Beat();
    }
    clock_.WaitUntil(changed_, mutex_, next);
  }
}

void PollHeartbeat::Beat() {
  beating_.emplace();
  nowhere_.UnaryCall(&*beating_, "/nowhere", grpc::StubOptions(), &request_, &response_,
                     [this](const grpc::Status&) { Beaten(); });
}

void PollHeartbeat::Beaten() {
  MutexLock lock(mutex_);
  beating_.reset();
  on_beat_();
  if (stop_) changed_.NotifyAll();  // nobody else waits for it
}

}  // namespace encoderd
