// Goal:   attention equals its plain twin in every precision and for every length, width, layout and
//         mask part; hidden keys weigh exactly nothing; maps and contexts do not depend on one
//         another, and no sequence on its neighbours.
// Method: random q, k, v, for bf16 of numbers that it has, so that only the weights are rounded;
//         the rows behind a sequence hold NaN, so that reading them shows.
#include "engine/ops/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status_matchers.h"
#include "engine/ops/runtime.h"
#include "engine/tensor/buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ops/reference_ops.h"

namespace encoderd::ops {
namespace {

using ::absl_testing::IsOkAndHolds;

constexpr int64_t kHeads = 3;
constexpr int64_t kHeadDim = 20;
constexpr int64_t kWidth = kHeads * kHeadDim;
constexpr float kScale = 0.25f;  // about 1/√20; a power of two moves no bit

constexpr QkvStrides kSeparate = {.row_stride = 3 * kWidth,
                                  .head_stride = kHeadDim,
                                  .q_offset = 0,
                                  .k_offset = kWidth,
                                  .v_offset = 2 * kWidth};
constexpr QkvStrides kByHead = {.row_stride = 3 * kWidth,
                                .head_stride = 3 * kHeadDim,
                                .q_offset = 0,
                                .k_offset = kHeadDim,
                                .v_offset = 2 * kHeadDim};

const AttentionOptions kOptions = {
    .heads = kHeads, .head_dim = kHeadDim, .strides = kSeparate, .scale = kScale};

struct Output {
  std::vector<float> context;
  std::vector<float> map;
  bool finite = false;
};

// The nearest number that bf16 has.
float RoundedToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000);
}

class AttentionTest : public ::testing::TestWithParam<Precision> {
 protected:
  AttentionTest() { EnterNumericEnvironment(); }

  void SetUp() override {
    if (const absl::Status can = RequirePrecision(GetParam()); !can.ok()) {
      GTEST_SKIP() << can.message();
    }
    options_.precision = GetParam();
  }

  std::vector<float> RandomQkv(int64_t tokens, int64_t width = kWidth) {
    std::vector<float> qkv(static_cast<size_t>(tokens * 3 * width));
    std::normal_distribution<float> normal;
    for (float& value : qkv) {
      value = normal(rng_);
      if (GetParam() == Precision::kBf16) value = RoundedToBf16(value);
    }
    return qkv;
  }

  std::vector<uint8_t> RandomBits(int64_t count) {
    std::vector<uint8_t> bits(static_cast<size_t>(count));
    for (uint8_t& bit : bits) bit = static_cast<uint8_t>(rng_() % 2);
    return bits;
  }

  Output Run(const AttentionOptions& options, std::vector<float> qkv, const Mask& mask,
             std::vector<int32_t> heads = {0, 1, 2}, std::vector<int32_t> rows = {},
             bool want_context = true, int64_t window = 0) {
    const int64_t width = options.heads * options.head_dim;
    const auto tokens = static_cast<int64_t>(qkv.size()) / (3 * width);
    qkv.resize(qkv.size() + static_cast<size_t>(Attention::kQueryBlock * 3 * width), NAN);
    auto attention = Attention::Create(options);
    EXPECT_TRUE(attention.ok()) << attention.status();
    auto scratch = Buffer::Allocate(attention->scratch_bytes(tokens), "scratch");
    for (float& value : scratch->floats()) value = NAN;
    const auto positions = attention->PackPositions(positions_.data());
    Output output;
    output.context.resize(static_cast<size_t>(tokens * width));
    const size_t map_rows = rows.empty() ? static_cast<size_t>(tokens) : rows.size();
    output.map.resize(heads.size() * map_rows * static_cast<size_t>(tokens));
    const MapOutput map = {
        .heads = heads, .rows = rows, .dst = reinterpret_cast<std::byte*>(output.map.data())};
    const auto finite = attention->Run({.qkv = qkv.data(),
                                        .tokens = tokens,
                                        .queries = tokens,
                                        .mask = &mask,
                                        .window = window,
                                        .positions = positions->floats().data(),
                                        .context = want_context ? output.context.data() : nullptr,
                                        .map = heads.empty() ? nullptr : &map},
                                       scratch->bytes());
    EXPECT_TRUE(finite.ok()) << finite.status();
    output.finite = finite.value_or(false);
    return output;
  }

