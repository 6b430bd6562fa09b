// Turns token ids into one vector.
//
//   encode_sample 127.0.0.1:50051 101 7592 102
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "encoderd/v1/encoder.grpc.pb.h"

namespace v1 = encoderd::v1;

// The server refuses an answer that is larger than max_response_bytes, and gRPC one that is larger
// than its own limit: the two belong together.
constexpr int kMaxResponseBytes = 64 << 20;

// Ends the program with the server's text if a call failed.
void Require(const grpc::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.error_message().c_str());
  std::exit(1);
}

// An fp32 tensor, row by row.
std::vector<float> Floats(const v1::Tensor& tensor) {
  std::vector<float> values(tensor.data().size() / sizeof(float));
  std::memcpy(values.data(), tensor.data().data(), values.size() * sizeof(float));
  return values;
}

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: encode_sample HOST:PORT ID...\n");
    return 64;
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxResponseBytes);
  const auto encoder = v1::EncoderService::NewStub(
      grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments));
  const auto deadline = std::chrono::system_clock::now() + std::chrono::seconds(10);

  grpc::ClientContext model_context;
  model_context.set_deadline(deadline);
  v1::GetModelResponse model;
  Require(encoder->GetModel(&model_context, v1::GetModelRequest(), &model));
  std::printf("model %s: %u layers, hidden size %u\n", model.name().c_str(), model.num_layers(),
              model.hidden_size());

  v1::EncodeRequest request;
  request.set_max_response_bytes(kMaxResponseBytes);
  v1::Sequence& sequence = *request.add_sequences();
  for (int i = 2; i < argc; ++i) sequence.add_input_ids(std::atoi(argv[i]));
  request.mutable_outputs()->add_pooled()->set_kind(v1::POOLING_MEAN);

  grpc::ClientContext context;
  context.set_deadline(deadline);
  v1::EncodeResponse answer;
  Require(encoder->Encode(&context, request, &answer));
  const std::vector<float> vector = Floats(answer.pooled(0));
  std::printf("%d tokens -> %zu numbers:", argc - 2, vector.size());
  for (size_t i = 0; i < std::min<size_t>(4, vector.size()); ++i) std::printf(" %.6f", vector[i]);
  std::printf("\n");
}
