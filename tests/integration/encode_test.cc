// Goal: a call is answered whole or refused whole, with the code, reason and details that the
// contract names; its neighbours never notice.
// Method: a whole server around the fake engine, over a socket.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<float> Floats(const v1::Tensor& tensor) {
  std::vector<float> values(tensor.data().size() / sizeof(float));
  std::memcpy(values.data(), tensor.data().data(), values.size() * sizeof(float));
  return values;
}

// What the fake engine says of sequences of these ids.
std::vector<float> States(const std::vector<std::vector<int32_t>>& sequences) {
  std::vector<float> values;
  for (const auto& ids : sequences) {
    for (size_t row = 0; row < ids.size(); ++row) {
      for (int64_t column = 0; column < 8; ++column) {
        values.push_back(FakeEngine::Value(ids[row], static_cast<int64_t>(row), column));
      }
    }
  }
  return values;
}

// ---- Answers ----------------------------------------------------------------------------------

TEST(EncodeTest, AnswersSequencesInOrder) {
  TestServer server;
  v1::EncodeResponse response;
  ASSERT_TRUE(server.Encode(IdsRequest({{5, 6}, {7}, {8, 9, 10}}), &response).ok());
  EXPECT_THAT(response.token_offsets(), ElementsAre(0, 2, 3, 6));
  EXPECT_EQ(response.last_hidden_state().dtype(), v1::DATA_TYPE_FP32);
  EXPECT_THAT(response.last_hidden_state().shape(), ElementsAre(6, 8));
  EXPECT_EQ(Floats(response.last_hidden_state()), States({{5, 6}, {7}, {8, 9, 10}}));
  EXPECT_EQ(response.numerics_id(), "fake-numerics");
  EXPECT_EQ(response.timing().batches(), 1);
  EXPECT_EQ(response.timing().batch_tokens(), 6);
  EXPECT_EQ(response.timing().layers_run(), 2);
  EXPECT_THAT(response.hidden_states(), IsEmpty());
  EXPECT_FALSE(response.has_logits());
}

TEST(EncodeTest, AnswersEveryKindOfOutput) {
  TestServer server;
  v1::EncodeRequest request = IdsRequest({{5, 6}, {7, 8, 9}});
  request.mutable_outputs()->set_dtype(v1::DATA_TYPE_FP16);
  request.mutable_outputs()->add_hidden_states(-2);
  request.mutable_outputs()->mutable_attentions()->add_layers(-1);
  request.mutable_outputs()->mutable_attentions()->add_query_rows(1);
  request.mutable_outputs()->add_pooled()->set_dimensions(3);
  v1::EncodeResponse response;
  ASSERT_TRUE(server.Encode(request, &response).ok());
  EXPECT_EQ(response.last_hidden_state().data().size(), 5 * 8 * 2);
  ASSERT_THAT(response.hidden_states(), SizeIs(1));
  EXPECT_EQ(response.hidden_states(0).layer(), 1);
  EXPECT_THAT(response.hidden_states(0).tensor().shape(), ElementsAre(5, 8));
  ASSERT_THAT(response.attentions(), SizeIs(2));
  EXPECT_EQ(response.attentions(1).sequence(), 1);
  EXPECT_EQ(response.attentions(1).layer(), 1);
  EXPECT_THAT(response.attentions(1).heads(), ElementsAre(0, 1));
  EXPECT_THAT(response.attentions(1).query_rows(), ElementsAre(1));
  EXPECT_THAT(response.attentions(1).tensor().shape(), ElementsAre(2, 1, 3));
  ASSERT_THAT(response.pooled(), SizeIs(1));
  EXPECT_THAT(response.pooled(0).shape(), ElementsAre(2, 3));
  EXPECT_EQ(response.pooled(0).dtype(), v1::DATA_TYPE_FP16);
}

