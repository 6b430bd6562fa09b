// encoderd_process.h — the real binary as a process, with a client to it.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/integration/process.h"

namespace encoderd {

// encoderd with these flags on free ports.
class Encoderd {
 public:
  explicit Encoderd(std::vector<std::string> flags) : process_(ENCODERD_BINARY, WithPorts(flags)) {}

  Process& process() { return process_; }

  // Waits for the ports to be open.
  void AwaitListening() {
    port_ = NumberIn(process_.AwaitLine("Listening."), "port");
    const auto channel = Connect();
    encoder_ = v1::EncoderService::NewStub(channel);
    health_ = grpc::health::v1::Health::NewStub(channel);
  }
  void AwaitServing() {
    AwaitListening();
    process_.AwaitLine("Serving.");
  }

  // A channel with a connection of its own.
  std::shared_ptr<grpc::Channel> Connect(grpc::ChannelArguments arguments = {}) const {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(absl::StrCat("127.0.0.1:", port_),
                                     grpc::InsecureChannelCredentials(), arguments);
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
  static std::vector<std::string> WithPorts(std::vector<std::string> flags) {
    flags.push_back("--listen=127.0.0.1:0");
    flags.push_back("--metrics_listen=127.0.0.1:0");
    return flags;
  }

  Process process_;
  int port_ = 0;
  std::unique_ptr<v1::EncoderService::Stub> encoder_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace encoderd
