// Goal:   Linear equals its plain twin for every row count, size and activation, and a row's bits
//         do not depend on the others.
// Method: random matrices; tolerance from the magnitudes that were summed.
#include "engine/ops/linear.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ostream>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "engine/ops/runtime.h"
#include "engine/tensor/buffer.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ops/reference_ops.h"

namespace encoderd::ops {
namespace {

using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

// Rounding errors of a sum of k products add up like a random walk: below λ·√k·u·Σ|aᵢbᵢ| but for a
// probability of 2·exp(−λ²/2) (Higham and Mary 2019); λ = 6. The activations' polynomials are good
// to 2·10⁻⁶ for the values seen here.
constexpr double kLambda = 6;
double Tolerance(int64_t k, double magnitude, Activation activation) {
  const double rounding = kLambda * std::sqrt(static_cast<double>(k + 1)) * 0x1p-24 * magnitude;
  return rounding + (activation == Activation::kNone || activation == Activation::kRelu ? 0 : 2e-6);
}

// What rounding the operands adds: to each of the k products of normal numbers, of standard
// deviation 1, an error of that standard deviation, which again walk at random. The activations'
// slopes are at most 1.13.
double OperandTolerance(int64_t k, Precision precision) {
  double error = 0;
  if (precision == Precision::kBf16) error = 0x1p-9 * std::sqrt(2.0);
  // Steps of values between -4.5 and 4.5; an error is even within half a step on either side.
  if (precision == Precision::kInt8) error = std::hypot(9.0 / 255, 4.5 / 127) / std::sqrt(12.0);
  return 1.13 * kLambda * std::sqrt(static_cast<double>(k)) * error;
}

std::vector<float> Random(int64_t count, std::mt19937& rng) {
  std::vector<float> values(static_cast<size_t>(count));
  std::normal_distribution<float> normal;
  for (float& value : values) value = normal(rng);
  return values;
}

// The rows asked for, behind them padding of NaN: what is never read cannot matter.
std::vector<float> Padded(std::vector<float> values, int64_t width) {
  values.resize(values.size() + static_cast<size_t>(RowBuckets::kPaddingRows * width), NAN);
  return values;
}

struct Case {
  std::string name;
  int64_t in, out;
  Activation activation = Activation::kNone;
  bool bias = true;
  Combine combine = Combine::kNone;
  RowBuckets::Mode mode = RowBuckets::Mode::kSteps;
  Precision precision = Precision::kFp32;
  RowType src_type = RowType::kFp32;
  RowType dst_type = RowType::kFp32;
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

// Rows as an operation takes them.
std::vector<std::byte> Encode(const std::vector<float>& values, RowType type) {
  const size_t width = type == RowType::kBf16 ? 2 : 4;
  std::vector<std::byte> bytes(values.size() * width);
  if (type == RowType::kFp32) {
    std::memcpy(bytes.data(), values.data(), bytes.size());
  } else {
    const auto count = static_cast<int64_t>(values.size());
    RoundToBf16(values.data(), count, count, reinterpret_cast<uint16_t*>(bytes.data()));
  }
  return bytes;
}
std::vector<float> Decode(const std::vector<std::byte>& bytes, RowType type) {
  std::vector<float> values(bytes.size() / (type == RowType::kBf16 ? 2 : 4));
  if (type == RowType::kFp32) {
    std::memcpy(values.data(), bytes.data(), bytes.size());
  } else {
    WidenBf16(reinterpret_cast<const uint16_t*>(bytes.data()), static_cast<int64_t>(values.size()),
              values.data());
  }
  return values;
}

class LinearTest : public ::testing::TestWithParam<Case> {
 protected:
  LinearTest() { EnterNumericEnvironment(); }

  void SetUp() override {
    if (!RequirePrecision(GetParam().precision).ok()) {
      GTEST_SKIP() << RequirePrecision(GetParam().precision);
    }
  }

