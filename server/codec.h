// codec.h — the one place where bytes on the wire become an engine's request and an engine's answer
// becomes bytes on the wire.
//
// Role:  called by the Encode service; knows protobuf and the engine's plain data, and nothing of
//        calls, queues or models.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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

// What an EncodeResponse says besides the answer's tensors.
struct ResponseInfo {
  std::optional<CallTiming> timing = {};
  std::string numerics_id;
  std::string request_id;
};

// The bytes of the EncodeResponse. Tensors are not copied: the slices refer to the answer's buffers
// and keep `answer` alive until gRPC has sent them (tiny ones are copied, which is cheaper).
grpc::ByteBuffer EncodeResponseBytes(std::shared_ptr<const Answer> answer, const Plan& plan,
                                     const ResponseInfo& info);

// The most bytes that EncodeResponseBytes adds to the tensors of an answer to this plan.
// `ids_bytes`: of numerics_id and request_id.
int64_t FramingBytes(const Plan& plan, size_t ids_bytes);

// ---- The messages of a stream: EncodeChunk ------------------------------------------------------

// The head; of `shapes` the tensors' shapes alone are read. At most FramingBytes.
grpc::ByteBuffer EncodeHeadBytes(const Answer& shapes, const Plan& plan, const ResponseInfo& info);

// A stretch of one tensor of the whole answer.
struct Stretch {
  uint32_t tensor = 0;  // as Piece.tensor
  uint64_t offset = 0;  // bytes
  std::span<const std::byte> data;
};

// Where the tensors of the answer to `part`, a plan of some of the sequences or blocks or of a
// piece of a map of `whole` (engine/parts.h), lie in the whole answer; by tensor and offset.
std::vector<Stretch> StretchesOf(const Plan& whole, const Plan& part, const Answer& answer);

// A piece; the slices keep `answer`, which owns the stretch's data, alive.
grpc::ByteBuffer EncodePieceBytes(std::shared_ptr<const Answer> answer, const Stretch& piece);

grpc::ByteBuffer EncodeTimingBytes(const Plan& plan, const CallTiming& timing);

v1::Pooling ToWire(Pooling pooling);

}  // namespace encoderd