  // options_ with a table of relative positions, whose random rows positions_ then holds. Half the
  // scale keeps the sum of three products about as small as one is without.
  AttentionOptions WithPositions(int64_t buckets, int64_t max_distance) {
    AttentionOptions options = options_;
    options.positions = RowsOfDistances(buckets, max_distance);
    options.scale /= 2;
    positions_ = RandomQkv(options.positions.rows);
    return options;
  }

  AttentionOptions WithHeadDim(int64_t head_dim) const {
    AttentionOptions options = options_;
    options.head_dim = head_dim;
    options.scale = std::exp2(-std::round(std::log2(static_cast<float>(head_dim)) / 2));
    options.strides = {.row_stride = 3 * kHeads * head_dim,
                       .head_stride = head_dim,
                       .q_offset = 0,
                       .k_offset = kHeads * head_dim,
                       .v_offset = 2 * kHeads * head_dim};
    return options;
  }

  // What a context adds up: Σ weight · |v|.
  static std::vector<double> Magnitudes(const AttentionOptions& options, std::vector<float> qkv,
                                        int64_t tokens, const Mask& mask, int64_t window,
                                        std::span<const float> positions) {
    const QkvStrides& at = options.strides;
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t head = 0; head < options.heads; ++head) {
        float* const v = qkv.data() + token * at.row_stride + head * at.head_stride + at.v_offset;
        for (int64_t i = 0; i < options.head_dim; ++i) v[i] = std::abs(v[i]);
      }
    }
    return reference::Attention(options, qkv, tokens, mask, window, positions).context;
  }

  // Of a weight, relative to it and to 1, and of what a context adds up. In fp32 weights are good to
  // the rounding of a score, |s| < 40 here, times e: 40 · √20 · 2⁻²⁴ · 6 < 7·10⁻⁵ at the very worst
  // and below 10⁻⁵ of the weight as seen; contexts add up S such terms. In bf16 the exponential adds
  // 10⁻⁴ to a weight and at most as much to the sum of them; in the context each weight has been
  // rounded, too, by up to 2⁻⁸.
  struct Tolerance {
    double of_weight, of_one, of_magnitude;
  };
  static Tolerance ToleranceOf(Precision precision) {
    if (precision == Precision::kFp32) return {0, 5e-6, 5e-6};
    return {2.1e-4, 5e-6, 2.1e-4 + std::exp2(-8)};
  }

  void ExpectEqualsReference(const AttentionOptions& options, const std::vector<float>& qkv,
                             const Mask& mask, int64_t window = 0) {
    const int64_t tokens = static_cast<int64_t>(qkv.size()) / options.strides.row_stride;
    const Output got = Run(options, qkv, mask, {0, 1, 2}, {}, /*want_context=*/true, window);
    const reference::AttentionResult expected =
        reference::Attention(options, qkv, tokens, mask, window, positions_);
    const std::vector<double> magnitudes =
        Magnitudes(options, qkv, tokens, mask, window, positions_);
    const Tolerance tolerance = ToleranceOf(GetParam());
    EXPECT_TRUE(got.finite);
    for (size_t i = 0; i < got.map.size(); ++i) {
      ASSERT_NEAR(got.map[i], expected.map[i],
                  tolerance.of_weight * expected.map[i] + tolerance.of_one)
          << i;
    }
    for (size_t i = 0; i < got.context.size(); ++i) {
      ASSERT_NEAR(got.context[i], expected.context[i],
                  tolerance.of_magnitude * magnitudes[i] + tolerance.of_one)
          << i;
    }
  }

  AttentionOptions options_ = kOptions;
  std::mt19937 rng_{7};
  std::vector<float> positions_;  // as PackPositions reads them
};

INSTANTIATE_TEST_SUITE_P(Precisions, AttentionTest,
                         ::testing::Values(Precision::kFp32, Precision::kBf16),
                         [](const auto& precision) {
                           return std::string(PrecisionName(precision.param));
                         });

TEST_P(AttentionTest, EqualsReferenceForEveryLength) {
  for (int64_t tokens :
       {1, 2, 3, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 80, 128, 129, 200, 257, 511, 513, 700}) {
    SCOPED_TRACE(tokens);
    ExpectEqualsReference(options_, RandomQkv(tokens), Mask());
  }
}