  Linear Create(const std::vector<float>& weights, const std::vector<float>& bias) const {
    const Case& c = GetParam();
    auto linear = Linear::Create({.name = "w",
                                  .in = c.in,
                                  .out = c.out,
                                  .weights = weights,
                                  .bias = bias,
                                  .activation = c.activation,
                                  .combine = c.combine,
                                  .precision = c.precision,
                                  .src_type = c.src_type,
                                  .dst_type = c.dst_type},
                                 RowBuckets(c.mode));
    EXPECT_TRUE(linear.ok()) << linear.status();
    return *linear;
  }

  // Runs rows of the case's types.
  std::vector<float> Run(const Linear& linear, const std::vector<float>& src, int64_t rows,
                         const std::vector<float>& other) const {
    const Case& c = GetParam();
    const auto scratchpad = Buffer::Allocate(linear.scratchpad_bytes(), "scratchpad");
    EXPECT_TRUE(scratchpad.ok());
    std::vector<std::byte> dst =
        Encode(std::vector<float>(static_cast<size_t>((rows + 1) * c.out), 77), c.dst_type);
    EXPECT_THAT(linear.Run(Encode(Padded(src, c.in), c.src_type).data(), rows,
                           Encode(other, c.dst_type).data(), dst.data(), scratchpad->bytes()),
                StatusIs(absl::StatusCode::kOk));
    std::vector<float> values = Decode(dst, c.dst_type);
    const std::span<float> behind = std::span(values).last(static_cast<size_t>(c.out));
    EXPECT_TRUE(std::ranges::all_of(behind, [](float x) { return x == 77; }))
        << "written behind the rows";
    values.resize(static_cast<size_t>(rows * c.out));
    return values;
  }
};

TEST_P(LinearTest, EqualsReferenceForEveryRowCount) {
  const Case& c = GetParam();
  std::mt19937 rng(1);
  const std::vector<float> weights = Random(c.in * c.out, rng);
  const std::vector<float> bias = c.bias ? Random(c.out, rng) : std::vector<float>();
  const Linear linear = Create(weights, bias);
  for (int64_t rows : {1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 257, 513}) {
    // As the operation gets them.
    const auto rounded = [&](std::vector<float> values, RowType type) {
      return Decode(Encode(values, type), type);
    };
    const std::vector<float> src = rounded(Random(rows * c.in, rng), c.src_type);
    const std::vector<float> other = c.combine == Combine::kNone
                                         ? std::vector<float>()
                                         : rounded(Random(rows * c.out, rng), c.dst_type);
    const std::vector<float> dst = Run(linear, src, rows, other);
    const bool added = c.combine == Combine::kAdd, multiplied = c.combine == Combine::kMultiply;
    std::vector<double> magnitudes;
    const std::vector<double> expected =
        reference::Linear(src, weights, bias, added ? other : std::vector<float>(), c.activation,
                          c.in, c.out, &magnitudes);
    const double operands = OperandTolerance(c.in, c.precision);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double factor = multiplied ? other[i] : 1;
      const double result = c.dst_type == RowType::kBf16 ? 0x1p-8 * std::abs(expected[i]) : 0;
      const double tolerance =
          (Tolerance(c.in, magnitudes[i], c.activation) + operands + result) * std::abs(factor);
      ASSERT_NEAR(dst[i], expected[i] * factor, tolerance) << rows << " rows, element " << i;
    }
  }
}

TEST_P(LinearTest, RunsOnTheBestThatTheCpuHasForIt) {
  std::mt19937 rng(4);
  const Precision precision = GetParam().precision;
  const Linear linear = Create(Random(GetParam().in * GetParam().out, rng), {});
  const std::string operands = precision == Precision::kFp32   ? "f32"
                               : precision == Precision::kBf16 ? "bf16"
                                                               : "u8·s8";
  const bool tiles = precision != Precision::kFp32 && HasTiles();
  const std::string runs_on = precision == Precision::kFp32 ? "vectors "
                              : tiles                       ? "tiles "
                                                            : "brgemm ";
  EXPECT_EQ(linear.Implementation(), runs_on + operands);
}

TEST_P(LinearTest, RowHasTheSameBitsInEveryBucket) {
  std::mt19937 rng(2);
  EXPECT_THAT(Create(Random(GetParam().in * GetParam().out, rng), {}).RowsAgree(),
              IsOkAndHolds(true));
}

// Whatever is in a row, and however it is padded, no other row sees it.
TEST_P(LinearTest, NotANumberStaysInItsRow) {
  const Case& c = GetParam();
  std::mt19937 rng(3);
  const Linear linear = Create(Random(c.in * c.out, rng), {});
  constexpr int64_t kRows = 19;
  const std::vector<float> other = Random(kRows * c.out, rng);
  const std::vector<float> clean = Random(kRows * c.in, rng);
  const std::vector<float> expected = Run(linear, clean, kRows, other);
  for (const float bad : {NAN, INFINITY}) {
    std::vector<float> src = clean;
    constexpr int64_t kBad = 5;
    src[static_cast<size_t>(kBad * c.in + c.in - 1)] = bad;
    const std::vector<float> dst = Run(linear, src, kRows, other);
    for (int64_t row = 0; row < kRows; ++row) {
      const auto at = static_cast<size_t>(row * c.out);
      if (row != kBad) {
        ASSERT_EQ(std::memcmp(&dst[at], &expected[at], static_cast<size_t>(c.out) * sizeof(float)),
                  0)
            << "row " << row;
      } else if (std::isnan(bad)) {
        for (int64_t i = 0; i < c.out; ++i) {
          ASSERT_TRUE(std::isnan(dst[at + static_cast<size_t>(i)])) << "column " << i;
        }
      }
    }
  }
}

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {.name = "Smallest", .in = 1, .out = 1},
      {.name = "OddWithResidual",
       .in = 63,
       .out = 65,
       .activation = Activation::kRelu,
       .combine = Combine::kAdd},
      {.name = "OddGelu", .in = 65, .out = 63, .activation = Activation::kGelu, .bias = false},
      {.name = "GeluTanh",
       .in = 48,
       .out = 96,
       .activation = Activation::kGeluTanh,
       .combine = Combine::kAdd},
      {.name = "Silu", .in = 40, .out = 72, .activation = Activation::kSilu},
      {.name = "Tanh",
       .in = 32,
       .out = 10,
       .activation = Activation::kTanh,
       .bias = false,
       .combine = Combine::kMultiply},
      {.name = "Wide", .in = 384, .out = 40, .bias = false},
      {.name = "Deep", .in = 1000, .out = 72, .combine = Combine::kAdd},
      {.name = "Gated", .in = 40, .out = 56, .bias = false, .combine = Combine::kMultiply},
      {.name = "FixedBlocks",
       .in = 96,
       .out = 48,
       .activation = Activation::kGelu,
       .combine = Combine::kAdd,
       .mode = RowBuckets::Mode::kFixed}};
  const size_t shapes = cases.size();
  for (const Precision precision : {Precision::kBf16, Precision::kInt8}) {
    const std::string name = precision == Precision::kBf16 ? "Bf16" : "Int8";
    for (size_t i = 0; i < shapes; ++i) {
      Case c = cases[i];
      c.name += name;
      c.precision = precision;
      cases.push_back(c);
    }
    cases.push_back({.name = "IntoBf16Rows" + name,
                     .in = 40,
                     .out = 136,
                     .activation = Activation::kGelu,
                     .precision = precision,
                     .dst_type = RowType::kBf16});
    cases.push_back({.name = "GatedBf16Rows" + name,
                     .in = 40,
                     .out = 72,
                     .combine = Combine::kMultiply,
                     .precision = precision,
                     .dst_type = RowType::kBf16});
    cases.push_back({.name = "OfBf16Rows" + name,
                     .in = 72,
                     .out = 40,
                     .combine = Combine::kAdd,
                     .precision = precision,
                     .src_type = RowType::kBf16});
  }
  cases.push_back({.name = "OfBf16RowsInPlace",
                   .in = 128,
                   .out = 40,
                   .precision = Precision::kBf16,
                   .src_type = RowType::kBf16});
  cases.push_back({.name = "OfBf16RowsInFp32", .in = 72, .out = 40, .src_type = RowType::kBf16});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, LinearTest, ::testing::ValuesIn(Cases()),
                         [](const auto& instance) { return instance.param.name; });
