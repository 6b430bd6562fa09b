// Goal: what a server has taken for many clients it gives back: memory, threads, files.
// Method: the real binary on a small model, observed from outside while clients of this process
// come in numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/encoderd_process.h"

namespace encoderd {
namespace {

constexpr const char* kModel =
    "--model_dir=" ENCODERD_SOURCE_DIR "/tests/goldens/fused_qkv_attention/model";

// [tokens, 10] vectors; the answer is the attention maps of three heads.
v1::EncodeRequest MapsRequest(int tokens) {
  v1::EncodeRequest request;
  v1::Tensor& vectors = *request.add_sequences()->mutable_inputs_embeds();
  vectors.add_shape(tokens);
  vectors.add_shape(10);
  vectors.set_data(std::string(static_cast<size_t>(tokens) * 10 * sizeof(float), '\0'));
  request.mutable_outputs()->mutable_attentions();
  request.set_max_response_bytes(64 << 20);
  return request;
}

// 64 clients with a connection each, all at once; each makes three calls, one after another, whose
// answers have 0.1 to 4 MB.
void Burst(const Encoderd& encoderd) {
  constexpr int kClients = 64;
  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) {
    clients.emplace_back([&encoderd, client] {
      const auto stub = v1::EncoderService::NewStub(encoderd.Connect());
      const v1::EncodeRequest request = MapsRequest(100 + client * 37 % 478);
      for (int call = 0; call < 3; ++call) {
        grpc::ClientContext context;
        // gRPC's client takes another error for one of its connection when many connect at once.
        context.set_wait_for_ready(true);
        v1::EncodeResponse response;
        const grpc::Status status = stub->Encode(&context, request, &response);
        EXPECT_TRUE(status.ok()) << status.error_message();
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

// What the server's README states as the ceiling.
TEST(MemoryTest, IsGivenBackAfterBurstsOfLargeAnswers) {
  Encoderd encoderd({kModel, "--workers=2"});
  encoderd.AwaitServing();
  const int64_t idle = encoderd.process().ResidentBytes();
  Burst(encoderd);
  const int64_t first = encoderd.process().ResidentBytes();
  EXPECT_LT(first - idle, 32 << 20);
  Burst(encoderd);
  EXPECT_LT(encoderd.process().ResidentBytes() - first, 8 << 20);
}

}  // namespace
}  // namespace encoderd