TEST(EncodeTest, SpreadsACallOverBatches) {
  TestServer server;
  std::vector<std::vector<int32_t>> sequences(8, std::vector<int32_t>(200, 3));
  v1::EncodeResponse response;
  ASSERT_TRUE(server.Encode(IdsRequest(sequences), &response).ok());
  EXPECT_GE(response.timing().batches(), 4);
  EXPECT_EQ(Floats(response.last_hidden_state()), States(sequences));
}

TEST(EncodeTest, EchoesTheRequestsId) {
  TestServer server;
  v1::EncodeRequest request = IdsRequest({{5}});
  v1::EncodeResponse made_up, from_metadata, from_field;
  ASSERT_TRUE(server.Encode(request, &made_up).ok());
  EXPECT_THAT(made_up.request_id(), SizeIs(16));

  grpc::ClientContext with_metadata;
  with_metadata.AddMetadata("x-request-id", "from metadata");
  ASSERT_TRUE(server.encoder().Encode(&with_metadata, request, &from_metadata).ok());
  EXPECT_EQ(from_metadata.request_id(), "from metadata");

  request.set_request_id("from the field");
  grpc::ClientContext with_both;
  with_both.AddMetadata("x-request-id", "from metadata");
  ASSERT_TRUE(server.encoder().Encode(&with_both, request, &from_field).ok());
  EXPECT_EQ(from_field.request_id(), "from the field");

  request.clear_outputs();
  EXPECT_EQ(DetailOf<google::rpc::RequestInfo>(server.Encode(request))->request_id(),
            "from the field");
}

TEST(EncodeTest, ServesItsModelByNameAndNoOther) {
  TestServer server;
  v1::EncodeRequest request = IdsRequest({{5}});
  request.set_model("fake");
  EXPECT_TRUE(server.Encode(request).ok());
  request.set_model("other");
  EXPECT_THAT(server.Encode(request),
              Refused(grpc::StatusCode::NOT_FOUND, "MODEL_NOT_FOUND", "expected \"\" or \"fake\""));
}

// Whether nothing fits, or the tensors do and what lies around them does not.
TEST(EncodeTest, ASizeThatItNamesIsEnough) {
  TestServer server;
  for (const uint64_t limit : {1, 100 * 8 * 4 - 1, 100 * 8 * 4}) {
    v1::EncodeRequest request = IdsRequest({std::vector<int32_t>(100, 5)});
    request.set_max_response_bytes(limit);
    const grpc::Status refused = server.Encode(request);
    EXPECT_THAT(refused, Refused(grpc::StatusCode::INVALID_ARGUMENT, "ANSWER_TOO_LARGE",
                                 absl::StrCat("expected at most ", limit)));
    const std::string text = refused.error_message();
    const uint64_t named = std::stoul(text.substr(text.find("needs ") + 6));
    request.set_max_response_bytes(named - 1);
    EXPECT_THAT(server.Encode(request),
                Refused(grpc::StatusCode::INVALID_ARGUMENT, "ANSWER_TOO_LARGE",
                        absl::StrCat("needs ", named, " bytes; expected at most ", named - 1)));
    request.set_max_response_bytes(named);
    v1::EncodeResponse response;
    EXPECT_TRUE(server.Encode(request, &response).ok());
    EXPECT_LE(response.ByteSizeLong(), named);
  }
}

TEST(EncodeTest, DefaultLimitIsWhatAnUnconfiguredClientCanTake) {
  Options options = TestOptions();
  options.max_request_tokens = 200000;
  options.max_queue_tokens = 200000;
  options.max_request_sequences = 1000;
  TestServer server(options);
  // 32 bytes a token: 4 MiB are 131072 tokens without anything around them.
  v1::EncodeRequest request =
      IdsRequest(std::vector<std::vector<int32_t>>(256, std::vector<int32_t>(512, 5)));
  EXPECT_THAT(server.Encode(request), Refused(grpc::StatusCode::INVALID_ARGUMENT,
                                              "ANSWER_TOO_LARGE", "expected at most 4194304"));
  request.mutable_sequences()->RemoveLast();
  EXPECT_TRUE(server.Encode(request).ok());
}

