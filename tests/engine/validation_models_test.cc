// Goal:   a request is held against what its model takes and gives, and against the limits of a call,
//         at the limit and one past it.
// Method: specs and one faultless request, changed by hand; no engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "engine/validation.h"
#include "tests/engine/test_request.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// ---- Models and what they take ----------------------------------------------------------------

TEST(ValidateTest, TokenModelTakesVectorsInPlaceOfItsWordEmbedding) {
  TestRequest request({1});
  request.SetVectors(0, {4, 384}, 4 * 384);
  EXPECT_THAT(PlanOf(TokenSpec(), request.request).token_offsets, ElementsAre(0, 4));
}

TEST(ValidateTest, VectorModelRefusesIds) {
  TestRequest request({3});
  EXPECT_THAT(
      Faults(VectorSpec(), request.request).listed,
      ElementsAre(IsFault("INPUT_KIND_MISMATCH", "sequences[0].input_ids", "shape [S, 8]")));
}

TEST(ValidateTest, VectorModelNamesTheFieldThatIsMissing) {
  TestRequest request({0});
  EXPECT_THAT(Faults(VectorSpec(), request.request).listed,
              ElementsAre(IsFault("EMPTY_SEQUENCE", "sequences[0].inputs_embeds", "no tokens")));
}

TEST(ValidateTest, ModelWithoutTypesTakesZerosAlone) {
  TestRequest request({1});
  request.SetVectors(0, {2, 8}, 16);
  request.sequence().token_type_ids = request.Ints({0, 0});
  EXPECT_THAT(Faults(VectorSpec(), request.request).listed, IsEmpty());
  request.sequence().token_type_ids = request.Ints({0, 1});
  EXPECT_THAT(Faults(VectorSpec(), request.request).listed,
              ElementsAre(IsFault("TYPE_OUT_OF_RANGE", "sequences[0].token_type_ids[1]",
                                  "token type 1 is not in the range 0 to 0")));
}

TEST(ValidateTest, ModelWithOneTypeRefusesTheSecond) {
  EncoderSpec spec = TokenSpec();
  spec.type_vocab_size = 1;
  TestRequest request({3});
  request.sequence().token_type_ids = request.Ints({0, 0, 1});
  EXPECT_THAT(Faults(spec, request.request).listed,
              ElementsAre(IsFault("TYPE_OUT_OF_RANGE", "sequences[0].token_type_ids[2]",
                                  "token type 1 is not in the range 0 to 0")));
}

TEST(ValidateTest, ModelWithoutPositionsRefusesThem) {
  TestRequest request({1});
  request.SetVectors(0, {2, 8}, 16);
  request.sequence().position_ids = request.Ints({0, 1});
  EXPECT_THAT(
      Faults(VectorSpec(), request.request).listed,
      ElementsAre(IsFault("POSITIONS_UNSUPPORTED", "sequences[0].position_ids", "no positions")));
}

TEST(ValidateTest, UnlimitedPositionsEndAtTheLongestSequence) {
  EncoderSpec spec = VectorSpec();
  spec.positions = PositionKind::kSinusoidal;
  TestRequest request({1});
  request.SetVectors(0, {2, 8}, 16);
  request.sequence().position_ids = request.Ints({99, 100});
  EXPECT_THAT(Faults(spec, request.request, {.max_sequence_tokens = 100}).listed,
              ElementsAre(IsFault("POSITION_OUT_OF_RANGE", "sequences[0].position_ids[1]",
                                  "position 100 is not in the range 0 to 99")));
}

TEST(ValidateTest, VocabularyLimitIsTheSpecsNotTheTables) {
  EncoderSpec spec = TokenSpec();
  spec.vocab_size = 10;
  TestRequest request({1});
  request.SetIds(0, {9});
  EXPECT_THAT(Faults(spec, request.request).listed, IsEmpty());
  request.SetIds(0, {10});
  EXPECT_THAT(Faults(spec, request.request).listed, SizeIs(1));
}

