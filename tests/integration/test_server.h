// test_server.h — a whole server in this process around the fake engine, on a free port, and what
// its tests need as clients of it.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/metrics.h"
#include "server/options.h"
#include "server/server.h"
#include "tests/integration/pending_call.h"
#include "tests/server/fake_engine.h"

namespace encoderd {

// One worker, small limits where a test reaches them by hand.
Options TestOptions();

// A detail of a status, if it has one of this kind.
template <typename Detail>
std::optional<Detail> DetailOf(const grpc::Status& status) {
  google::rpc::Status details;
  if (!details.ParseFromString(status.error_details())) return std::nullopt;
  for (const auto& any : details.details()) {
    Detail detail;
    if (any.UnpackTo(&detail)) return detail;
  }
  return std::nullopt;
}

std::string ReasonOf(const grpc::Status& status);

// A status with this code, ErrorInfo.reason and part of the message.
MATCHER_P3(Refused, code, reason, text, "") {
  *result_listener << "code " << arg.error_code() << ", reason " << ReasonOf(arg) << ", message "
                   << arg.error_message();
  return arg.error_code() == code && ReasonOf(arg) == reason &&
         arg.error_message().find(text) != std::string::npos;
}

class TestServer {
 public:
  struct NotLoaded {};

  explicit TestServer(const Options& options = TestOptions(), Clock& clock = SteadyClock());
  // Opens the engine's latch, so that nothing waits for ever.
  ~TestServer();

  // What Server::Load says. Done by the constructor unless told otherwise.
  absl::Status Load();
  TestServer(const Options& options, NotLoaded, Clock& clock = SteadyClock());

  Server& server() { return *server_; }
  FakeEngine& engine() { return *engine_; }
  // What is loaded beside it where the options have a shadow rate.
  FakeEngine& reference() { return *reference_; }

  // A channel with a connection of its own.
  std::shared_ptr<grpc::Channel> Connect(const grpc::ChannelArguments& arguments = {}) const;
  v1::EncoderService::Stub& encoder() { return *encoder_; }
  grpc::health::v1::Health::Stub& health() { return *health_; }
  std::shared_ptr<grpc::Channel> channel() { return channel_; }

  grpc::Status Encode(const v1::EncodeRequest& request, v1::EncodeResponse* response = nullptr);

  std::string MetricsText() const { return metrics_->Text(); }
  // The value of the sample whose line starts with `series`; fails the test when there is none.
  double Metric(const std::string& series) const;
  // Waits until it is `value`.
  void AwaitMetric(const std::string& series, double value) const;

 private:
  std::unique_ptr<FakeEngine> unloaded_engine_ = std::make_unique<FakeEngine>();
  FakeEngine* const engine_ = unloaded_engine_.get();
  std::unique_ptr<FakeEngine> unloaded_reference_;
  FakeEngine* reference_ = nullptr;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::EncoderService::Stub> encoder_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

// Sequences of these ids, last_hidden_state asked for.
v1::EncodeRequest IdsRequest(const std::vector<std::vector<int32_t>>& sequences);

}  // namespace encoderd
