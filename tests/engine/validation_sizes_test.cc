// Goal:   sizes that lie are refused in well under 50 ms, whatever they claim, and vectors that are not
//         finite by row and column.
// Method: shapes, masks and spans whose sizes do not belong together; no engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "engine/validation.h"
#include "tests/engine/test_request.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

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

}  // namespace
}  // namespace encoderd
