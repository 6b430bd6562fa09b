// Goal: GetModel says all that is served, and refuses what it would not read.
// Method: a whole server around the fake engine, over a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

TEST(GetModelTest, SaysEverythingThatIsServed) {
  TestServer server;
  v1::GetModelResponse model;
  grpc::ClientContext context;
  ASSERT_TRUE(server.encoder().GetModel(&context, {}, &model).ok());
  v1::GetModelResponse expected;
  expected.set_name("fake");
  expected.set_family("fake");
  expected.set_server_version(Version());
  expected.set_numerics_id("fake-numerics");
  expected.set_weights_sha256("fake-weights");
  expected.set_tokenizer_sha256("fake-tokenizer");
  expected.set_precision("fp32");
  expected.set_isa("none");
  expected.set_num_layers(2);
  expected.set_num_heads(2);
  expected.set_hidden_size(8);
  expected.set_inputs_embeds_width(8);
  expected.set_vocab_size(100);
  expected.set_type_vocab_size(2);
  expected.set_max_sequence_tokens(512);
  expected.set_max_request_sequences(16);
  expected.set_max_request_tokens(4096);
  expected.set_max_request_bytes(64 << 20);
  expected.set_max_response_bytes(64 << 20);
  expected.set_default_pooling(v1::POOLING_MEAN);
  for (const char* output : {"last_hidden_state", "hidden_states", "attentions", "pooled"}) {
    expected.add_outputs(output);
  }
  EXPECT_EQ(model.DebugString(), expected.DebugString());
}

TEST(GetModelTest, RefusesWhatItWouldDropAndWhatIsTooLarge) {
  TestServer server;
  v1::GetModelRequest request;
  v1::GetModelResponse model;
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(9, 1);
  grpc::ClientContext unknown;
  EXPECT_THAT(server.encoder().GetModel(&unknown, request, &model),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "UNKNOWN_FIELD", "field 9"));
  request.Clear();
  request.set_model(std::string(64 << 10, 'm'));
  grpc::ClientContext large;
  EXPECT_THAT(server.encoder().GetModel(&large, request, &model),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "REQUEST_TOO_LARGE", "at most 65536"));
}

TEST(GetModelTest, RefusesAnotherModel) {
  TestServer server;
  v1::GetModelRequest request;
  request.set_model("other");
  v1::GetModelResponse model;
  grpc::ClientContext context;
  EXPECT_THAT(server.encoder().GetModel(&context, request, &model),
              Refused(grpc::StatusCode::NOT_FOUND, "MODEL_NOT_FOUND", ""));
}

}  // namespace
}  // namespace encoderd
