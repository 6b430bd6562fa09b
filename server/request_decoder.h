// request_decoder.h — the one place where bytes on the wire become an engine's request.
//
// Role:  called by the service's methods; knows protobuf and the engine's plain data, and nothing of
//        calls, queues or models.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <cstdint>
#include <optional>

#include "encoderd/v1/encoder.pb.h"
#include "engine/request.h"
#include "engine/validation.h"
#include "server/batching/batcher.h"
#include "server/memory_budget.h"
#include "server/status.h"
#include "server/wire_scan.h"

namespace encoderd {

// A parsed EncodeRequest and what the engine sees of it. `request` points into `message`; neither
// moves.
struct DecodedRequest {
  google::protobuf::Arena arena;
  v1::EncodeRequest* message = google::protobuf::Arena::CreateMessage<v1::EncodeRequest>(&arena);
  Request request;
  Priority priority = Priority::kInteractive;
  // Faults that the engine's request has no room for: numbers that an enumeration does not have.
  // To be told together with Validate's.
  Violations faults;
};

// What one call may make a parser allocate for.
struct DecodeLimits {
  int64_t max_request_bytes = kMaxRequestBytes;
  int64_t max_request_sequences = 1024;
  int64_t max_request_tokens = 65536;  // also for every list of the call, over all its sequences
};

// Parses `bytes` into `message`, whose fields' elements are limited as `limits` says. A refusal:
// more than `max_bytes`, not such a message, or something in it that a parse would drop or change
// in silence.
std::optional<Refusal> ParseMessage(const grpc::ByteBuffer& bytes, int64_t max_bytes,
                                    const ElementLimits& limits,
                                    google::protobuf::Message& message);

// Parses `bytes` into `decoded`. A refusal: too many bytes or elements, not an EncodeRequest, or
// something in it that a parse would drop or change in silence.
std::optional<Refusal> DecodeEncodeRequest(const grpc::ByteBuffer& bytes,
                                           const DecodeLimits& limits, DecodedRequest& decoded);

}  // namespace encoderd
