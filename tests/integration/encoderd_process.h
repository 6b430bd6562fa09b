// encoderd_process.h — the real binary as a process, with a client to it.
#pragma once

#include <grpcpp/client_context.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/integration/connect.h"
#include "tests/integration/process.h"

namespace encoderd {

class Encoderd {
 public:
  // Starts it with these flags on free ports. `cgroup`: the folder of a control group that it joins
  // before it starts; "" = that of ours.
  explicit Encoderd(const std::vector<std::string>& flags, const std::string& cgroup = "")
      : process_("/bin/sh", Command(flags, cgroup)) {}

  Process& process() { return process_; }
  const Process& process() const { return process_; }

  // Waits for the ports to be open.
  void AwaitListening() {
    const std::string line = process_.AwaitLine("Listening.");
    port_ = NumberIn(line, "port");
    metrics_port_ = NumberIn(line, "metrics_port");
    health_port_ = NumberIn(line, "health_port");
    const auto channel = Connect();
    encoder_ = v1::EncoderService::NewStub(channel);
    health_ = grpc::health::v1::Health::NewStub(channel);
  }
  void AwaitServing() {
    AwaitListening();
    process_.AwaitLine("Serving.");
  }

  // Of one that listens.
  int port() const { return port_; }
  int metrics_port() const { return metrics_port_; }
  int health_port() const { return health_port_; }  // 0: none of its own
  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  std::shared_ptr<grpc::Channel> Connect(const grpc::ChannelArguments& arguments = {}) const {
    return ConnectAlone(address(), arguments);
  }

  v1::EncoderService::Stub& encoder() { return *encoder_; }

  // SERVING, NOT_SERVING, or UNKNOWN when nobody answers.
  grpc::health::v1::HealthCheckResponse::ServingStatus Health() {
    using grpc::health::v1::HealthCheckResponse;
    grpc::ClientContext context;
    HealthCheckResponse response;
    return health_->Check(&context, {}, &response).ok() ? response.status()
                                                        : HealthCheckResponse::UNKNOWN;
  }

 private:
  // The shell puts itself into the control group and becomes the server.
  static std::vector<std::string> Command(const std::vector<std::string>& flags,
                                          const std::string& cgroup) {
    std::vector<std::string> command = {
        "-c",
        "[ -z \"$0\" ] || echo $$ > \"$0/cgroup.procs\" || exit 1; exec \"$@\"",
        cgroup,
        ENCODERD_BINARY,
        "--listen=127.0.0.1:0",
        "--metrics_listen=127.0.0.1:0"};
    command.insert(command.end(), flags.begin(), flags.end());
    return command;
  }

  Process process_;
  int port_ = 0;
  int metrics_port_ = 0;
  int health_port_ = 0;
  std::unique_ptr<v1::EncoderService::Stub> encoder_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace encoderd