TEST(EncodeTest, NoCallerGetsMoreThanTheServersOwnLimit) {
  Options options = TestOptions();
  options.max_response_bytes = 5000;
  TestServer server(options);
  v1::EncodeRequest request = IdsRequest({std::vector<int32_t>(100, 5)});
  request.set_max_response_bytes(std::numeric_limits<uint64_t>::max());
  EXPECT_TRUE(server.Encode(request).ok());
  request.mutable_sequences(0)->mutable_input_ids()->Resize(200, 5);
  EXPECT_THAT(server.Encode(request), Refused(grpc::StatusCode::INVALID_ARGUMENT,
                                              "ANSWER_TOO_LARGE", "expected at most 5000"));
}

// ---- Bad input --------------------------------------------------------------------------------

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

// ---- Below the messages -----------------------------------------------------------------------

grpc::Status CallRaw(TestServer& server, const std::string& method, const std::string& bytes,
                     std::string* answer = nullptr) {
  grpc::GenericStub stub(server.channel());
  grpc::ClientContext context;
  grpc::Slice slice(bytes);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  Mutex mutex;
  CondVar ended;
  std::optional<grpc::Status> status;
  stub.UnaryCall(&context, method, grpc::StubOptions(), &request, &response,
                 [&](grpc::Status ended_with) {
                   MutexLock lock(mutex);
                   status = std::move(ended_with);
                   ended.NotifyAll();
                 });
  MutexLock lock(mutex);
  while (!status.has_value()) ended.Wait(mutex);
  if (answer != nullptr) {
    std::vector<grpc::Slice> slices;
    EXPECT_TRUE(response.Dump(&slices).ok());
    for (const grpc::Slice& piece : slices) {
      answer->append(reinterpret_cast<const char*>(piece.begin()), piece.size());
    }
  }
  return *status;
}

TEST(WireTest, MalformedMessagesAreRefusedAndCounted) {
  TestServer server;
  for (const char* method : {"Encode", "GetModel"}) {
    EXPECT_THAT(CallRaw(server, absl::StrCat("/encoderd.v1.EncoderService/", method), "\x0a\x05x"),
                Refused(grpc::StatusCode::INVALID_ARGUMENT, "MALFORMED", "the bytes are not a"));
    EXPECT_EQ(server.Metric(absl::StrCat("encoderd_calls_total{code=\"INVALID_ARGUMENT\",method=\"",
                                         method, "\"}")),
              1);
  }
  EXPECT_EQ(server.Metric("encoderd_refusals_total{reason=\"MALFORMED\"}"), 2);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

TEST(WireTest, AnIdThatDoesNotFitIsNotCutOff) {
  TestServer server;
  // input_ids [−2⁶³], whose lower half is the id 0, and a field that asks for the last state.
  const std::string bytes(
      "\x12\x0c\x0a\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01\x1a\x02\x10\x01", 18);
  EXPECT_THAT(CallRaw(server, "/encoderd.v1.EncoderService/Encode", bytes),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "UNSUPPORTED_VALUE",
                      "sequences[0].input_ids[0]: -9223372036854775808"));
}

TEST(WireTest, UnknownMethodsAreRefusedAndCounted) {
  TestServer server;
  EXPECT_THAT(CallRaw(server, "/encoderd.v1.EncoderService/Decode", ""),
              Refused(grpc::StatusCode::UNIMPLEMENTED, "UNKNOWN_METHOD", "EncodeChunked"));
  EXPECT_THAT(CallRaw(server, "/no.such.Service/Method", ""),
              Refused(grpc::StatusCode::UNIMPLEMENTED, "UNKNOWN_METHOD", ""));
  EXPECT_EQ(server.Metric("encoderd_calls_total{code=\"UNIMPLEMENTED\",method=\"other\"}"), 2);
}

