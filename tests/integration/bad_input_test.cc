// Goal: a call that is not valid is refused whole, with the code, reason and field of each fault that
// the contract names; its neighbours never notice.
// Method: a whole server around the fake engine, over a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct BadInput {
  const char* name;
  std::function<void(v1::EncodeRequest&)> change;
  const char* reason;
  const char* field;
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
};

void PrintTo(const BadInput& input, std::ostream* out) { *out << input.name; }

class BadInputTest : public ::testing::TestWithParam<BadInput> {};

// The bad call is sent while a good one waits for the same batch.
TEST_P(BadInputTest, IsRefusedWithItsFieldAndNeighboursAreUnchanged) {
  TestServer server;
  v1::EncodeResponse alone;
  ASSERT_TRUE(server.Encode(IdsRequest({{1, 2, 3}, {4}}), &alone).ok());

  server.engine().latch().Close();
  PendingCall neighbour(server.encoder(), IdsRequest({{1, 2, 3}, {4}}));
  v1::EncodeRequest request = IdsRequest({{1, 2, 3}, {4, 5}});
  GetParam().change(request);
  const grpc::Status status = server.Encode(request);
  EXPECT_THAT(status, Refused(GetParam().code, GetParam().reason, GetParam().field));
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad_request.has_value());
  ASSERT_EQ(bad_request->field_violations_size(), 1);
  EXPECT_EQ(bad_request->field_violations(0).field(), GetParam().field);
  EXPECT_EQ(bad_request->field_violations(0).reason(), GetParam().reason);
  EXPECT_THAT(bad_request->field_violations(0).description(), ::testing::Not(IsEmpty()));

  server.engine().latch().Open();
  ASSERT_TRUE(neighbour.status().ok());
  EXPECT_EQ(neighbour.response().last_hidden_state().data(), alone.last_hidden_state().data());
}

v1::Sequence& First(v1::EncodeRequest& request) { return *request.mutable_sequences(0); }
v1::OutputSpec& Outputs(v1::EncodeRequest& request) { return *request.mutable_outputs(); }

