// Goal: the calls of a load are valid for the model, have the lengths that were asked for, and are
// the same for the same seed.
// Method: pools for models of ids and of vectors, read back.
#include "deploy/client/load/requests.h"

#include <gmock/gmock.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "absl/status/status_matchers.h"

namespace encoderd::client {
namespace {

using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::GetModelResponse IdsModel() {
  v1::GetModelResponse model;
  model.set_name("tiny");
  model.set_vocab_size(50);
  model.set_max_sequence_tokens(512);
  model.set_max_request_sequences(8);
  model.set_max_request_tokens(1000);
  return model;
}

LoadOptions Options(std::string_view lengths) {
  LoadOptions options{.lengths = *LengthDistribution::Parse(lengths)};
  options.outputs.set_last_hidden_state(true);
  return options;
}

v1::EncodeRequest Read(const PreparedRequest& request) {
  grpc::ByteBuffer bytes = request.bytes;
  grpc::ProtoBufferReader reader(&bytes);
  v1::EncodeRequest message;
  EXPECT_TRUE(message.ParseFromZeroCopyStream(&reader));
  return message;
}

TEST(PrepareRequestsTest, FollowsTheDistributionWithValidIds) {
  LoadOptions options = Options("squad");
  options.sequences = 2;
  options.priority = v1::PRIORITY_BULK;
  options.model = "m";
  const auto pool = PrepareRequests(options, IdsModel());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->size(), kMaxPoolRequests);
  double tokens = 0;
  for (const PreparedRequest& request : *pool) {
    const v1::EncodeRequest message = Read(request);
    ASSERT_EQ(message.sequences_size(), 2);
    EXPECT_EQ(message.priority(), v1::PRIORITY_BULK);
    EXPECT_EQ(message.model(), "m");
    EXPECT_EQ(message.max_response_bytes(), 64u << 20);
    EXPECT_TRUE(message.outputs().last_hidden_state());
    EXPECT_EQ(request.num_bytes, message.ByteSizeLong());
    uint32_t sum = 0;
    for (const v1::Sequence& sequence : message.sequences()) {
      sum += static_cast<uint32_t>(sequence.input_ids_size());
      for (const int32_t id : sequence.input_ids()) {
        ASSERT_GE(id, 0);
        ASSERT_LT(id, 50);
      }
    }
    EXPECT_EQ(request.tokens, sum);
    tokens += request.tokens;
  }
  EXPECT_NEAR(tokens / static_cast<double>(pool->size()), 2 * 177, 0.5);
}

TEST(PrepareRequestsTest, SendsVectorsToModelsThatTakeThem) {
  v1::GetModelResponse model = IdsModel();
  model.set_vocab_size(0);
  model.set_input_dim(3);
  const auto pool = PrepareRequests(Options("fixed:4"), model);
  ASSERT_TRUE(pool.ok()) << pool.status();
  const v1::Tensor tensor = Read(pool->front()).sequences(0).inputs_embeds();
  EXPECT_THAT(tensor.shape(), ElementsAre(4, 3));
  ASSERT_EQ(tensor.data().size(), 12 * sizeof(float));
  float values[12];
  std::memcpy(values, tensor.data().data(), sizeof(values));
  for (const float value : values) EXPECT_LE(std::abs(value), 1);
}

TEST(PrepareRequestsTest, KeepsThePoolWithinItsBytes) {
  v1::GetModelResponse model = IdsModel();
  model.set_input_dim(1 << 20);  // 4 MiB a token
  EXPECT_EQ(PrepareRequests(Options("fixed:4"), model)->size(), 4u);
  EXPECT_EQ(PrepareRequests(Options("fixed:64"), model)->size(), 1u);
}

TEST(PrepareRequestsTest, RepeatsItselfForTheSameSeedOnly) {
  LoadOptions options = Options("short");
  const auto one = PrepareRequests(options, IdsModel());
  const auto same = PrepareRequests(options, IdsModel());
  options.seed = 2;
  const auto other = PrepareRequests(options, IdsModel());
  EXPECT_EQ(Read((*one)[5]).SerializeAsString(), Read((*same)[5]).SerializeAsString());
  EXPECT_NE(Read((*one)[5]).SerializeAsString(), Read((*other)[5]).SerializeAsString());
}

TEST(PrepareRequestsTest, RefusesWhatTheModelDoesNotTake) {
  const v1::GetModelResponse model = IdsModel();
  EXPECT_TRUE(PrepareRequests(Options("fixed:512"), model).ok());
  EXPECT_THAT(PrepareRequests(Options("fixed:513"), model),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--lengths=fixed:513"), HasSubstr("at most 512"))));
  LoadOptions options = Options("fixed:125");
  options.sequences = 8;
  EXPECT_TRUE(PrepareRequests(options, model).ok());
  options.sequences = 9;
  EXPECT_THAT(PrepareRequests(options, model),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 8, as tiny takes")));
  options = Options("fixed:126");
  options.sequences = 8;
  EXPECT_THAT(PrepareRequests(options, model),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 1000 tokens")));
}

}  // namespace
}  // namespace encoderd::client