TEST(ValidateTest, RefusesOutputsThatTheModelCannotGive) {
  TestRequest request({3});
  request.request.outputs.logits = true;
  request.request.outputs.pooled = {{.kind = Pooling::kPooler}};
  const Violations faults = Faults(TokenSpec(), request.request);
  ASSERT_THAT(faults.listed, SizeIs(2));
  for (const Violation& fault : faults.listed) {
    EXPECT_EQ(fault.code, absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(fault.reason, "OUTPUT_UNAVAILABLE");
    EXPECT_THAT(fault.description,
                HasSubstr("it gives: last_hidden_state, hidden_states, attentions, pooled"));
  }
  EXPECT_EQ(faults.listed[0].field, "outputs.pooled[0]");
  EXPECT_EQ(faults.listed[1].field, "outputs.logits");
}

TEST(ValidateTest, PoolerReadsTheLastLayerAlone) {
  EncoderSpec spec = TokenSpec();
  spec.pooler = {{.out = 384, .activation = Activation::kTanh}};
  TestRequest request({3});
  request.request.outputs.pooled = {{.kind = Pooling::kPooler},
                                    {.kind = Pooling::kPooler, .layer = -1}};
  EXPECT_THAT(Faults(spec, request.request).listed, IsEmpty());
  request.request.outputs.pooled = {{.kind = Pooling::kPooler, .layer = 3}};
  EXPECT_THAT(Faults(spec, request.request).listed,
              ElementsAre(IsFault("LAYER_OUT_OF_RANGE", "outputs.pooled[0].layer",
                                  "reads the last layer: expected 6 or none, got 3")));
}

TEST(ValidateTest, CountsLogitsByTokenOrBySequence) {
  TestRequest request({3, 5});
  request.request.outputs = {};
  request.request.outputs.logits = true;
  EncoderSpec spec = TokenSpec();
  spec.logits = {{.out = 7}};
  const Plan tokens = std::get<Plan>(Validate(spec, {}, request.request));
  EXPECT_EQ(tokens.LogitsRows(), 8);
  EXPECT_EQ(tokens.answer_bytes, 8 * 7 * 4);

  spec.logits.clear();
  spec.classifier = {{.out = 384}, {.out = 7}};
  const Plan sequences = std::get<Plan>(Validate(spec, {}, request.request));
  EXPECT_EQ(sequences.LogitsRows(), 2);
  EXPECT_EQ(sequences.answer_bytes, 2 * 7 * 4);
  EXPECT_EQ(sequences.layers_run, spec.num_layers);
}

TEST(ValidateTest, CountsContactsWithoutTheFirstAndTheLastToken) {
  TestRequest request({1, 2, 3, 9});
  request.request.outputs = {.dtype = DataType::kBf16, .contacts = true};
  const Violations faults = Faults(TokenSpec(), request.request);
  ASSERT_THAT(faults.listed, SizeIs(1));
  EXPECT_EQ(faults.listed[0].code, absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(faults.listed[0].field, "outputs.contacts");
  EXPECT_THAT(faults.listed[0].description, HasSubstr("this model has no contacts; it gives: "));
  EncoderSpec spec = TokenSpec();
  spec.contact = WithBias("contact");
  EXPECT_EQ(PlanOf(spec, request.request).answer_bytes, (1 * 1 + 7 * 7) * 2);
  const RequestLimits limits = {.max_response_bytes = (1 * 1 + 7 * 7) * 2 - 1};
  EXPECT_THAT(std::get<Violations>(Validate(spec, limits, request.request)).listed,
              ElementsAre(IsFault("ANSWER_TOO_LARGE", "max_response_bytes", "100 bytes")));
}

TEST(AvailableOutputsTest, NamesWhatTheModelHas) {
  EncoderSpec spec = TokenSpec();
  EXPECT_THAT(AvailableOutputs(spec),
              ElementsAre("last_hidden_state", "hidden_states", "attentions", "pooled"));
  spec.pooler = {{.out = 384}};
  spec.logits = {{.out = 30522}};
  spec.contact = WithBias("contact");
  EXPECT_THAT(AvailableOutputs(spec),
              ElementsAre("last_hidden_state", "hidden_states", "attentions", "pooled", "pooler",
                          "logits", "contacts"));
}

// ---- Limits of the call, at the limit and one past it -----------------------------------------

TEST(ValidateTest, LimitsHoldAtTheLimitAndOnePast) {
  TestRequest request({5, 7, 3});
  const RequestLimits at = {.max_sequence_tokens = 7,
                            .max_request_sequences = 3,
                            .max_request_tokens = 15,
                            .max_response_bytes = 15 * 384 * 4};
  EXPECT_EQ(PlanOf(TokenSpec(), request.request, at).answer_bytes, 15 * 384 * 4);

  RequestLimits past = at;
  past.max_sequence_tokens = 6;
  EXPECT_THAT(Faults(TokenSpec(), request.request, past).listed,
              ElementsAre(IsFault("SEQUENCE_TOO_LONG", "sequences[1].input_ids",
                                  "7 tokens; expected at most 6")));
  past = at;
  past.max_request_sequences = 2;
  EXPECT_THAT(Faults(TokenSpec(), request.request, past).listed,
              ElementsAre(IsFault("TOO_MANY_SEQUENCES", "sequences", "3 sequences")));
  past = at;
  past.max_request_tokens = 14;
  EXPECT_THAT(Faults(TokenSpec(), request.request, past).listed,
              ElementsAre(IsFault("TOO_MANY_TOKENS", "sequences", "15 tokens")));
  past = at;
  past.max_response_bytes -= 1;
  EXPECT_THAT(Faults(TokenSpec(), request.request, past).listed,
              ElementsAre(IsFault("ANSWER_TOO_LARGE", "max_response_bytes",
                                  "needs 23040 bytes; expected at most 23039")));
}

TEST(ValidateTest, WhatLiesAroundTheTensorsCountsToo) {
  TestRequest request({5, 7, 3});
  RequestLimits limits = {.max_response_bytes = 15 * 384 * 4 + 99,
                          .framing_bytes = [](const Plan& plan) {
                            return 33 * static_cast<int64_t>(plan.token_offsets.size() - 1);
                          }};
  EXPECT_EQ(PlanOf(TokenSpec(), request.request, limits).answer_bytes, 15 * 384 * 4);
  limits.max_response_bytes -= 1;
  EXPECT_THAT(Faults(TokenSpec(), request.request, limits).listed,
              ElementsAre(IsFault("ANSWER_TOO_LARGE", "max_response_bytes",
                                  "needs 23139 bytes; expected at most 23138")));
}

TEST(ValidateTest, SpansOfACallAreLimitedByItsTokens) {
  TestRequest request({2});
  request.sequence().spans.assign(10, {0, 2});
  EXPECT_THAT(Faults(TokenSpec(), request.request, {.max_request_tokens = 10}).listed, IsEmpty());
  request.sequence().spans.assign(12, {0, 2});
  EXPECT_THAT(Faults(TokenSpec(), request.request, {.max_request_tokens = 10}).listed,
              ElementsAre(IsFault("TOO_MANY_SPANS", "sequences", "more than 10 spans")));
}

}  // namespace
}  // namespace encoderd
