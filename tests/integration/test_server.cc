#include "tests/integration/test_server.h"

#include <gtest/gtest.h>

#include <map>
#include <thread>
#include <utility>

#include "absl/log/check.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/connect.h"
#include "tests/server/metrics_text.h"

namespace encoderd {

Options TestOptions() {
  return {.model_dir = "/models/fake",
          .listen = {.host = "127.0.0.1", .port = 0},
          .handshake_timeout = absl::Seconds(10),
          .workers = 1,
          .max_request_sequences = 16,
          .max_request_tokens = 4096,
          .max_response_bytes = 64 << 20,
          .max_inflight_bytes = 1 << 30,
          .max_queue_requests = 100,
          .max_queue_tokens = 10000,
          .max_queue_time = absl::Hours(1),
          .default_deadline = absl::Seconds(30),
          .drain_timeout = absl::Seconds(20),
          .max_connections = 100,
          .max_connection_inflight = 64,
          .min_ping_interval = absl::Seconds(5)};
}

std::string ReasonOf(const grpc::Status& status) {
  const auto info = DetailOf<google::rpc::ErrorInfo>(status);
  return info.has_value() ? info->reason() : "none";
}

TestServer::TestServer(const Options& options, Clock& clock)
    : TestServer(options, NotLoaded(), clock) {
  const absl::Status loaded = Load();
  CHECK(loaded.ok()) << loaded;
}

TestServer::TestServer(const Options& options, NotLoaded, Clock& clock) {
  if (options.shadow_every > 0) {
    unloaded_reference_ = std::make_unique<FakeEngine>();
    reference_ = unloaded_reference_.get();
  }
  auto metrics = Metrics::Start("", Version(), "test");
  CHECK(metrics.ok()) << metrics.status();
  metrics_ = *std::move(metrics);
  auto server = Server::Listen(options, *metrics_, clock);
  CHECK(server.ok()) << server.status();
  server_ = *std::move(server);
  channel_ = Connect();
  encoder_ = v1::EncoderService::NewStub(channel_);
  health_ = grpc::health::v1::Health::NewStub(channel_);
}

TestServer::~TestServer() {
  engine_->latch().Open();
  if (reference_ != nullptr) reference_->latch().Open();
}

absl::Status TestServer::Load() {
  return server_->Load([this]() -> absl::StatusOr<ServedModel> {
    ServedModel model(std::move(unloaded_engine_));
    model.reference = std::move(unloaded_reference_);
    return model;
  });
}

std::shared_ptr<grpc::Channel> TestServer::Connect(const grpc::ChannelArguments& arguments) const {
  return ConnectAlone(absl::StrCat("127.0.0.1:", server_->port()), arguments);
}

grpc::Status TestServer::Encode(const v1::EncodeRequest& request, v1::EncodeResponse* response) {
  grpc::ClientContext context;
  v1::EncodeResponse unused;
  return encoder_->Encode(&context, request, response == nullptr ? &unused : response);
}

double TestServer::Metric(const std::string& series) const {
  const std::map<std::string, double> values = ReadMetrics(MetricsText());
  const auto found = values.find(series);
  if (found != values.end()) return found->second;
  ADD_FAILURE() << "no series " << series;
  return -1;
}

void TestServer::AwaitMetric(const std::string& series, double value) const {
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (Metric(series) != value) {
    ASSERT_LT(absl::Now(), end) << series << " is " << Metric(series) << ", not " << value;
    std::this_thread::yield();
  }
}

v1::EncodeRequest IdsRequest(const std::vector<std::vector<int32_t>>& sequences) {
  v1::EncodeRequest request;
  for (const auto& ids : sequences) {
    request.add_sequences()->mutable_input_ids()->Assign(ids.begin(), ids.end());
  }
  request.mutable_outputs()->set_last_hidden_state(true);
  return request;
}

}  // namespace encoderd
