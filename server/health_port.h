// health_port.h — grpc.health.v1 in plaintext on an address of its own (--health_listen).
//
// Role:    for probes that carry no TLS, such as Kubernetes'. gRPC serves every service of a server
//          on all its ports, so this is a second server, which has the one service: any other
//          method gets UNIMPLEMENTED. Names of health are no secrets.
// Threads: of its own the listener's alone: all servers of a process share those of gRPC.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>

#include "absl/status/statusor.h"
#include "server/health_service.h"
#include "server/listener.h"
#include "server/options.h"

namespace encoderd {

class HealthPort {
 public:
  // Serves `health`, which other servers may serve as well and which must outlive this. Errors:
  // kUnavailable when the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<HealthPort>> Start(const ListenAddress& address,
                                                           HealthService& health);
  // Ends every call at once.
  ~HealthPort();

  int port() const { return listener_->port(); }

 private:
  HealthPort() = default;

  std::unique_ptr<Listener> listener_;
  // What gives gRPC the sockets that the listener has accepted.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_;
  std::unique_ptr<grpc::Server> grpc_;
};

}  // namespace encoderd
