// Goal:   every fault of a request is found before any work, named by field, index, value and limit.
// Method: tables of one faultless request and what is changed in it; no engine.
#include "engine/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "tests/engine/test_request.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

}  // namespace
}  // namespace encoderd
