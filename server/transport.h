// transport.h — what a gRPC server of this process expects of connections and messages.
//
// Role:  server.cc and health_port.cc build their servers with it.
#pragma once

#include <grpcpp/server_builder.h>

#include <cstdint>

#include "absl/time/time.h"

namespace encoderd {

struct TransportLimits {
  int max_message_bytes = 0;       // received; a larger one gets RESOURCE_EXHAUSTED
  int max_connection_streams = 0;  // calls at a time; more wait in the client
  int max_threads = 0;             // of services that take a thread for each call
  // What gRPC holds of requests that are still coming, which no handler has seen: it reads more
  // slowly as it fills, and then drops streams (RESOURCE_EXHAUSTED).
  int64_t max_incoming_bytes = 0;
  absl::Duration min_ping_interval;  // of clients
  // Until a connection is ready for calls, TLS included; who is slower is closed.
  absl::Duration handshake_timeout;
};

void SetTransport(grpc::ServerBuilder& builder, const TransportLimits& limits);

// Gives gRPC a connected socket that a listener has accepted.
void HandOver(int fd, grpc::experimental::ExternalConnectionAcceptor& connections);

}  // namespace encoderd