TEST(WireTest, RequestsAboveTheLimitLeaveTheConnectionOfUse) {
  TestServer server;
  const std::string over(size_t{65} << 20, '\0');  // above our limit, below gRPC's
  EXPECT_THAT(CallRaw(server, "/encoderd.v1.EncoderService/Encode", over),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "REQUEST_TOO_LARGE",
                      "expected at most 67108864"));
  const std::string far_over(size_t{129} << 20, '\0');
  EXPECT_EQ(CallRaw(server, "/encoderd.v1.EncoderService/Encode", far_over).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

// The limit is on what a message has when nothing is packed, to the byte.
TEST(WireTest, RequestsOfAnySizeUpToTheLimitAreRead) {
  TestServer server;
  const auto of_size = [](size_t bytes) {
    v1::EncodeRequest request;  // a name and nothing else
    request.set_model(std::string(bytes - 10, 'm'));
    request.set_model(std::string(bytes - 10 + (bytes - request.ByteSizeLong()), 'm'));
    EXPECT_EQ(request.ByteSizeLong(), bytes);
    return request.SerializeAsString();
  };
  const std::string encode = "/encoderd.v1.EncoderService/Encode";
  for (const size_t bytes : {4194303, 4194304, 4194305, 64 << 20}) {
    EXPECT_THAT(CallRaw(server, encode, of_size(bytes)),
                Refused(grpc::StatusCode::NOT_FOUND, "MODEL_NOT_FOUND", "no such model"))
        << bytes;
  }
  EXPECT_THAT(CallRaw(server, encode, of_size((64 << 20) + 1)),
              Refused(grpc::StatusCode::INVALID_ARGUMENT, "REQUEST_TOO_LARGE", "67108865 bytes"));
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

// Bytes of memory that this process has, client and server.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(WireTest, HostileSizesCostNothing) {
  TestServer server;
  const auto vectors = [](std::vector<int64_t> shape, size_t bytes) {
    v1::EncodeRequest request = IdsRequest({{}});
    v1::Tensor& tensor = *request.mutable_sequences(0)->mutable_inputs_embeds();
    tensor.mutable_shape()->Assign(shape.begin(), shape.end());
    tensor.set_data(std::string(bytes, '\0'));
    return request;
  };
  std::vector<v1::EncodeRequest> requests = {
      vectors({-1, 5}, 0),
      vectors({int64_t{1} << 32, int64_t{1} << 32}, 0),
      vectors({int64_t{1} << 59, 8}, 0),
      vectors({1, 0}, 0),
      vectors({2, 8}, 63),
      vectors({2, 8}, 65),
      IdsRequest(std::vector<std::vector<int32_t>>(500000)),  // a megabyte of empty sequences
  };
  requests.push_back(IdsRequest({std::vector<int32_t>(4000, 1)}));
  requests.back().mutable_sequences(0)->mutable_mask()->set_pairs(std::string(60000, '\1'));
  requests.push_back(
      IdsRequest(std::vector<std::vector<int32_t>>(8, std::vector<int32_t>(512, 1))));
  requests.back().mutable_outputs()->mutable_attentions();

  for (const v1::EncodeRequest& request : requests) server.Encode(request);  // buffers of gRPC's
  const int64_t before = ResidentBytes();
  for (const v1::EncodeRequest& request : requests) {
    EXPECT_EQ(server.Encode(request).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_LT(ResidentBytes() - before, 10 << 20);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

// ---- Engine faults ----------------------------------------------------------------------------

TEST(EngineFaultTest, ANonFiniteResultEndsItsOwnCallAlone) {
  TestServer server;
  server.engine().latch().Close();
  PendingCall first(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  PendingCall bad(server.encoder(), IdsRequest({{2, 3}, {FakeEngine::kNonFinite, 1}}));
  PendingCall good(server.encoder(), IdsRequest({{4, 5}}));
  server.AwaitMetric("encoderd_queue_calls", 2);
  server.engine().latch().Open();
  EXPECT_THAT(bad.status(), Refused(grpc::StatusCode::INTERNAL, "NON_FINITE_RESULT", "has a NaN"));
  ASSERT_TRUE(good.status().ok());
  EXPECT_EQ(Floats(good.response().last_hidden_state()), States({{4, 5}}));
  EXPECT_TRUE(first.status().ok());
}

TEST(EngineFaultTest, AFailedBatchIsRunAgainWithoutTheCallThatFailsIt) {
  TestServer server;
  server.engine().latch().Close();
  PendingCall first(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  PendingCall bad(server.encoder(), IdsRequest({{FakeEngine::kFailsBatch}}));
  PendingCall good(server.encoder(), IdsRequest({{4, 5}}));
  server.AwaitMetric("encoderd_queue_calls", 2);
  server.engine().latch().Open();
  EXPECT_THAT(bad.status(),
              Refused(grpc::StatusCode::INTERNAL, "ENGINE_FAILURE", "a kernel failed"));
  ASSERT_TRUE(good.status().ok());
  EXPECT_EQ(Floats(good.response().last_hidden_state()), States({{4, 5}}));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

TEST(EngineFaultTest, NoMemoryForAnAnswerIsOverload) {
  TestServer server;
  for (const auto memory : {FakeEngine::Memory::kExhausted, FakeEngine::Memory::kThrows}) {
    server.engine().SetMemory(memory);
    PendingCall call(server.encoder(), IdsRequest({{1}}));
    EXPECT_THAT(call.status(),
                Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "OUT_OF_MEMORY", "no memory for"));
    EXPECT_EQ(call.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
    EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(call.status()).has_value());
  }
  server.engine().SetMemory(FakeEngine::Memory::kPlenty);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
  server.AwaitMetric("encoderd_calls_in_flight", 0);
}

// ---- Overload, deadlines, cancellation --------------------------------------------------------

TEST(OverloadTest, AFullQueueRefusesAtOnceAndSaysWhenToComeAgain) {
  Options options = TestOptions();
  options.max_queue_requests = 2;
  TestServer server(options);
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  PendingCall waiting_1(server.encoder(), IdsRequest({{2}}));
  PendingCall waiting_2(server.encoder(), IdsRequest({{3}}));
  server.AwaitMetric("encoderd_queue_calls", 2);

  PendingCall refused(server.encoder(), IdsRequest({{4}}));
  EXPECT_THAT(refused.status(), Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "QUEUE_FULL", ""));
  const auto& metadata = refused.context().GetServerTrailingMetadata();
  const auto pushback = metadata.find("grpc-retry-pushback-ms");
  ASSERT_NE(pushback, metadata.end());
  EXPECT_GE(std::stoi(std::string(pushback->second.data(), pushback->second.size())), 1);
  EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(refused.status()).has_value());

  server.engine().latch().Open();
  EXPECT_TRUE(running.status().ok());
  EXPECT_TRUE(waiting_1.status().ok());
  EXPECT_TRUE(waiting_2.status().ok());
}

TEST(OverloadTest, AConnectionHasAShareOfTheCalls) {
  Options options = TestOptions();
  options.max_connection_inflight = 2;
  TestServer server(options);
  server.engine().latch().Close();
  PendingCall first(server.encoder(), IdsRequest({{1}}));
  PendingCall second(server.encoder(), IdsRequest({{2}}));
  server.AwaitMetric("encoderd_calls_in_flight", 2);
  EXPECT_THAT(server.Encode(IdsRequest({{3}})),
              Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "CONNECTION_BUSY", "2 calls"));

  const auto other = v1::EncoderService::NewStub(server.Connect());
  PendingCall elsewhere(*other, IdsRequest({{3}}));
  server.AwaitMetric("encoderd_calls_in_flight", 3);
  server.engine().latch().Open();
  EXPECT_TRUE(elsewhere.status().ok());
  EXPECT_TRUE(first.status().ok());
  EXPECT_TRUE(second.status().ok());
  EXPECT_TRUE(server.Encode(IdsRequest({{3}})).ok());
}

// A call whose answer is never read: 8 MB, of which gRPC sends what the window of a stream holds.
class UnreadCall {
 public:
  explicit UnreadCall(const std::shared_ptr<grpc::Channel>& channel) : stub_(channel) {
    v1::EncodeRequest request =
        IdsRequest({std::vector<int32_t>(500, 1), std::vector<int32_t>(500, 2)});
    request.mutable_outputs()->mutable_attentions();
    request.set_max_response_bytes(32 << 20);
    const grpc::Slice bytes(request.SerializeAsString());
    call_ = stub_.PrepareCall(&context_, "/encoderd.v1.EncoderService/Encode", &events_);
    call_->StartCall(nullptr);
    Await();
    call_->WriteLast(grpc::ByteBuffer(&bytes, 1), {}, nullptr);
    Await();
  }
  ~UnreadCall() {
    context_.TryCancel();
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Await();
  }

  static grpc::ChannelArguments SmallWindow() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return arguments;
  }

 private:
  void Await() {
    void* tag;
    bool ok;
    ASSERT_TRUE(events_.Next(&tag, &ok));
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue events_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
};

TEST(UnreadAnswersTest, StayInTheMemoryThatAllCallsShare) {
  Options options = TestOptions();
  options.max_inflight_bytes = 12'000'000;
  TestServer server(options);
  {
    UnreadCall unread(server.Connect(UnreadCall::SmallWindow()));
    server.AwaitMetric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}", 1);
    EXPECT_GE(server.Metric("encoderd_inflight_bytes"), 8'000'000);

    v1::EncodeRequest request = IdsRequest({std::vector<int32_t>(512, 3)});
    EXPECT_TRUE(server.Encode(request).ok());
    request.mutable_outputs()->mutable_attentions();  // 4 MiB
    request.set_max_response_bytes(32 << 20);
    PendingCall refused(server.encoder(), request);
    EXPECT_THAT(refused.status(),
                Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "MEMORY_BUDGET", "12000000"));
    EXPECT_EQ(refused.context().GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1);
    EXPECT_TRUE(DetailOf<google::rpc::RetryInfo>(refused.status()).has_value());
  }
  server.AwaitMetric("encoderd_inflight_bytes", 0);
}

TEST(UnreadAnswersTest, CountAgainstTheirConnection) {
  Options options = TestOptions();
  options.max_inflight_bytes = 60'000'000;  // a connection that does not read may hold a quarter
  TestServer server(options);
  const auto channel = server.Connect(UnreadCall::SmallWindow());
  UnreadCall first(channel);
  server.AwaitMetric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}", 1);
  UnreadCall second(channel);
  server.AwaitMetric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}", 2);
  PendingCall third(*v1::EncoderService::NewStub(channel), IdsRequest({{1}}));
  EXPECT_THAT(third.status(),
              Refused(grpc::StatusCode::RESOURCE_EXHAUSTED, "CONNECTION_BUSY", "not read"));
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
}

