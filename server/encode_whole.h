// encode_whole.h — the method Encode: a call that is answered with one message.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/server_callback.h>

#include "server/encode_service.h"

namespace encoderd {

// Checks the request, queues it and answers it: at once when it is refused, else when the batcher
// says that it has ended. The call owns itself until gRPC is done with it.
grpc::ServerUnaryReactor* StartEncode(EncodeContext& service, grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request, grpc::ByteBuffer* response);

}  // namespace encoderd