// Heads that end within a register, a tile or a pair of numbers, and one that stays in fp32.
TEST_P(AttentionTest, EqualsReferenceForEveryHeadDim) {
  for (const int64_t head_dim : {8, 16, 32, 36, 40, 63, 64, 65, 72, 128}) {
    AttentionOptions options = WithHeadDim(head_dim);
    for (const int64_t tokens : {1, 2, 3, 33, 130}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << ", " << tokens << " tokens");
      ExpectEqualsReference(options, RandomQkv(tokens, kHeads * head_dim), Mask());
    }
  }
}

// Sequences lie end to end and go through the same scratch memory one after another, as in a worker.
// One between two that hold nothing but NaN has the bits that it has between clean ones.
TEST_P(AttentionTest, NanOfOneSequenceReachesNoOther) {
  for (const int64_t head_dim : {20, 40, 64, 72}) {
    const AttentionOptions options = WithHeadDim(head_dim);
    const int64_t width = kHeads * head_dim;
    auto attention = Attention::Create(options);
    ASSERT_TRUE(attention.ok()) << attention.status();
    for (const int64_t tokens : {1, 5, 33, 70}) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << ", " << tokens << " tokens");
      auto scratch = Buffer::AllocateZeroed(attention->scratch_bytes(tokens), "scratch");
      std::vector<float> qkv = RandomQkv(3 * tokens, width);
      const Mask mask;
      const auto run = [&](int64_t sequence) {
        std::vector<float> context(static_cast<size_t>(tokens * width));
        const absl::StatusOr<bool> finite =
            attention->Run({.qkv = qkv.data() + sequence * tokens * 3 * width,
                            .tokens = tokens,
                            .queries = tokens,
                            .mask = &mask,
                            .context = context.data()},
                           scratch->bytes());
        return std::pair(finite.value_or(false), context);
      };
      run(0);
      const auto clean = run(1);
      EXPECT_TRUE(clean.first);
      const std::ptrdiff_t one = tokens * 3 * width;
      std::fill(qkv.begin(), qkv.begin() + one, NAN);
      std::fill(qkv.begin() + 2 * one, qkv.end(), NAN);
      const auto spoilt = run(0);
      EXPECT_FALSE(spoilt.first);
      EXPECT_THAT(spoilt.second, ::testing::Each(::testing::IsNan()));
      EXPECT_EQ(run(1), clean);
    }
  }
}

TEST_P(AttentionTest, ReadsProjectionsGroupedByHead) {
  AttentionOptions options = options_;
  options.strides = kByHead;
  ExpectEqualsReference(options, RandomQkv(37), Mask());
}

TEST_P(AttentionTest, EqualsReferenceForEveryMaskPart) {
  constexpr int64_t kTokens = 37;
  std::vector<uint8_t> keys = RandomBits(kTokens);
  keys[0] = 1;
  const std::vector<uint8_t> pairs = RandomBits(kTokens * kTokens);
  const std::vector<uint8_t> head_pairs = RandomBits(kHeads * kTokens * kTokens);
  std::vector<int32_t> segments(kTokens);
  for (int32_t& id : segments) id = static_cast<int32_t>(rng_() % 3) - 1;
  for (const Mask& mask : {Mask{.keys = keys}, Mask{.pairs = pairs}, Mask{.head_pairs = head_pairs},
                           Mask{.causal = true}, Mask{.segment_ids = segments},
                           Mask{.keys = keys,
                                .pairs = pairs,
                                .head_pairs = head_pairs,
                                .causal = true,
                                .segment_ids = segments}}) {
    ExpectEqualsReference(options_, RandomQkv(kTokens), mask);
  }
}

// Lengths within the reach of a bias, at its end and far beyond.
TEST_P(AttentionTest, AddsThePositionBiasBeforeTheMask) {
  std::vector<float> table(8 * kHeads);
  std::normal_distribution<float> normal;
  for (float& value : table) value = normal(rng_);
  for (const PositionBias& bias : {BucketBias(table, 8, /*max_distance=*/20), AlibiBias(kHeads)}) {
    AttentionOptions options = options_;
    options.position_bias = bias;
    for (const int64_t tokens : {1, 2, 20, 21, 22, 64, 65, 200}) {
      SCOPED_TRACE(tokens);
      const std::vector<float> qkv = RandomQkv(tokens);
      ExpectEqualsReference(options, qkv, Mask());
      const std::vector<uint8_t> pairs = RandomBits(tokens * tokens);
      ExpectEqualsReference(options, qkv, Mask{.pairs = pairs, .causal = true});
      ExpectEqualsReference(options, qkv, Mask{.pairs = pairs}, /*window=*/15);
    }
  }
}

