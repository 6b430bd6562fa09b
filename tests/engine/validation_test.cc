// Goal:   every fault of a request is found before any work, named by field, index, value and
//         limit, whatever its sizes claim; a faultless request becomes a plan with nothing left
//         open.
// Method: tables of one faultless request and what is changed in it; no engine.
#include "engine/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <list>
#include <string>
#include <vector>

namespace encoderd {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

EncoderSpec TokenSpec() {
  EncoderSpec spec;
  spec.family = "bert";
  spec.vocab_size = 30522;
  spec.type_vocab_size = 2;
  spec.positions = PositionKind::kLearned;
  spec.max_positions = 512;
  spec.num_layers = 6;
  spec.hidden_size = 384;
  spec.num_heads = 12;
  spec.ffn_size = 1536;
  return spec;
}

EncoderSpec VectorSpec() {
  EncoderSpec spec;
  spec.family = "shared_projection_encoder";
  spec.input = InputKind::kVectors;
  spec.input_dim = 8;
  spec.num_layers = 2;
  spec.hidden_size = 8;
  spec.num_heads = 2;
  return spec;
}

// A request that owns what its spans point to. Ids are 0, 1, … 99, 0, ….
class TestRequest {
 public:
  explicit TestRequest(std::vector<size_t> lengths) : ids_(lengths.size()) {
    request.sequences.resize(lengths.size());
    for (size_t i = 0; i < lengths.size(); ++i) {
      for (size_t t = 0; t < lengths[i]; ++t) ids_[i].push_back(static_cast<int32_t>(t % 100));
      request.sequences[i].input_ids = ids_[i];
    }
    request.outputs.last_hidden_state = true;
  }

  Sequence& sequence(size_t i = 0) { return request.sequences[i]; }
  void SetIds(size_t i, std::vector<int32_t> ids) {
    ids_[i] = std::move(ids);
    request.sequences[i].input_ids = ids_[i];
  }
  std::span<const int32_t> Ints(std::vector<int32_t> values) {
    ints_.push_back(std::move(values));
    return ints_.back();
  }
  std::span<const uint8_t> Bytes(std::vector<uint8_t> values) {
    bytes_.push_back(std::move(values));
    return bytes_.back();
  }
  void SetVectors(size_t i, std::vector<int64_t> shape, size_t num_floats, float value = 0.5f) {
    floats_.emplace_back(num_floats, value);
    SetVectors(i, std::move(shape), std::as_bytes(std::span(floats_.back())));
  }
  void SetVectors(size_t i, std::vector<int64_t> shape, std::span<const std::byte> data) {
    shapes_.push_back(std::move(shape));
    request.sequences[i].input_ids = {};
    request.sequences[i].inputs_embeds = InputTensor{.shape = shapes_.back(), .data = data};
  }
  void SetKeys(size_t i, std::vector<uint8_t> keys) {
    request.sequences[i].mask.keys = Bytes(std::move(keys));
    request.sequences[i].mask.keys_present = true;
  }
  void SetPairs(size_t i, std::vector<uint8_t> pairs) {
    request.sequences[i].mask.pairs = Bytes(std::move(pairs));
    request.sequences[i].mask.pairs_present = true;
  }
  void SetHeadPairs(size_t i, std::vector<uint8_t> pairs) {
    request.sequences[i].mask.head_pairs = Bytes(std::move(pairs));
    request.sequences[i].mask.head_pairs_present = true;
  }
  std::vector<float>& floats() { return floats_.back(); }

  Request request;