// Pairs of 8-bit products leave 16 bits, where some instructions stop counting.
TEST(LinearInt8Test, LargestWeightsTimesLargestActivationsAreSummedExactly) {
  const absl::Status runs = RequirePrecision(Precision::kInt8);
  if (!runs.ok()) GTEST_SKIP() << runs;
  EnterNumericEnvironment();
  constexpr int64_t kIn = 4096, kOut = 2;
  std::vector<float> weights(kIn * kOut, 1.0f);
  std::fill_n(weights.begin() + kIn, kIn, -1.0f);
  const auto linear = Linear::Create(
      {.name = "w", .in = kIn, .out = kOut, .weights = weights, .precision = Precision::kInt8},
      RowBuckets());
  ASSERT_TRUE(linear.ok()) << linear.status();
  std::vector<float> src = Padded(std::vector<float>(kIn, 1.0f), kIn);
  src[0] = 0;  // so that 1 is the largest of 256 steps
  std::vector<float> dst(kOut);
  const auto scratchpad = Buffer::Allocate(linear->scratchpad_bytes(), "scratchpad");
  ASSERT_TRUE(linear->Run(src.data(), 1, nullptr, dst.data(), scratchpad->bytes()).ok());
  // The two steps are rounded, the sum is not.
  EXPECT_NEAR(dst[0], kIn - 1, (kIn - 1) * 4 * 0x1p-24);
  EXPECT_NEAR(dst[1], -(kIn - 1), (kIn - 1) * 4 * 0x1p-24);
}

