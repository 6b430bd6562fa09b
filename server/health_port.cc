#include "server/health_port.h"

#include <grpcpp/impl/server_builder_option.h>
#include <grpcpp/security/server_credentials.h>

#include <chrono>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "engine/status_macros.h"
#include "server/transport.h"

namespace encoderd {
namespace {

// Anybody may connect, so there is little to take: a probe sends a few bytes on a connection of its
// own, and some keep one Watch open, which they begin again where it ends.
constexpr int kMaxConnections = 64;
constexpr TransportLimits kTransport = {.max_message_bytes = 1024,
                                        .max_connection_streams = 16,
                                        .max_threads = 1,
                                        .max_incoming_bytes = 4 << 20,
                                        .min_ping_interval = absl::Seconds(5),
                                        .handshake_timeout = absl::Seconds(10)};

// Reflection, once one server of a process has it, comes with every server that is built.
class NoPlugins final : public grpc::ServerBuilderOption {
 public:
  void UpdateArguments(grpc::ChannelArguments*) override {}
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>* plugins) override {
    plugins->clear();
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<HealthPort>> HealthPort::Start(const ListenAddress& address,
                                                              HealthService& health) {
  std::unique_ptr<HealthPort> result(new HealthPort);
  ASSIGN_OR_RETURN(result->listener_, Listener::Bind("health_listen", address, kMaxConnections));
  grpc::ServerBuilder builder;
  result->connections_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  SetTransport(builder, kTransport);
  // Who leaves a connection open and asks nothing gives its place back.
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, 300'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, 10'000);
  builder.SetOption(std::make_unique<NoPlugins>());
  builder.RegisterService(&health);
  result->grpc_ = builder.BuildAndStart();
  if (result->grpc_ == nullptr) {
    return absl::InternalError("gRPC did not start for --health_listen; its log lines say why");
  }
  result->listener_->Start([port = result.get()](int fd) { HandOver(fd, *port->connections_); });
  return result;
}

HealthPort::~HealthPort() {
  if (grpc_ == nullptr) return;
  listener_->Stop();
  grpc_->Shutdown(std::chrono::system_clock::now());
}

}  // namespace encoderd
