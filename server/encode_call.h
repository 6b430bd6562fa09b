// encode_call.h — the life of one Encode call.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "server/encode_service.h"

namespace encoderd {

// Checks the request, queues it and answers it: at once when it is refused, else when the batcher
// says that it has ended. The call owns itself until gRPC is done with it.
grpc::ServerUnaryReactor* StartEncodeCall(EncodeContext& service,
                                          grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response);

// The id of a call: what the caller chose, else the metadata `x-request-id` when it is at most 128
// printable ASCII characters, else made up.
std::string RequestId(const grpc::CallbackServerContext& context, const std::string& chosen);

// True when a call that gRPC has cancelled ran out of its time rather than having been given up.
// gRPC does not say which: a caller's own timer and its cancellation look alike, and reach the
// server a little before the server's own timer, by the way that clocks and timeouts are rounded
// (grpc-timeout keeps 3 digits). `allowed`: the whole time that the call was given; `left`: what is
// left of it.
bool RanOutOfTime(absl::Duration allowed, absl::Duration left);

}  // namespace encoderd
