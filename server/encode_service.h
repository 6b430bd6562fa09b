// encode_service.h — encoderd.v1.EncoderService: calls in, answers out.
//
// Role:    between gRPC and the batcher. Methods are registered as raw ones, so that malformed
//          bytes are ours to refuse and count, and so that answers go out without a copy. The life
//          of a call is in encode_call.cc, encode_whole.cc and encode_chunked.cc.
// Threads: handlers run on gRPC's threads and never wait; Serve and Drain are called by the server.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "engine/engine.h"
#include "server/access.h"
#include "server/batching/batcher.h"
#include "server/batching/clock.h"
#include "server/call_record.h"
#include "server/connection_slots.h"
#include "server/memory_budget.h"
#include "server/precision_trial.h"
#include "server/request_decoder.h"
#include "server/status.h"

namespace encoderd {

struct EncodeOptions {
  std::string server_version;
  DecodeLimits limits;
  int64_t max_response_bytes = int64_t{256} << 20;
  absl::Duration default_deadline = absl::Seconds(30);
  int max_connection_inflight = 64;
  int64_t max_inflight_bytes = int64_t{1} << 30;
};

// What is served, from the moment that it is.
struct Served {
  std::string model_name;
  const Engine* engine = nullptr;
  const PrecisionChoice* choice = nullptr;  // null: nobody had to choose
  Batcher* batcher = nullptr;
  int64_t max_sequence_tokens = 0;
};

// A connection that reads nothing may hold one part in so many of the memory for calls in flight.
inline constexpr int64_t kConnectionsThatMayStall = 4;

// What every call needs. Fields are constant or thread-safe.
struct EncodeContext {
  EncodeContext(const EncodeOptions& service_options, const Access& service_access,
                Clock& service_clock, CallObserver& call_observer)
      : options(service_options),
        access(service_access),
        clock(service_clock),
        calls(call_observer),
        connections(service_options.max_connection_inflight,
                    service_options.max_inflight_bytes / kConnectionsThatMayStall),
        memory(service_options.max_inflight_bytes) {}

  // Nothing when calls are taken, else why they are not.
  std::optional<Refusal> NotServing() const;
  // Nothing when the name is that of the model served.
  std::optional<Refusal> WrongModel(const std::string& name) const;

  enum class Phase { kLoading, kServing, kDraining, kCuttingOff };

  const EncodeOptions options;
  const Access& access;
  Clock& clock;
  CallObserver& calls;
  ConnectionSlots connections;
  MemoryBudget memory;
  Served served;  // constant once the phase has left kLoading
  std::atomic<Phase> phase = Phase::kLoading;
};

class EncodeService final
    : public v1::EncoderService::WithRawCallbackMethod_Encode<
          v1::EncoderService::WithRawCallbackMethod_EncodeChunked<
              v1::EncoderService::WithRawCallbackMethod_GetModel<v1::EncoderService::Service>>> {
 public:
  // What is referred to must outlive every call.
  EncodeService(const EncodeOptions& options, const Access& access, Clock& clock,
                CallObserver& calls)
      : context_(options, access, clock, calls) {}

  // Takes calls from now on; until then they get UNAVAILABLE. What `served` points to must outlive
  // every call. REQUIRES: called once.
  void Serve(Served served);

  // Refuses new calls with UNAVAILABLE from now on.
  void Drain();

  // Waits until gRPC has sent every answer, at most until `deadline` of the clock. False: it has
  // not. REQUIRES: after Drain.
  bool AwaitSent(absl::Time deadline) {
    return context_.memory.AwaitAllGiven(context_.clock, deadline);
  }

  // Calls that gRPC drops from now on count as ended by the server, with UNAVAILABLE.
  void CutOff();

  // What the calls in flight hold, answers included that gRPC has not sent yet.
  int64_t inflight_bytes() const { return context_.memory.taken(); }

  grpc::ServerUnaryReactor* Encode(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* EncodeChunked(
      grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;

 private:
  EncodeContext context_;
};

}  // namespace encoderd