TEST(UnreadAnswersTest, AreGivenUpAtTheDefaultDeadline) {
  Options options = TestOptions();
  options.default_deadline = absl::Milliseconds(500);
  TestServer server(options);
  UnreadCall unread(server.Connect(UnreadCall::SmallWindow()));
  server.AwaitMetric("encoderd_calls_total{code=\"OK\",method=\"Encode\"}", 1);
  server.AwaitMetric("encoderd_inflight_bytes", 0);
}

TEST(DeadlineTest, EndsAWaitingCallAndItIsNotRun) {
  TestServer server;
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  const int64_t run_before = server.engine().sequences_run();
  PendingCall late(server.encoder(), IdsRequest({{2}}), absl::Milliseconds(100));
  EXPECT_EQ(late.status().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  server.AwaitMetric("encoderd_calls_total{code=\"DEADLINE_EXCEEDED\",method=\"Encode\"}", 1);
  server.engine().latch().Open();
  EXPECT_TRUE(running.status().ok());
  EXPECT_TRUE(server.server().Drain());
  EXPECT_EQ(server.engine().sequences_run(), run_before + 1);
}

// A deadline is a point in time: a call that took more than half of its time to be admitted still
// has the rest of it.
TEST(DeadlineTest, DoesNotComeEarlyForACallThatIsSlowToAdmit) {
  TestServer server;
  server.engine().allocation_latch().Close();
  PendingCall call(server.encoder(), IdsRequest({{1}}), absl::Seconds(3));
  server.engine().allocation_latch().AwaitWaiting(1);
  absl::SleepFor(absl::Milliseconds(1700));
  server.engine().allocation_latch().Open();
  EXPECT_TRUE(call.status().ok()) << call.status().error_message();
}

TEST(DeadlineTest, CallsWithoutOneGetTheDefaultAndAreCounted) {
  Options options = TestOptions();
  options.default_deadline = absl::Milliseconds(50);
  TestServer server(options);
  EXPECT_TRUE(server.Encode(IdsRequest({{1}})).ok());
  server.engine().latch().Close();
  EXPECT_THAT(server.Encode(IdsRequest({{2}})),
              Refused(grpc::StatusCode::DEADLINE_EXCEEDED, "DEADLINE", "the deadline passed"));
  PendingCall patient(server.encoder(), IdsRequest({{3}}), absl::Seconds(60));
  server.AwaitMetric("encoderd_calls_in_flight", 1);
  server.engine().latch().Open();
  EXPECT_TRUE(patient.status().ok());
  EXPECT_EQ(server.Metric("encoderd_calls_without_deadline_total"), 2);
}

TEST(CancelTest, ACancelledCallIsNotRun) {
  TestServer server;
  server.engine().latch().Close();
  PendingCall running(server.encoder(), IdsRequest({{1}}));
  server.engine().latch().AwaitWaiting(1);
  const int64_t run_before = server.engine().sequences_run();
  PendingCall cancelled(server.encoder(), IdsRequest({{2}}), absl::Seconds(60));
  server.AwaitMetric("encoderd_queue_calls", 1);
  cancelled.Cancel();
  EXPECT_EQ(cancelled.status().error_code(), grpc::StatusCode::CANCELLED);
  server.AwaitMetric("encoderd_queue_calls", 0);
  server.engine().latch().Open();
  EXPECT_TRUE(running.status().ok());
  EXPECT_TRUE(server.server().Drain());
  EXPECT_EQ(server.engine().sequences_run(), run_before + 1);
  EXPECT_EQ(server.Metric("encoderd_calls_total{code=\"CANCELLED\",method=\"Encode\"}"), 1);
}

// ---- The shadow -------------------------------------------------------------------------------

TEST(ShadowTest, NoCallWaitsForASampleAndTheErrorIsExported) {
  Options options = TestOptions();
  options.shadow_every = 1;
  options.workers = 2;
  TestServer server(options);
  server.reference().SetError(50);
  server.reference().latch().Close();
  EXPECT_TRUE(server.Encode(IdsRequest({{1, 2}})).ok());
  server.reference().latch().AwaitWaiting(1);
  for (int call = 0; call < 50; ++call) EXPECT_TRUE(server.Encode(IdsRequest({{1, 2}})).ok());
  EXPECT_EQ(server.Metric("encoderd_shadow_sampled_total"), 51);
  EXPECT_GE(server.Metric("encoderd_shadow_dropped_total{reason=\"no_room\"}"), 46);
  EXPECT_EQ(server.Metric("encoderd_shadow_error_count"), 0);
  server.reference().latch().Open();
  while (server.Metric("encoderd_shadow_error_count") < 1) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_GT(server.Metric("encoderd_shadow_error_sum"), 1e-3);
}

// ---- GetModel ---------------------------------------------------------------------------------

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
