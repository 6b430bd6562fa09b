// encode_chunked.h — the method EncodeChunked: an answer of any size, produced as it is read.
//
// The answer is cut into steps (answer_steps.h). Each step is a call of the batcher's; while gRPC
// sends what one gave, the next is computed, as far as the stream's window allows:
//
//   steps ─▶ batcher ─▶ computed, not sent yet ─▶ one message under way ─▶ gRPC
//     ▲                        │
//     └── a step is submitted once it fits into the window beside what is not sent
//
// So a reader who stops stops the computing of its own stream and nothing else.
//
// Memory: tensors that a stream holds, computed or being computed, have at most
//         min(kStreamBytes, --max_response_bytes) bytes together with its head, or, where it is
//         more, the outputs of one block for one sequence; then there are the request and, for a
//         sequence that does not fit, its hidden rows. All of it is taken from the memory budget
//         and of what the connection may hold before the stream begins, and given back when it has
//         ended.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include <cstdint>

#include "server/encode_service.h"

namespace encoderd {

// Two steps of 16 MiB: one that is sent and one that is computed. A step of that size is several
// batches of work or more, so that the workers lose little at its end; 16 streams that nobody reads
// hold 512 MiB, half of what --max_inflight_bytes allows by default.
inline constexpr int64_t kStreamBytes = int64_t{32} << 20;

// Of the data of one message.
inline constexpr size_t kMaxPieceBytes = size_t{1} << 20;

// As StartEncode.
grpc::ServerWriteReactor<grpc::ByteBuffer>* StartEncodeChunked(EncodeContext& service,
                                                               grpc::CallbackServerContext* context,
                                                               const grpc::ByteBuffer* request);

}  // namespace encoderd