// Windows within one block of queries or keys, of exactly one, and across several.
TEST_P(AttentionTest, EqualsReferenceForEveryWindowAndLength) {
  for (const int64_t window : {1, 5, 31, 32, 33, 64, 100}) {
    for (const int64_t tokens :
         {int64_t{1}, int64_t{2}, window - 1, window, window + 1, 2 * window + 1, int64_t{288}}) {
      if (tokens == 0) continue;
      SCOPED_TRACE(testing::Message() << tokens << " tokens, window " << window);
      ExpectEqualsReference(options_, RandomQkv(tokens), Mask(), window);
    }
  }
}

TEST_P(AttentionTest, WindowIsAndedWithEveryMaskPart) {
  constexpr int64_t kTokens = 150;
  const std::vector<uint8_t> keys = RandomBits(kTokens);
  const std::vector<uint8_t> pairs = RandomBits(kTokens * kTokens);
  const std::vector<uint8_t> head_pairs = RandomBits(kHeads * kTokens * kTokens);
  std::vector<int32_t> segments(kTokens);
  for (int32_t& id : segments) id = static_cast<int32_t>(rng_() % 3);
  for (const int64_t window : {2, 40}) {
    for (const Mask& mask :
         {Mask{.keys = keys}, Mask{.pairs = pairs}, Mask{.head_pairs = head_pairs},
          Mask{.causal = true}, Mask{.segment_ids = segments},
          Mask{.keys = keys,
               .pairs = pairs,
               .head_pairs = head_pairs,
               .causal = true,
               .segment_ids = segments}}) {
      ExpectEqualsReference(options_, RandomQkv(kTokens), mask, window);
    }
  }
}

TEST_P(AttentionTest, WeightsOutsideTheWindowAreExactlyZero) {
  constexpr int64_t kTokens = 200, kWindow = 3;
  const Output got = Run(options_, RandomQkv(kTokens), Mask(), {0, 1, 2}, {},
                         /*want_context=*/true, kWindow);
  for (int64_t i = 0; i < kHeads * kTokens * kTokens; ++i) {
    const int64_t row = i / kTokens % kTokens, key = i % kTokens;
    const float weight = got.map[static_cast<size_t>(i)];
    if (std::abs(row - key) <= kWindow) {
      EXPECT_GT(weight, 0.0f) << row << ", " << key;
    } else {
      EXPECT_EQ(weight, 0.0f) << row << ", " << key;
    }
  }
}

TEST_P(AttentionTest, WindowOverTheWholeSequenceIsBitwiseTheSameAsNone) {
  const std::vector<float> qkv = RandomQkv(130);
  const std::vector<uint8_t> pairs = RandomBits(130 * 130);
  const Mask mask = {.pairs = pairs};
  const Output bare = Run(options_, qkv, mask);
  const Output windowed = Run(options_, qkv, mask, {0, 1, 2}, {}, /*want_context=*/true, 129);
  EXPECT_EQ(bare.context, windowed.context);
  EXPECT_EQ(bare.map, windowed.map);
}

// Only the first three tokens can be seen, as in a text behind which a client has put padding. Rows
// far from them see nothing, and attend to the keys beyond their window too.
TEST_P(AttentionTest, RowWhoseWindowIsHiddenAttendsEvenlyToTheWholeSequence) {
  constexpr int64_t kTokens = 150, kWindow = 4;
  std::vector<uint8_t> keys(kTokens, 0);
  std::fill_n(keys.begin(), 3, uint8_t{1});
  const std::vector<float> qkv = RandomQkv(kTokens);
  const Mask mask = {.keys = keys};
  ExpectEqualsReference(options_, qkv, mask, kWindow);
  const Output got = Run(options_, qkv, mask, {0}, {}, /*want_context=*/true, kWindow);
  const auto row = [&](int64_t i) {
    return std::vector<float>(got.map.begin() + i * kTokens, got.map.begin() + (i + 1) * kTokens);
  };
  EXPECT_THAT(row(7), ::testing::Each(1.0f / kTokens));
  EXPECT_THAT(row(149), ::testing::Each(1.0f / kTokens));
  EXPECT_EQ(row(6)[2], 1.0f);
}

