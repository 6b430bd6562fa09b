#include "absl/flags/flag.h"
#include "deploy/client/command.h"
#include "deploy/client/connection.h"
#include "engine/status_macros.h"

ABSL_FLAG(absl::Duration, wait, absl::ZeroDuration(),
          "wait up to this long until the service serves; the server need not be up yet");

namespace encoderd::client {
namespace {

constexpr std::string_view kHelp =
    R"(Exits with 0 if the service serves. Without an argument that is readiness: false while the
model loads and while the server drains. The service `liveness` is false only when a worker is
stuck.

  encoderctl health                          readiness probe
  encoderctl health liveness --timeout=1s    liveness probe
  encoderctl health --wait=60s               in a script, after the server was started
)";

absl::StatusOr<ExitCode> Run(std::span<const std::string> arguments, Streams streams) {
  if (arguments.size() > 1) {
    return absl::InvalidArgumentError("expected at most one service, got several");
  }
  const std::string service = arguments.empty() ? "" : arguments.front();
  ASSIGN_OR_RETURN(Connection connection, Connection::FromFlags());
  if (const absl::Duration wait = absl::GetFlag(FLAGS_wait); wait > absl::ZeroDuration()) {
    RETURN_IF_ERROR(connection.WaitUntilServing(service, wait));
  }
  using grpc::health::v1::HealthCheckResponse;
  ASSIGN_OR_RETURN(const HealthCheckResponse::ServingStatus status,
                   connection.CheckHealth(service));
  const bool known = HealthCheckResponse::ServingStatus_IsValid(status);
  streams.out << (known ? HealthCheckResponse::ServingStatus_Name(status) : "UNKNOWN") << "\n";
  return status == HealthCheckResponse::SERVING ? kExitOk : kExitNotServing;
}

}  // namespace

const Command& HealthCommand() {
  static const Command command = {
      .name = "health",
      .arguments = "[SERVICE]",
      .summary = "whether the server serves; a probe for containers",
      .help = kHelp,
      .flags = {{.title = "Connection", .flags = {"address", "timeout"}},
                IdentityFlagGroup(),
                {.title = "Waiting", .flags = {"wait"}}},
      .takes_arguments = true,
      .run = Run};
  return command;
}

}  // namespace encoderd::client