INSTANTIATE_TEST_SUITE_P(
    Field, BadInputTest,
    ::testing::Values(
        BadInput{"NoSequences", [](auto& r) { r.clear_sequences(); }, "EMPTY_CALL", "sequences"},
        BadInput{"EmptySequence", [](auto& r) { r.add_sequences(); }, "EMPTY_SEQUENCE",
                 "sequences[2].input_ids"},
        BadInput{"TooManySequences",
                 [](auto& r) {
                   for (int i = 0; i < 15; ++i) r.add_sequences()->add_input_ids(1);
                 },
                 "TOO_MANY_SEQUENCES", "sequences"},
        BadInput{"SequenceTooLong",
                 [](auto& r) {
                   for (int i = 0; i < 510; ++i) First(r).add_input_ids(1);
                 },
                 "SEQUENCE_TOO_LONG", "sequences[0].input_ids"},
        BadInput{"TooManyTokens",
                 [](auto& r) {
                   for (int s = 0; s < 9; ++s) {
                     auto& sequence = *r.add_sequences();
                     for (int i = 0; i < 500; ++i) sequence.add_input_ids(1);
                   }
                 },
                 "TOO_MANY_TOKENS", "sequences[10].input_ids"},
        BadInput{"Id", [](auto& r) { First(r).set_input_ids(1, 100); }, "TOKEN_OUT_OF_RANGE",
                 "sequences[0].input_ids[1]"},
        BadInput{"NegativeId", [](auto& r) { First(r).set_input_ids(2, -1); }, "TOKEN_OUT_OF_RANGE",
                 "sequences[0].input_ids[2]"},
        BadInput{"Type",
                 [](auto& r) {
                   for (int type : {0, 2, 1}) First(r).add_token_type_ids(type);
                 },
                 "TYPE_OUT_OF_RANGE", "sequences[0].token_type_ids[1]"},
        BadInput{"Position",
                 [](auto& r) {
                   for (int position : {0, 1, 512}) First(r).add_position_ids(position);
                 },
                 "POSITION_OUT_OF_RANGE", "sequences[0].position_ids[2]"},
        BadInput{"TypesLength", [](auto& r) { First(r).add_token_type_ids(0); }, "LENGTH_MISMATCH",
                 "sequences[0].token_type_ids"},
        BadInput{"VectorsShape",
                 [](auto& r) {
                   First(r).clear_input_ids();
                   First(r).mutable_inputs_embeds()->add_shape(1);
                   First(r).mutable_inputs_embeds()->add_shape(5);
                 },
                 "SHAPE_MISMATCH", "sequences[0].inputs_embeds.shape"},
        BadInput{"IdsAndVectors", [](auto& r) { First(r).mutable_inputs_embeds(); },
                 "INPUT_KIND_MISMATCH", "sequences[0].inputs_embeds"},
        BadInput{"NotANumber",
                 [](auto& r) {
                   First(r).clear_input_ids();
                   First(r).mutable_inputs_embeds()->add_shape(1);
                   First(r).mutable_inputs_embeds()->add_shape(8);
                   std::string data(32, '\0');
                   data.replace(4, 4, "\x00\x00\xc0\x7f", 4);
                   First(r).mutable_inputs_embeds()->set_data(data);
                 },
                 "NON_FINITE_INPUT", "sequences[0].inputs_embeds.data[1]"},
        BadInput{"TensorType",
                 [](auto& r) {
                   First(r).clear_input_ids();
                   First(r).mutable_inputs_embeds()->add_shape(1);
                   First(r).mutable_inputs_embeds()->add_shape(8);
                   First(r).mutable_inputs_embeds()->set_data(std::string(32, '\0'));
                   First(r).mutable_inputs_embeds()->set_dtype(static_cast<v1::DataType>(7));
                 },
                 "UNSUPPORTED_VALUE", "sequences[0].inputs_embeds.dtype"},
        BadInput{"MaskValue", [](auto& r) { First(r).mutable_mask()->set_keys("\x01\x01\x02"); },
                 "MASK_VALUE", "sequences[0].mask.keys[2]"},
        BadInput{"MaskLength", [](auto& r) { First(r).mutable_mask()->set_keys("\x01"); },
                 "LENGTH_MISMATCH", "sequences[0].mask.keys"},
        BadInput{"MaskPresentAndEmpty", [](auto& r) { First(r).mutable_mask()->set_keys(""); },
                 "LENGTH_MISMATCH", "sequences[0].mask.keys"},
        BadInput{"MaskWithNothingInIt", [](auto& r) { First(r).mutable_mask(); }, "LENGTH_MISMATCH",
                 "sequences[0].mask.keys"},
        BadInput{"MaskHidesAll",
                 [](auto& r) { First(r).mutable_mask()->set_keys(std::string(3, '\0')); },
                 "MASK_HIDES_ALL", "sequences[0].mask.keys"},
        BadInput{"Span", [](auto& r) { First(r).add_spans()->set_end(4); }, "SPAN_OUT_OF_RANGE",
                 "sequences[0].spans[0]"},
        BadInput{"NothingAskedFor", [](auto& r) { r.clear_outputs(); }, "NO_OUTPUTS", "outputs"},
        BadInput{"Layer", [](auto& r) { Outputs(r).add_hidden_states(3); }, "LAYER_OUT_OF_RANGE",
                 "outputs.hidden_states[0]"},
        BadInput{"Head", [](auto& r) { Outputs(r).mutable_attentions()->add_heads(2); },
                 "HEAD_OUT_OF_RANGE", "outputs.attentions.heads[0]"},
        BadInput{"Row", [](auto& r) { Outputs(r).mutable_attentions()->add_query_rows(2); },
                 "ROW_OUT_OF_RANGE", "outputs.attentions.query_rows[0]"},
        BadInput{"Dimensions", [](auto& r) { Outputs(r).add_pooled()->set_dimensions(9); },
                 "DIMENSIONS_OUT_OF_RANGE", "outputs.pooled[0].dimensions"},
        BadInput{"Pooling",
                 [](auto& r) { Outputs(r).add_pooled()->set_kind(static_cast<v1::Pooling>(9)); },
                 "UNSUPPORTED_VALUE", "outputs.pooled[0].kind"},
        BadInput{"Priority", [](auto& r) { r.set_priority(static_cast<v1::Priority>(9)); },
                 "UNSUPPORTED_VALUE", "priority"},
        BadInput{"RequestId", [](auto& r) { r.set_request_id(std::string(129, 'x')); },
                 "UNSUPPORTED_VALUE", "request_id"},
        BadInput{"Logits", [](auto& r) { Outputs(r).set_logits(true); }, "OUTPUT_UNAVAILABLE",
                 "outputs.logits", grpc::StatusCode::FAILED_PRECONDITION},
        BadInput{"Pooler", [](auto& r) { Outputs(r).add_pooled()->set_kind(v1::POOLING_POOLER); },
                 "OUTPUT_UNAVAILABLE", "outputs.pooled[0]", grpc::StatusCode::FAILED_PRECONDITION},
        BadInput{"AnswerTooLarge", [](auto& r) { r.set_max_response_bytes(1); }, "ANSWER_TOO_LARGE",
                 "max_response_bytes"}),
    [](const auto& param) { return param.param.name; });

