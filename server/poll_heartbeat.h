// poll_heartbeat.h — keeps the threads that poll for gRPC from all being asleep at once.
//
// Role:   beside the server. gRPC 1.51 runs everything of the callback API, reads of sockets
//         included, on a few threads that wait for events. One that has had none for 1,000 ms sleeps
//         for 100 ms, deaf to new ones (completion_queue_cc.cc, CallbackAlternativeCQ). They start
//         together, so while nobody calls they sleep together: a call that came then, the first one
//         after the start above all, waited for up to 100 ms before its bytes were read (93 ms
//         between the kernel's receiving and gRPC's reading were measured; 5 ms is what the whole
//         call takes).
// Method: an event of our own every half second, the failure of a call on a channel that leads
//         nowhere. Whichever thread takes it waits for at least another second, so at every moment
//         one is waiting. The price is two wake-ups a second.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/time/time.h"
#include "server/batching/clock.h"
#include "server/mutex.h"

namespace encoderd {

// Beats from its construction to its destruction.
class PollHeartbeat {
 public:
  // Half of what gRPC's threads wait for: a beat may come half a second late.
  static constexpr absl::Duration kPeriod = absl::Milliseconds(500);

  // `on_beat`: called at each beat by the thread of gRPC's that takes it. `clock` must outlive this.
  explicit PollHeartbeat(Clock& clock, std::function<void()> on_beat = [] {});
  ~PollHeartbeat();
  PollHeartbeat(const PollHeartbeat&) = delete;
  PollHeartbeat& operator=(const PollHeartbeat&) = delete;

 private:
  void Watch();
  void Beat() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Beaten();

  Clock& clock_;
  const std::function<void()> on_beat_;
  grpc::GenericStub nowhere_;
  const grpc::ByteBuffer request_;
  grpc::ByteBuffer response_;
  Mutex mutex_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::optional<grpc::ClientContext> beating_ ABSL_GUARDED_BY(mutex_);  // while no thread has it
  std::thread thread_;
};

}  // namespace encoderd
