#include "tests/load/drive.h"

#include <chrono>

#include "absl/log/check.h"
#include "encoderd/v1/encoder.grpc.pb.h"

namespace encoderd::load {

v1::OutputSpec OutputSpecOf(Output output) {
  v1::OutputSpec spec;
  if (output == Output::kPooled) {
    spec.add_pooled()->set_kind(v1::POOLING_MEAN);
  } else {
    spec.set_last_hidden_state(true);
  }
  return spec;
}

client::LoadOptions LoadOf(const BenchServer& server, const std::string& lengths, double seconds) {
  auto distribution = client::LengthDistribution::Parse(lengths);
  CHECK(distribution.ok()) << distribution.status();
  return {.target = server.address(),
          .lengths = *std::move(distribution),
          .outputs = OutputSpecOf(Output::kPooled),
          .deadline = absl::Minutes(1),
          .warm_up = absl::Seconds(1),
          .duration = absl::Seconds(seconds)};
}

client::LoadResult Drive(const client::LoadOptions& options) {
  auto result = client::RunLoad(options, /*progress=*/nullptr);
  CHECK(result.ok()) << result.status();
  CHECK_GT(result->answered, 0) << result->first_failure.error_message();
  return *std::move(result);
}

client::LoadResult Saturate(const BenchServer& server, const std::string& lengths, double seconds,
                            Output output) {
  client::LoadOptions options = LoadOf(server, lengths, seconds);
  options.arrival = client::Arrival::kSaturate;
  options.outstanding = kSaturating;
  options.outputs = OutputSpecOf(output);
  client::LoadResult result = Drive(options);
  CHECK_EQ(result.answered, result.offered()) << result.first_failure.error_message();
  return result;
}

std::vector<absl::Duration> LoneCalls(const BenchServer& server, int64_t tokens, int count) {
  const auto stub = v1::EncoderService::NewStub(server.Connect());
  v1::EncodeRequest request;
  for (const int32_t id : Ids(tokens)) {
    if (request.sequences().empty()) request.add_sequences();
    request.mutable_sequences(0)->add_input_ids(id);
  }
  *request.mutable_outputs() = OutputSpecOf(Output::kPooled);
  std::vector<absl::Duration> times;
  for (int i = -kWarmUpCalls; i < count; ++i) {
    grpc::ClientContext context;
    v1::EncodeResponse response;
    const auto start = std::chrono::steady_clock::now();
    const grpc::Status status = stub->Encode(&context, request, &response);
    const auto end = std::chrono::steady_clock::now();
    CHECK(status.ok()) << status.error_message();
    if (i >= 0) times.push_back(absl::FromChrono(end - start));
  }
  return times;
}

}  // namespace encoderd::load
