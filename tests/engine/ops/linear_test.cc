// Goal:   Linear equals its plain twin for every row count, size and activation, and a row's bits
//         do not depend on the others.
// Method: random matrices; tolerance from the magnitudes that were summed.
#include "engine/ops/linear.h"

#include <cmath>
#include <cstring>
#include <random>
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
double Tolerance(int64_t k, double magnitude, Activation activation) {
  const double rounding = 6 * std::sqrt(static_cast<double>(k + 1)) * 0x1p-24 * magnitude;
  return rounding + (activation == Activation::kNone || activation == Activation::kRelu ? 0 : 2e-6);
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
  Activation activation;
  bool bias;
  Combine combine;
  RowBuckets::Mode mode;
};

class LinearTest : public ::testing::TestWithParam<Case> {
 protected:
  LinearTest() { EnterNumericEnvironment(); }
};

TEST_P(LinearTest, EqualsReferenceForEveryRowCount) {
  const auto& [name, in, out, activation, with_bias, combine, mode] = GetParam();
  std::mt19937 rng(1);
  const std::vector<float> weights = Random(in * out, rng);
  const std::vector<float> bias = with_bias ? Random(out, rng) : std::vector<float>();
  auto linear = Linear::Create({.name = "w",
                                .in = in,
                                .out = out,
                                .weights = weights,
                                .bias = bias,
                                .activation = activation,
                                .combine = combine},
                               RowBuckets(mode));
  ASSERT_TRUE(linear.ok()) << linear.status();
  auto scratchpad = Buffer::Allocate(linear->scratchpad_bytes(), "scratchpad");
  ASSERT_TRUE(scratchpad.ok());

  for (int64_t rows : {1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 257, 513}) {
    const std::vector<float> src = Random(rows * in, rng);
    const std::vector<float> other =
        combine == Combine::kNone ? std::vector<float>() : Random(rows * out, rng);
    std::vector<float> dst(static_cast<size_t>((rows + RowBuckets::kPaddingRows) * out));
    ASSERT_THAT(linear->Run(Padded(src, in).data(), rows, Padded(other, out).data(), dst.data(),
                            scratchpad->bytes()),
                StatusIs(absl::StatusCode::kOk));
    const bool added = combine == Combine::kAdd, multiplied = combine == Combine::kMultiply;
    std::vector<double> magnitudes;
    const std::vector<double> expected = reference::Linear(
        src, weights, bias, added ? other : std::vector<float>(), activation, in, out, &magnitudes);
    for (size_t i = 0; i < expected.size(); ++i) {
      const double factor = multiplied ? other[i] : 1;
      const double tolerance = Tolerance(in, magnitudes[i], activation) * std::abs(factor);
      ASSERT_NEAR(dst[i], expected[i] * factor, tolerance) << rows << " rows, element " << i;
    }
  }
}

TEST_P(LinearTest, RowHasTheSameBitsInEveryBucket) {
  const auto& [name, in, out, activation, with_bias, combine, mode] = GetParam();
  std::mt19937 rng(2);
  const std::vector<float> weights = Random(in * out, rng);
  auto linear = Linear::Create({.name = "w",
                                .in = in,
                                .out = out,
                                .weights = weights,
                                .activation = activation,
                                .combine = combine},
                               RowBuckets(mode));
  ASSERT_TRUE(linear.ok()) << linear.status();
  EXPECT_THAT(linear->RowsAgree(), IsOkAndHolds(true));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, LinearTest,
    ::testing::Values(
        Case{"Smallest", 1, 1, Activation::kNone, true, Combine::kNone, RowBuckets::Mode::kSteps},
        Case{"OddWithResidual", 63, 65, Activation::kRelu, true, Combine::kAdd,
             RowBuckets::Mode::kSteps},
        Case{"OddGelu", 65, 63, Activation::kGelu, false, Combine::kNone, RowBuckets::Mode::kSteps},
        Case{"GeluTanh", 48, 96, Activation::kGeluTanh, true, Combine::kAdd,
             RowBuckets::Mode::kSteps},
        Case{"Silu", 40, 72, Activation::kSilu, true, Combine::kNone, RowBuckets::Mode::kSteps},
        Case{"Tanh", 32, 10, Activation::kTanh, false, Combine::kMultiply,
             RowBuckets::Mode::kSteps},
        Case{"Wide", 384, 40, Activation::kNone, false, Combine::kNone, RowBuckets::Mode::kSteps},
        Case{"Gated", 40, 56, Activation::kNone, false, Combine::kMultiply,
             RowBuckets::Mode::kSteps},
        Case{"FixedBlocks", 96, 48, Activation::kGelu, true, Combine::kAdd,
             RowBuckets::Mode::kFixed}),
    [](const auto& instance) { return instance.param.name; });

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