// A key outside the window is never read, whatever it holds.
TEST_P(AttentionTest, KeysFarOutsideTheWindowAreNotRead) {
  constexpr int64_t kTokens = 400;
  std::vector<float> qkv = RandomQkv(kTokens);
  const std::vector<int32_t> rows = {0, 31};
  const Output before = Run(options_, qkv, Mask(), {0, 1, 2}, rows, /*want_context=*/true, 32);
  std::fill(qkv.begin() + 128 * 3 * kWidth, qkv.end(), NAN);
  const Output after = Run(options_, qkv, Mask(), {0, 1, 2}, rows, /*want_context=*/true, 32);
  EXPECT_EQ(before.map, after.map);
  EXPECT_TRUE(std::equal(before.context.begin(), before.context.begin() + 64 * kWidth,
                         after.context.begin()));
  EXPECT_FALSE(after.finite);
}

TEST_P(AttentionTest, EqualsReferenceWithPositionsForEveryLength) {
  for (const auto& [buckets, max_distance] :
       {std::pair<int64_t, int64_t>{8, 16}, {64, 100}, {0, 7}, {0, 150}}) {
    const AttentionOptions options = WithPositions(buckets, max_distance);
    for (int64_t tokens : {1, 2, 8, 16, 17, 31, 33, 64, 65, 96, 129, 200}) {
      SCOPED_TRACE(testing::Message() << tokens << " tokens, " << buckets << " buckets");
      ExpectEqualsReference(options, RandomQkv(tokens), Mask());
    }
  }
}

TEST_P(AttentionTest, ReadsPositionsGroupedByHead) {
  AttentionOptions options = WithPositions(32, 50);
  options.strides = kByHead;
  ExpectEqualsReference(options, RandomQkv(70), Mask());
}

TEST_P(AttentionTest, PositionsGoWithMasksAndWindows) {
  constexpr int64_t kTokens = 150;
  const AttentionOptions options = WithPositions(64, 100);
  const std::vector<uint8_t> keys = RandomBits(kTokens);
  const std::vector<uint8_t> pairs = RandomBits(kTokens * kTokens);
  for (const int64_t window : {0, 2, 40, 200}) {
    for (const Mask& mask : {Mask{.keys = keys}, Mask{.pairs = pairs, .causal = true}}) {
      ExpectEqualsReference(options, RandomQkv(kTokens), mask, window);
    }
  }
}

TEST_P(AttentionTest, PositionsOfZeroAreBitwiseTheSameAsNone) {
  AttentionOptions options = WithPositions(32, 50);
  options.scale = kScale;
  std::ranges::fill(positions_, 0.0f);
  const std::vector<float> qkv = RandomQkv(130);
  const Output bare = Run(options_, qkv, Mask());
  const Output zeros = Run(options, qkv, Mask());
  EXPECT_EQ(bare.context, zeros.context);
  EXPECT_EQ(bare.map, zeros.map);
}

TEST_P(AttentionTest, AllOnesIsBitwiseTheSameAsNoMask) {
  const std::vector<float> qkv = RandomQkv(50);
  const std::vector<uint8_t> ones(kHeads * 50 * 50, 1);
  const Output bare = Run(options_, qkv, Mask());
  const Output masked = Run(options_, qkv,
                            Mask{.keys = std::span(ones).first(50),
                                 .pairs = std::span(ones).first(50 * 50),
                                 .head_pairs = ones});
  EXPECT_EQ(bare.context, masked.context);
  EXPECT_EQ(bare.map, masked.map);
}

TEST_P(AttentionTest, RowIsQueryAndColumnIsKey) {
  const std::vector<uint8_t> lower = {1, 0, 0, 1, 1, 0, 1, 1, 1};
  const std::vector<float> qkv = RandomQkv(3);
  const Output got = Run(options_, qkv, Mask{.pairs = lower}, {0});
  EXPECT_THAT(std::vector<float>(got.map.begin(), got.map.begin() + 3),
              ::testing::ElementsAre(1, 0, 0));
  const std::vector<uint8_t> upper = {1, 1, 1, 0, 1, 1, 0, 0, 1};
  EXPECT_NE(got.context, Run(options_, qkv, Mask{.pairs = upper}, {0}).context);
}

