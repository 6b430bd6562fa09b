// answer_encoder.h — the one place where an engine's answer becomes bytes on the wire.
//
// Role:  called by the service's methods; knows protobuf and the engine's plain data, and nothing of
//        calls, queues or models.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "encoderd/v1/encoder.pb.h"
#include "engine/request.h"
#include "engine/validation.h"
#include "server/answer_stretches.h"
#include "server/batching/batcher.h"

namespace encoderd {

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

// A piece; the slices keep `answer`, which owns the stretch's data, alive.
grpc::ByteBuffer EncodePieceBytes(std::shared_ptr<const Answer> answer, const Stretch& piece);

grpc::ByteBuffer EncodeTimingBytes(const Plan& plan, const CallTiming& timing);

v1::Pooling ToWire(Pooling pooling);

}  // namespace encoderd