TEST(LinearCreateTest, RefusesSumsThatCouldLeave32Bits) {
  const std::vector<float> weights((1 << 16) + 1);
  EXPECT_THAT(Linear::Create({.name = "w",
                              .in = (1 << 16) + 1,
                              .out = 1,
                              .weights = weights,
                              .precision = Precision::kInt8},
                             RowBuckets()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("w: int8 sums at most 65536 products exactly; got 65537")));
}

TEST(LinearCreateTest, RefusesSizesThatDoNotFit) {
  EXPECT_THAT(
      Linear::Create({.name = "layers.0.fc", .in = 4, .out = 2, .weights = std::vector<float>(7)},
                     RowBuckets()),
      StatusIs(absl::StatusCode::kInvalidArgument,
               HasSubstr("layers.0.fc: expected weights [2, 4]")));
}

// hidden_act "gelu" is the erf form; the tanh form differs by 5·10⁻⁴ at this point.
TEST(LinearActivationTest, TellsTheTwoFormsOfGeluApart) {
  EnterNumericEnvironment();
  const std::vector<float> one = {1.0f};
  for (auto [activation, expected] :
       {std::pair(Activation::kGelu, -0.009361f), std::pair(Activation::kGeluTanh, -0.008888f)}) {
    auto linear = Linear::Create(
        {.name = "w", .in = 1, .out = 1, .weights = one, .activation = activation}, RowBuckets());
    ASSERT_TRUE(linear.ok()) << linear.status();
    const std::vector<float> src = Padded({-2.7f}, 1);
    std::vector<float> dst(src.size());
    auto scratchpad = Buffer::Allocate(linear->scratchpad_bytes(), "scratchpad");
    ASSERT_TRUE(linear->Run(src.data(), 1, nullptr, dst.data(), scratchpad->bytes()).ok());
    EXPECT_NEAR(dst[0], expected, 2e-6);
  }
}

}  // namespace
}  // namespace encoderd::ops