TEST_P(AttentionTest, RowThatSeesNothingAttendsEvenlyToItsSequence) {
  std::vector<uint8_t> pairs(5 * 5, 1);
  std::fill(pairs.begin() + 5, pairs.begin() + 10, 0);
  const Output got = Run(options_, RandomQkv(5), Mask{.pairs = pairs}, {1});
  EXPECT_TRUE(got.finite);
  EXPECT_THAT(std::vector<float>(got.map.begin() + 5, got.map.begin() + 10), ::testing::Each(0.2f));
}

// A key that scores far above all others is still hidden entirely.
TEST_P(AttentionTest, HiddenKeyWeighsExactlyNothingHoweverHighItScores) {
  std::vector<float> qkv = RandomQkv(6);
  for (int64_t i = 0; i < 3 * kWidth; ++i) qkv[static_cast<size_t>(2 * 3 * kWidth + i)] = 1e4f;
  const std::vector<uint8_t> keys = {1, 1, 0, 1, 1, 1};
  const Output loud = Run(options_, qkv, Mask{.keys = keys});
  for (int64_t i = kWidth; i < 3 * kWidth; ++i) qkv[static_cast<size_t>(2 * 3 * kWidth + i)] = 0.5f;
  const Output quiet = Run(options_, qkv, Mask{.keys = keys});
  EXPECT_EQ(loud.context, quiet.context);
  EXPECT_EQ(loud.map, quiet.map);
  for (size_t i = 2; i < loud.map.size(); i += 6) EXPECT_EQ(loud.map[i], 0.0f);
}

TEST_P(AttentionTest, MapRowsSumToOne) {
  const Output got = Run(options_, RandomQkv(129), Mask{.causal = true});
  for (size_t row = 0; row < got.map.size(); row += 129) {
    EXPECT_NEAR(std::accumulate(got.map.begin() + static_cast<std::ptrdiff_t>(row),
                                got.map.begin() + static_cast<std::ptrdiff_t>(row) + 129, 0.0),
                1.0, 1e-5);
  }
}

TEST_P(AttentionTest, ChosenHeadsAndRowsAreCutFromTheWholeMap) {
  const std::vector<float> qkv = RandomQkv(70);
  const Output whole = Run(options_, qkv, Mask());
  for (bool want_context : {true, false}) {
    const Output part = Run(options_, qkv, Mask(), {2, 0}, {69, 3}, want_context);
    std::vector<float> expected;
    for (int head : {2, 0}) {
      for (int row : {69, 3}) {
        const auto begin = whole.map.begin() + (head * 70 + row) * 70;
        expected.insert(expected.end(), begin, begin + 70);
      }
    }
    EXPECT_EQ(part.map, expected);
    if (want_context) {
      EXPECT_EQ(part.context, whole.context);
    }
  }
}

TEST_P(AttentionTest, ContextDoesNotDependOnWhetherMapsAreAskedFor) {
  const std::vector<float> qkv = RandomQkv(45);
  EXPECT_EQ(Run(options_, qkv, Mask()).context, Run(options_, qkv, Mask(), {}).context);
}

TEST_P(AttentionTest, NonFiniteScoresAreReportedAndNeverSwallowed) {
  std::vector<float> qkv = RandomQkv(20);
  qkv[static_cast<size_t>(13 * 3 * kWidth + kWidth)] = NAN;  // one value of one key
  const Output got = Run(options_, qkv, Mask());
  EXPECT_FALSE(got.finite);
  EXPECT_TRUE(std::isnan(got.map[0]));
}

