// Goal: a call is answered whole or refused whole, with the code, reason and details that the
// contract names; its neighbours never notice.
// Method: a whole server around the fake engine, over a socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/test_server.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
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
  const double dropped = server.Metric("encoderd_shadow_dropped_total{reason=\"no_room\"}");
  EXPECT_GE(dropped, 46);
  EXPECT_EQ(server.Metric("encoderd_shadow_error_count"), 0);
  server.reference().latch().Open();
  server.AwaitMetric("encoderd_shadow_error_count", 51 - dropped);
  EXPECT_GT(server.Metric("encoderd_shadow_error_sum"), 1e-3);
}

}  // namespace
}  // namespace encoderd