 private:
  std::vector<std::vector<int32_t>> ids_;
  std::list<std::vector<int32_t>> ints_;
  std::list<std::vector<uint8_t>> bytes_;
  std::list<std::vector<float>> floats_;
  std::list<std::vector<int64_t>> shapes_;
};

Violations Faults(const EncoderSpec& spec, const Request& request, RequestLimits limits = {}) {
  auto checked = Validate(spec, limits, request);
  if (auto* faults = std::get_if<Violations>(&checked)) return *std::move(faults);
  return {};
}

Plan PlanOf(const EncoderSpec& spec, const Request& request, RequestLimits limits = {}) {
  auto checked = Validate(spec, limits, request);
  if (auto* faults = std::get_if<Violations>(&checked)) {
    ADD_FAILURE() << faults->listed[0].field << ": " << faults->listed[0].description;
    return {};
  }
  return std::get<Plan>(std::move(checked));
}

auto IsFault(const std::string& reason, const std::string& field, const std::string& text) {
  return AllOf(::testing::Field("reason", &Violation::reason, reason),
               ::testing::Field("field", &Violation::field, field),
               ::testing::Field("description", &Violation::description, HasSubstr(text)),
               ::testing::Field("code", &Violation::code, absl::StatusCode::kInvalidArgument));
}

// ---- One change, one fault --------------------------------------------------------------------

struct Case {
  const char* name;
  std::function<void(TestRequest&)> change;
  const char* reason;
  const char* field;
  const char* text;
};

class OneFaultTest : public ::testing::TestWithParam<Case> {};

void PrintTo(const Case& test, std::ostream* out) { *out << test.name; }

TEST_P(OneFaultTest, IsTheOnlyOneListed) {
  const Case& test = GetParam();
  TestRequest request({5, 7, 3});
  ASSERT_THAT(Faults(TokenSpec(), request.request).listed, IsEmpty());
  test.change(request);
  const Violations faults = Faults(TokenSpec(), request.request);
  EXPECT_EQ(faults.total, 1);
  EXPECT_THAT(faults.listed, ElementsAre(IsFault(test.reason, test.field, test.text)));
}

INSTANTIATE_TEST_SUITE_P(
    Call, OneFaultTest,
    ::testing::Values(
        Case{"NoSequences", [](TestRequest& r) { r.request.sequences.clear(); }, "EMPTY_CALL",
             "sequences", "expected at least 1"},
        Case{"EmptySequenceInTheMiddle", [](TestRequest& r) { r.SetIds(1, {}); }, "EMPTY_SEQUENCE",
             "sequences[1].input_ids", "no tokens"},
        Case{"SequenceTooLong", [](TestRequest& r) { r.SetIds(2, std::vector<int32_t>(513, 1)); },
             "SEQUENCE_TOO_LONG", "sequences[2].input_ids", "513 tokens; expected at most 512"},
        Case{"NothingAskedFor", [](TestRequest& r) { r.request.outputs = {}; }, "NO_OUTPUTS",
             "outputs", "last_hidden_state, hidden_states, attentions, pooled"}),
    [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Input, OneFaultTest,
    ::testing::Values(
        Case{"FirstIdPastTheTable", [](TestRequest& r) { r.SetIds(2, {30521, 30522}); },
             "TOKEN_OUT_OF_RANGE", "sequences[2].input_ids[1]",
             "token id 30522 is not in the range 0 to 30521"},
        Case{"NegativeId", [](TestRequest& r) { r.SetIds(0, {-1}); }, "TOKEN_OUT_OF_RANGE",
             "sequences[0].input_ids[0]", "token id -1 "},
        Case{"LargestId", [](TestRequest& r) { r.SetIds(1, {7, 2147483647}); },
             "TOKEN_OUT_OF_RANGE", "sequences[1].input_ids[1]", "token id 2147483647 "},
        Case{"SmallestId",
             [](TestRequest& r) { r.SetIds(1, {std::numeric_limits<int32_t>::min()}); },
             "TOKEN_OUT_OF_RANGE", "sequences[1].input_ids[0]", "token id -2147483648 "},
        Case{"IdsAndVectors",
             [](TestRequest& r) {
               const auto ids = r.sequence().input_ids;
               r.SetVectors(0, {5, 384}, 5 * 384);
               r.sequence().input_ids = ids;
             },
             "INPUT_KIND_MISMATCH", "sequences[0].inputs_embeds", "exactly one"},
        Case{"TypePastTheTable",
             [](TestRequest& r) { r.sequence(2).token_type_ids = r.Ints({0, 1, 2}); },
             "TYPE_OUT_OF_RANGE", "sequences[2].token_type_ids[2]",
             "token type 2 is not in the range 0 to 1"},
        Case{"NegativeType",
             [](TestRequest& r) { r.sequence(2).token_type_ids = r.Ints({-1, 0, 0}); },
             "TYPE_OUT_OF_RANGE", "sequences[2].token_type_ids[0]", "token type -1"},
        Case{"TooFewTypes", [](TestRequest& r) { r.sequence(2).token_type_ids = r.Ints({0, 1}); },
             "LENGTH_MISMATCH", "sequences[2].token_type_ids", "expected 3 values"},
        Case{"PositionPastTheTable",
             [](TestRequest& r) { r.sequence(2).position_ids = r.Ints({0, 511, 512}); },
             "POSITION_OUT_OF_RANGE", "sequences[2].position_ids[2]",
             "position 512 is not in the range 0 to 511"},
        Case{"TooManyPositions",
             [](TestRequest& r) { r.sequence(2).position_ids = r.Ints({0, 1, 2, 3}); },
             "LENGTH_MISMATCH", "sequences[2].position_ids",
             "expected 3 values, one per token, got 4"}),
    [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Masks, OneFaultTest,
    ::testing::Values(
        Case{"KeysTooShort", [](TestRequest& r) { r.SetKeys(2, {1, 1}); }, "LENGTH_MISMATCH",
             "sequences[2].mask.keys", "expected 3 bytes, got 2"},
        Case{"KeysPresentAndEmpty", [](TestRequest& r) { r.SetKeys(2, {}); }, "LENGTH_MISMATCH",
             "sequences[2].mask.keys", "expected 3 bytes, got 0"},
        Case{"KeyOfTwo", [](TestRequest& r) { r.SetKeys(2, {1, 2, 0}); }, "MASK_VALUE",
             "sequences[2].mask.keys[1]", "got 2"},
        Case{"KeyOfMinusOne", [](TestRequest& r) { r.SetKeys(2, {1, 0, 255}); }, "MASK_VALUE",
             "sequences[2].mask.keys[2]", "got 255"},
        Case{"KeysHideAll", [](TestRequest& r) { r.SetKeys(2, {0, 0, 0}); }, "MASK_HIDES_ALL",
             "sequences[2].mask.keys", "at least one token"},
        Case{"PairsTooShort", [](TestRequest& r) { r.SetPairs(2, std::vector<uint8_t>(8, 1)); },
             "LENGTH_MISMATCH", "sequences[2].mask.pairs", "expected 3 x 3 bytes, got 8"},
        Case{"PairsPresentAndEmpty", [](TestRequest& r) { r.SetPairs(2, {}); }, "LENGTH_MISMATCH",
             "sequences[2].mask.pairs", "got 0"},
        Case{"PairOfTwo", [](TestRequest& r) { r.SetPairs(2, {1, 1, 1, 1, 1, 1, 1, 1, 2}); },
             "MASK_VALUE", "sequences[2].mask.pairs[8]", "got 2"},
        Case{"HeadPairsOfOneHead",
             [](TestRequest& r) { r.SetHeadPairs(2, std::vector<uint8_t>(9, 1)); },
             "LENGTH_MISMATCH", "sequences[2].mask.head_pairs", "expected 12 x 3 x 3 bytes, got 9"},
        Case{"HeadPairOfThree",
             [](TestRequest& r) {
               std::vector<uint8_t> pairs(12 * 9, 1);
               pairs[107] = 3;
               r.SetHeadPairs(2, pairs);
             },
             "MASK_VALUE", "sequences[2].mask.head_pairs[107]", "got 3"},
        Case{"TooFewSegments",
             [](TestRequest& r) { r.sequence(2).mask.segment_ids = r.Ints({4, 4}); },
             "LENGTH_MISMATCH", "sequences[2].mask.segment_ids", "expected 3 values"},
        Case{"SpanPastTheEnd", [](TestRequest& r) { r.sequence(2).spans = {{0, 3}, {1, 4}}; },
             "SPAN_OUT_OF_RANGE", "sequences[2].spans[1]", "begin < end <= 3, got [1, 4)"},
        Case{"EmptySpan", [](TestRequest& r) { r.sequence(2).spans = {{1, 1}}; },
             "SPAN_OUT_OF_RANGE", "sequences[2].spans[0]", "got [1, 1)"},
        Case{"SpanBackwards", [](TestRequest& r) { r.sequence(2).spans = {{2, 1}}; },
             "SPAN_OUT_OF_RANGE", "sequences[2].spans[0]", "got [2, 1)"},
        Case{"SpanOfLargestNumbers",
             [](TestRequest& r) { r.sequence(2).spans = {{0, 4294967295u}}; }, "SPAN_OUT_OF_RANGE",
             "sequences[2].spans[0]", "got [0, 4294967295)"},
        Case{"SpanOfHiddenTokens",
             [](TestRequest& r) {
               r.SetKeys(0, {1, 0, 0, 1, 0});
               r.sequence(0).spans = {{0, 3}, {1, 3}, {2, 4}};
             },
             "MASK_HIDES_ALL", "sequences[0].spans[1]", "hides every token of [1, 3)"}),
    [](const auto& param) { return param.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Outputs, OneFaultTest,
    ::testing::Values(
        Case{"LayerPastTheLast", [](TestRequest& r) { r.request.outputs.hidden_states = {6, 7}; },
             "LAYER_OUT_OF_RANGE", "outputs.hidden_states[1]", "expected -7 to 6, got 7"},
        Case{"LayerBeforeTheFirst",
             [](TestRequest& r) { r.request.outputs.hidden_states = {-7, -8}; },
             "LAYER_OUT_OF_RANGE", "outputs.hidden_states[1]", "got -8"},
        Case{"BadLayerBesideAll",
             [](TestRequest& r) {
               r.request.outputs.all_hidden_states = true;
               r.request.outputs.hidden_states = {99};
             },
             "LAYER_OUT_OF_RANGE", "outputs.hidden_states[0]", "got 99"},
        Case{"MapLayerPastTheLast",
             [](TestRequest& r) { r.request.outputs.attentions = AttentionSpec{.layers = {6}}; },
             "LAYER_OUT_OF_RANGE", "outputs.attentions.layers[0]", "expected -6 to 5, got 6"},
        Case{
            "HeadPastTheLast",
            [](TestRequest& r) { r.request.outputs.attentions = AttentionSpec{.heads = {11, 12}}; },
            "HEAD_OUT_OF_RANGE", "outputs.attentions.heads[1]", "expected 0 to 11, got 12"},
        Case{"NegativeHead",
             [](TestRequest& r) { r.request.outputs.attentions = AttentionSpec{.heads = {-1}}; },
             "HEAD_OUT_OF_RANGE", "outputs.attentions.heads[0]", "got -1"},
        Case{"RowPastTheShortestSequence",
             [](TestRequest& r) {
               r.request.outputs.attentions = AttentionSpec{.query_rows = {0, 2, 3}};
             },
             "ROW_OUT_OF_RANGE", "outputs.attentions.query_rows[2]",
             "expected 0 to 2 (the shortest sequence decides), got 3"},
        Case{"PooledLayerPastTheLast",
             [](TestRequest& r) { r.request.outputs.pooled = {{}, {.layer = 7}}; },
             "LAYER_OUT_OF_RANGE", "outputs.pooled[1].layer", "expected -7 to 6, got 7"},
        Case{"MoreDimensionsThanThereAre",
             [](TestRequest& r) { r.request.outputs.pooled = {{.dimensions = 385}}; },
             "DIMENSIONS_OUT_OF_RANGE", "outputs.pooled[0].dimensions", "to 384, got 385"},
        Case{"TooManyPooled", [](TestRequest& r) { r.request.outputs.pooled.resize(257); },
             "TOO_MANY_OUTPUTS", "outputs.pooled", "at most 256 pooled outputs, got 257"},
        Case{"TypeThatAnswersDoNotHave",
             [](TestRequest& r) { r.request.outputs.dtype = DataType::kFp64; }, "UNSUPPORTED_VALUE",
             "outputs.dtype", "got FP64"}),
    [](const auto& param) { return param.param.name; });

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

// ---- Many faults ------------------------------------------------------------------------------

TEST(ValidateTest, ListsTheFaultsOfEveryPartOfACall) {
  TestRequest request({3, 0, 2});
  request.SetIds(0, {1, 30522, -1});
  request.SetKeys(2, {0, 0});
  request.request.outputs.hidden_states = {9};
  request.request.outputs.logits = true;
  const Violations faults = Faults(TokenSpec(), request.request);
  std::vector<std::string> reasons;
  for (const Violation& fault : faults.listed) reasons.push_back(fault.reason);
  EXPECT_THAT(reasons, ElementsAre("TOKEN_OUT_OF_RANGE", "TOKEN_OUT_OF_RANGE", "EMPTY_SEQUENCE",
                                   "MASK_HIDES_ALL", "LAYER_OUT_OF_RANGE", "OUTPUT_UNAVAILABLE"));
  EXPECT_EQ(faults.total, 6);
}

TEST(ValidateTest, ListsSixteenFaultsAndCountsAll) {
  TestRequest request({1});
  request.SetIds(0, std::vector<int32_t>(500, -5));
  const Violations faults = Faults(TokenSpec(), request.request);
  EXPECT_THAT(faults.listed, SizeIs(kMaxViolations));
  EXPECT_EQ(faults.listed[15].field, "sequences[0].input_ids[15]");
  EXPECT_EQ(faults.total, 500);
}

// ---- Hostile sizes: refused in well under 50 ms, whatever they claim --------------------------

constexpr std::chrono::milliseconds kHostileBound(50);

struct Timed {
  Violations faults;
  std::chrono::steady_clock::duration took;
};

Timed TimedFaults(const EncoderSpec& spec, const Request& request) {
  const auto start = std::chrono::steady_clock::now();
  Violations faults = Faults(spec, request);
  return {std::move(faults), std::chrono::steady_clock::now() - start};
}

TEST(HostileSizesTest, ShapesThatLie) {
  constexpr int64_t kHuge = int64_t{1} << 32;
  const struct {
    std::vector<int64_t> shape;
    size_t floats;
    const char* reason;
    const char* text;
  } cases[] = {
      {{-1, 5}, 5, "SHAPE_MISMATCH", "expected [S, 8], got [-1, 5]"},
      {{-1, 8}, 8, "SHAPE_MISMATCH", "got [-1, 8]"},
      {{kHuge, kHuge}, 1, "SHAPE_MISMATCH", "got [4294967296, 4294967296]"},
      {{kHuge, 8}, 8, "SHAPE_MISMATCH", "expected 4294967296 rows of 32 bytes"},
      // 2^59 rows of 32 bytes are 0 modulo 2^64.
      {{int64_t{1} << 59, 8}, 0, "SHAPE_MISMATCH", "got 0 bytes"},
      {{std::numeric_limits<int64_t>::max(), 8}, 8, "SHAPE_MISMATCH", "got 32 bytes"},
      {{std::numeric_limits<int64_t>::min(), 8}, 8, "SHAPE_MISMATCH", "[S, 8]"},
      {{1, 0}, 0, "SHAPE_MISMATCH", "got [1, 0]"},
      {{0, 8}, 0, "EMPTY_SEQUENCE", "no tokens"},
      {{}, 8, "SHAPE_MISMATCH", "got []"},
      {{8}, 8, "SHAPE_MISMATCH", "got [8]"},
      {{1, 1, 8}, 8, "SHAPE_MISMATCH", "got [1, 1, 8]"},
      {std::vector<int64_t>(1000000, 1), 8, "SHAPE_MISMATCH", "1, ...]"},
      {{2, 8}, 15, "SHAPE_MISMATCH", "expected 2 rows of 32 bytes for shape [2, 8], got 60 bytes"},
      {{2, 8}, 17, "SHAPE_MISMATCH", "got 68 bytes"},
      {{2, 8}, 0, "SHAPE_MISMATCH", "got 0 bytes"},
  };
  for (const auto& test : cases) {
    SCOPED_TRACE(test.text);
    TestRequest request({1});
    request.SetVectors(0, test.shape, test.floats);
    const Timed timed = TimedFaults(VectorSpec(), request.request);
    ASSERT_THAT(timed.faults.listed, SizeIs(1));
    EXPECT_EQ(timed.faults.listed[0].reason, test.reason);
    EXPECT_THAT(timed.faults.listed[0].description, HasSubstr(test.text));
    EXPECT_LT(timed.took, kHostileBound);
  }
}

TEST(HostileSizesTest, OneByteShortAndOneLong) {
  const std::vector<std::byte> bytes(2 * 8 * 4 + 1);
  for (const size_t size : {bytes.size() - 2, bytes.size()}) {
    TestRequest request({1});
    request.SetVectors(0, {2, 8}, std::span(bytes).first(size));
    EXPECT_THAT(Faults(VectorSpec(), request.request).listed,
                ElementsAre(IsFault("SHAPE_MISMATCH", "sequences[0].inputs_embeds.data",
                                    "got " + std::to_string(size) + " bytes")));
  }
  TestRequest request({1});
  request.SetVectors(0, {2, 8}, std::span(bytes).subspan(1));  // any alignment
  EXPECT_THAT(Faults(VectorSpec(), request.request).listed, IsEmpty());
}

TEST(HostileSizesTest, PairMaskThatClaimsSixtyThousandTokens) {
  TestRequest request({60000});
  request.SetPairs(0, std::vector<uint8_t>(60000, 1));
  request.SetHeadPairs(0, std::vector<uint8_t>(12, 1));
  const Timed timed = TimedFaults(TokenSpec(), request.request);
  EXPECT_LT(timed.took, kHostileBound);
  std::vector<std::string> texts;
  for (const Violation& fault : timed.faults.listed) texts.push_back(fault.description);
  EXPECT_THAT(texts, ::testing::Contains(HasSubstr("expected 60000 x 60000 bytes, got 60000")));
  EXPECT_THAT(texts, ::testing::Contains(HasSubstr("expected 12 x 60000 x 60000 bytes, got 12")));
  EXPECT_THAT(texts, ::testing::Contains(HasSubstr("60000 tokens; expected at most 512")));
}

TEST(HostileSizesTest, MapsOfEveryLayerForTheLargestCall) {
  TestRequest request(std::vector<size_t>(1024, 64));
  request.request.outputs.attentions = AttentionSpec{};
  request.request.outputs.all_hidden_states = true;
  const Timed timed = TimedFaults(TokenSpec(), request.request);
  // (1 + 7) · 65536 · 384 values of hidden states and 1024 · 6 · 12 · 64² of maps, 4 bytes each.
  EXPECT_THAT(timed.faults.listed,
              ElementsAre(IsFault("ANSWER_TOO_LARGE", "max_response_bytes",
                                  "needs 2013265920 bytes; expected at most 268435456")));
  EXPECT_LT(timed.took, kHostileBound);
}

TEST(HostileSizesTest, AnswerSizeBeyond64Bits) {
  EncoderSpec spec = TokenSpec();
  spec.max_positions = 0;
  spec.num_layers = 1 << 20;
  spec.num_heads = 1 << 20;
  TestRequest request({60000});
  request.request.outputs.attentions = AttentionSpec{};
  EXPECT_THAT(Faults(spec, request.request,
                     {.max_sequence_tokens = 60000,
                      .max_response_bytes = std::numeric_limits<int64_t>::max()})
                  .listed,
              ElementsAre(IsFault("ANSWER_TOO_LARGE", "max_response_bytes",
                                  "needs 15832967439974492160000 bytes")));
}

TEST(HostileSizesTest, ManyLongSpansCostTheirBytesAlone) {
  EncoderSpec spec = TokenSpec();
  spec.max_positions = 0;
  TestRequest request({8192});
  std::vector<uint8_t> keys(8192, 0);
  keys[0] = 1;
  request.SetKeys(0, keys);
  request.sequence().spans.assign(65536, {1, 8192});
  const Timed timed = TimedFaults(spec, request.request);
  EXPECT_EQ(timed.faults.total, 65536);
  EXPECT_LT(timed.took, kHostileBound);
}

// ---- Values of vectors ------------------------------------------------------------------------

TEST(NonFiniteInputTest, IsRefusedByRowAndColumn) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    TestRequest request({1});
    request.SetVectors(0, {2, 8}, 16, std::numeric_limits<float>::max());
    EXPECT_THAT(Faults(VectorSpec(), request.request).listed, IsEmpty());
    request.floats()[11] = bad;
    EXPECT_THAT(Faults(VectorSpec(), request.request).listed,
                ElementsAre(IsFault("NON_FINITE_INPUT", "sequences[0].inputs_embeds.data[11]",
                                    "at row 1, column 3")));
  }
}

TEST(NonFiniteInputTest, IsFoundInHalfPrecision) {
  const struct {
    DataType type;
    uint16_t finite;
    uint16_t infinite;
  } cases[] = {{DataType::kBf16, 0x7f7f, 0xff80}, {DataType::kFp16, 0x7bff, 0x7c00}};
  for (const auto& test : cases) {
    std::vector<uint16_t> values(8, test.finite);
    TestRequest request({1});
    request.SetVectors(0, {1, 8}, std::as_bytes(std::span(values)));
    request.sequence().inputs_embeds->dtype = test.type;
    EXPECT_THAT(Faults(VectorSpec(), request.request).listed, IsEmpty());
    values[7] = test.infinite;
    EXPECT_THAT(Faults(VectorSpec(), request.request).listed,
                ElementsAre(IsFault("NON_FINITE_INPUT", "sequences[0].inputs_embeds.data[7]",
                                    "at row 0, column 7")));
  }
}

// ---- The plan ---------------------------------------------------------------------------------

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
