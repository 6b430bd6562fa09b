// Goal:   a faultless request becomes a plan with nothing left open.
// Method: requests that leave things out, repeat them or name them in another order; no engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "engine/validation.h"
#include "tests/engine/test_request.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The projection belongs to what the folder says about its vectors, and that is said of the last
// layer.
TEST(PlanTest, ProjectsOnlyVectorsOfTheDefaultPoolingOfTheLastLayer) {
  EncoderSpec spec = TokenSpec();
  spec.projection = {{.names = {"w", ""}, .out = 7}, {.names = {"v", ""}, .out = 500}};
  TestRequest request({5});
  request.request.outputs = {};
  request.request.outputs.pooled = {
      {}, {.dimensions = 450}, {.kind = Pooling::kMean}, {.layer = -1}, {.kind = Pooling::kCls}};
  const Plan plan = PlanOf(spec, request.request);
  ASSERT_THAT(plan.pooled, SizeIs(5));
  const bool projected[] = {true, true, false, false, false};
  const int64_t dimensions[] = {500, 450, 384, 384, 384};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.pooled[i].projected, projected[i]) << i;
    EXPECT_EQ(plan.pooled[i].dimensions, dimensions[i]) << i;
  }
}

TEST(PlanTest, ResolvesEveryDefault) {
  EncoderSpec spec = TokenSpec();
  spec.default_pooling = Pooling::kCls;
  spec.default_normalize = true;
  TestRequest request({5, 7});
  request.sequence(1).spans = {{0, 1}, {2, 7}, {0, 7}};
  request.request.outputs = {};
  request.request.outputs.pooled = {
      {}, {.kind = Pooling::kMax, .normalize = false, .layer = -3, .dimensions = 64}};
  const Plan plan = PlanOf(spec, request.request);
  EXPECT_THAT(plan.token_offsets, ElementsAre(0, 5, 12));
  EXPECT_THAT(plan.pooled_offsets, ElementsAre(0, 1, 4));
  ASSERT_THAT(plan.pooled, SizeIs(2));
  EXPECT_EQ(plan.pooled[0].kind, Pooling::kCls);
  EXPECT_TRUE(plan.pooled[0].normalize);
  EXPECT_EQ(plan.pooled[0].layer, std::nullopt);
  EXPECT_EQ(plan.pooled[0].dimensions, 384);
  EXPECT_EQ(plan.pooled[1].kind, Pooling::kMax);
  EXPECT_FALSE(plan.pooled[1].normalize);
  EXPECT_EQ(plan.pooled[1].layer, 4);
  EXPECT_EQ(plan.pooled[1].dimensions, 64);
  EXPECT_EQ(plan.answer_bytes, 4 * (384 + 64) * 4);
}

TEST(PlanTest, KeepsTheCallersOrderWithoutRepetitions) {
  TestRequest request({5});
  request.request.outputs = {};
  request.request.outputs.dtype = DataType::kFp16;
  request.request.outputs.hidden_states = {3, -1, 3, 6, 0, -4};
  request.request.outputs.attentions =
      AttentionSpec{.layers = {2, -6, -4}, .heads = {11, 0, 11}, .query_rows = {4, 1, 4}};
  const Plan plan = PlanOf(TokenSpec(), request.request);
  EXPECT_THAT(plan.hidden_layers, ElementsAre(3, 6, 0));
  EXPECT_THAT(plan.attention_layers, ElementsAre(2, 0));
  EXPECT_THAT(plan.attention_heads, ElementsAre(11, 0));
  EXPECT_THAT(plan.query_rows, ElementsAre(4, 1));
  EXPECT_EQ(plan.answer_bytes, (3 * 5 * 384 + 2 * 2 * 2 * 5) * 2);
}

TEST(PlanTest, EmptyListsMeanAll) {
  TestRequest request({2});
  request.request.outputs = {};
  request.request.outputs.all_hidden_states = true;
  request.request.outputs.attentions = AttentionSpec{};
  const Plan plan = PlanOf(TokenSpec(), request.request);
  EXPECT_THAT(plan.hidden_layers, ElementsAre(0, 1, 2, 3, 4, 5, 6));
  EXPECT_THAT(plan.attention_layers, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(plan.attention_heads, SizeIs(12));
  EXPECT_THAT(plan.query_rows, IsEmpty());
}

TEST(PlanTest, RunsNoBlockAboveTheHighestOneAskedFor) {
  const struct {
    const char* name;
    OutputSpec outputs;
    int64_t layers_run;
    bool last_map_only;
    bool final_norm_needed;
  } cases[] = {
      {"last", {.last_hidden_state = true}, 6, false, true},
      {"embeddings", {.hidden_states = {0}}, 0, false, false},
      {"block 2", {.hidden_states = {2}}, 2, false, false},
      {"block 6 by its number", {.hidden_states = {6}}, 6, false, false},
      {"map of the first block", {.attentions = AttentionSpec{.layers = {0}}}, 0, true, false},
      {"map of the last block", {.attentions = AttentionSpec{.layers = {-1}}}, 5, true, false},
      {"map below a state",
       {.hidden_states = {3}, .attentions = AttentionSpec{.layers = {1}}},
       3,
       false,
       false},
      {"map of the state's own block",
       {.hidden_states = {3}, .attentions = AttentionSpec{.layers = {2}}},
       3,
       false,
       false},
      {"map above a state",
       {.hidden_states = {3}, .attentions = AttentionSpec{.layers = {3}}},
       3,
       true,
       false},
      {"pooled at block 4", {.pooled = {{.layer = 4}}}, 4, false, false},
      {"pooled at the last", {.pooled = {{}}}, 6, false, true},
      {"contacts", {.contacts = true}, 5, true, false},
      {"contacts and a state", {.hidden_states = {6}, .contacts = true}, 6, false, false},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.name);
    TestRequest request({4});
    request.request.outputs = test.outputs;
    EncoderSpec spec = TokenSpec();
    spec.contact = WithBias("contact");
    const Plan plan = PlanOf(spec, request.request);
    EXPECT_EQ(plan.layers_run, test.layers_run);
    EXPECT_EQ(plan.last_map_only, test.last_map_only);
    EXPECT_EQ(plan.final_norm_needed, test.final_norm_needed);
  }
}

TEST(PlanTest, CountsLogitsAndTheEmbeddingsOwnWidth) {
  EncoderSpec spec = VectorSpec();
  spec.hidden_size = 16;
  spec.logits = {{.out = 10}, {.kind = Step::Kind::kNorm, .activation = Activation::kRelu}};
  TestRequest request({1});
  request.SetVectors(0, {3, 8}, 24);
  request.request.outputs = {.hidden_states = {0, 1}, .logits = true};
  EXPECT_EQ(PlanOf(spec, request.request).answer_bytes, 3 * (8 + 16 + 10) * 4);
}

TEST(PlanTest, AcceptsEveryMaskPartAtOnce) {
  TestRequest request({2});
  request.SetKeys(0, {1, 0});
  request.SetPairs(0, {0, 0, 0, 0});  // rows that see nothing are legal
  request.SetHeadPairs(0, std::vector<uint8_t>(12 * 4, 1));
  request.sequence().mask.causal = true;
  request.sequence().mask.segment_ids = request.Ints({-7, 2147483647});
  EXPECT_THAT(Faults(TokenSpec(), request.request).listed, IsEmpty());
}

}  // namespace
}  // namespace encoderd