// However a sequence is cut, and whichever rows are asked for, each row has the bits that it has in
// the whole.
TEST_P(AttentionTest, PackedPiecesAndRangesOfRowsGiveTheBitsOfTheWhole) {
  struct Case {
    int64_t tokens, window;
    bool positions = false;
  };
  for (const auto& [tokens, window, with_positions] : {Case{65, 0},
                                                       {128, 0},
                                                       {200, 0},
                                                       {128, 1},
                                                       {200, 20},
                                                       {200, 64},
                                                       {200, 0, true},
                                                       {200, 20, true}}) {
    const AttentionOptions options = with_positions ? WithPositions(64, 100) : options_;
    const std::vector<float> qkv = RandomQkv(tokens);
    // With the narrow window, many rows see nothing.
    const std::vector<uint8_t> pairs = RandomBits(tokens * tokens);
    const Mask mask = {.pairs = pairs};
    const Output whole = Run(options, qkv, mask, {0, 1, 2}, {}, /*want_context=*/true, window);
    auto attention = Attention::Create(options);
    ASSERT_TRUE(attention.ok()) << attention.status();
    const auto positions = attention->PackPositions(positions_.data());
    auto scratch = Buffer::Allocate(attention->scratch_bytes(tokens), "scratch");
    for (const int64_t piece : {64, 128}) {
      std::vector<std::vector<float>> memory;
      std::vector<PackedTokens> pieces;
      for (int64_t first = 0; first < tokens; first += piece) {
        const int64_t count = std::min(piece, tokens - first);
        auto& packed =
            memory.emplace_back(static_cast<size_t>((count + 63) / 64 * 64 * 3 * kWidth), NAN);
        attention->Pack(qkv.data() + first * 3 * kWidth, count, packed.data());
        pieces.push_back({.data = packed.data(), .tokens = count});
      }
      for (int64_t first = 0; first < tokens; first += 64) {
        const int64_t queries = std::min<int64_t>(64, tokens - first);
        std::vector<float> context(static_cast<size_t>(queries * kWidth));
        EXPECT_THAT(attention->Run({.pieces = pieces,
                                    .tokens = tokens,
                                    .first_query = first,
                                    .queries = queries,
                                    .mask = &mask,
                                    .window = window,
                                    .positions = positions->floats().data(),
                                    .context = context.data()},
                                   scratch->bytes()),
                    IsOkAndHolds(true));
        EXPECT_EQ(std::memcmp(context.data(), whole.context.data() + first * kWidth,
                              context.size() * sizeof(float)),
                  0)
            << tokens << " tokens, window " << window << ", in pieces of " << piece
            << ", rows from " << first;
      }
    }
  }
}

TEST_P(AttentionTest, AsksBeforeEachHeadWhetherToStop) {
  constexpr int64_t kTokens = 100;
  const std::vector<float> qkv = RandomQkv(kTokens);
  auto attention = Attention::Create(options_);
  ASSERT_TRUE(attention.ok()) << attention.status();
  auto scratch = Buffer::Allocate(attention->scratch_bytes(kTokens), "scratch");
  std::vector<float> context(static_cast<size_t>(kTokens * kWidth));
  const Mask mask;
  auto run = [&](int stop_at) {
    std::ranges::fill(context, NAN);
    int asked = 0;
    auto stops = [&] { return ++asked == stop_at; };
    const absl::FunctionRef<bool()> stop = stops;
    const absl::StatusOr<bool> finite = attention->Run({.qkv = qkv.data(),
                                                        .tokens = kTokens,
                                                        .queries = kTokens,
                                                        .mask = &mask,
                                                        .context = context.data(),
                                                        .stop = &stop},
                                                       scratch->bytes());
    return std::pair(finite.status().code(), asked);
  };
  EXPECT_EQ(run(/*stop_at=*/-1), std::pair(absl::StatusCode::kOk, 3)) << "once for each head";
  EXPECT_EQ(run(2), std::pair(absl::StatusCode::kCancelled, 2));
  for (size_t i = 0; i < context.size(); ++i) {
    EXPECT_EQ(std::isfinite(context[i]), i % kWidth < kHeadDim) << "the first head alone was run";
  }
}

// Counted, so that no noise can hide it: twice the tokens take twice the products.
TEST_P(AttentionTest, WorkInAWindowGrowsWithTheLengthAndNotWithItsSquare) {
  const auto products = [&](int64_t tokens) {
    const int64_t before = ThreadOpCounts().ukernels;
    Run(options_, RandomQkv(tokens), Mask(), {}, {}, /*want_context=*/true, 64);
    return ThreadOpCounts().ukernels - before;
  };
  const int64_t few = products(1024);
  // The two ends of a sequence have fewer keys in reach than the middle.
  EXPECT_LE(products(2048), 2 * few + 2 * 2 * kHeads * 16);
  // In fp32, a block of queries goes through in two.
  EXPECT_LE(few, 2 * 2 * kHeads * (1024 / Attention::kQueryBlock) * 3);
}

TEST_P(AttentionTest, ScratchDoesNotGrowWithTheSquareOfTheLength) {
  for (const AttentionOptions& options : {options_, WithPositions(512, 512)}) {
    auto attention = Attention::Create(options);
    ASSERT_TRUE(attention.ok()) << attention.status();
    EXPECT_LE(attention->scratch_bytes(8192), 2 * attention->scratch_bytes(4096));
  }
}

}  // namespace
}  // namespace encoderd::ops