TEST(BadInputTest, ListsEveryFaultOfACall) {
  TestServer server;
  v1::EncodeRequest request = IdsRequest({{100, -1}, {}, {1}});
  request.set_priority(static_cast<v1::Priority>(3));
  request.mutable_outputs()->add_hidden_states(7);
  const grpc::Status status = server.Encode(request);
  const auto bad_request = DetailOf<google::rpc::BadRequest>(status);
  ASSERT_TRUE(bad_request.has_value());
  std::vector<std::string> fields;
  for (const auto& violation : bad_request->field_violations()) {
    fields.push_back(violation.field());
  }
  EXPECT_THAT(fields,
              ElementsAre("priority", "sequences[0].input_ids[0]", "sequences[0].input_ids[1]",
                          "sequences[1].input_ids", "outputs.hidden_states[0]"));
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(status)->metadata().at("violations"), "5");
}

TEST(BadInputTest, ListsSixteenFaultsAndCountsAll) {
  TestServer server;
  const grpc::Status status = server.Encode(IdsRequest({std::vector<int32_t>(500, -1)}));
  EXPECT_EQ(DetailOf<google::rpc::BadRequest>(status)->field_violations_size(), 16);
  EXPECT_EQ(DetailOf<google::rpc::ErrorInfo>(status)->metadata().at("violations"), "500");
}

TEST(BadInputTest, VectorModelRefusesIds) {
  TestServer server(TestOptions(), TestServer::NotLoaded());
  EncoderSpec& spec = server.engine().mutable_spec();
  spec.input = InputKind::kVectors;
  spec.input_dim = 8;
  spec.vocab_size = 0;
  ASSERT_TRUE(server.Load().ok());
  EXPECT_THAT(server.Encode(IdsRequest({{1}})),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "INPUT_KIND_MISMATCH",
                      "expected inputs_embeds of shape [S, 8]"));
  v1::EncodeRequest request;
  v1::Tensor& tensor = *request.add_sequences()->mutable_inputs_embeds();
  tensor.add_shape(2);
  tensor.add_shape(8);
  tensor.set_data(std::string(64, '\0'));
  request.mutable_outputs()->set_last_hidden_state(true);
  EXPECT_TRUE(server.Encode(request).ok());
}

}  // namespace
}  // namespace encoderd
