// Goal: LayerNorm equals its plain twin, in place as well, and sees its epsilon.
#include "engine/ops/layer_norm.h"

#include <cmath>
#include <random>
#include <vector>

#include "absl/status/status_matchers.h"
#include "engine/ops/runtime.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/ops/reference_ops.h"

namespace encoderd::ops {
namespace {

using ::absl_testing::StatusIs;

// Runs in place.
std::vector<float> Normalize(std::vector<float> rows, const LayerNormOptions& options) {
  EnterNumericEnvironment();
  auto norm = LayerNorm::Create(options);
  EXPECT_TRUE(norm.ok()) << norm.status();
  norm->Run(rows.data(), static_cast<int64_t>(rows.size() / options.weight.size()), rows.data());
  return rows;
}

TEST(LayerNormTest, EqualsReference) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (size_t width : {1u, 7u, 16u, 65u, 384u}) {
    std::vector<float> weight(width), bias(width), src(width * 259);
    for (auto* values : {&weight, &bias, &src}) {
      for (float& value : *values) value = normal(rng);
    }
    const std::vector<float> dst =
        Normalize(src, {.name = "norm", .weight = weight, .bias = bias, .eps = 1e-5});
    const std::vector<double> expected = reference::LayerNorm(src, weight, bias, 1e-5);
    // Normal values: |x̂| < 6, |weight| < 5; mean and variance are sums of `width` terms, each good
    // to √width · 2⁻²⁴ of itself.
    const double tolerance = 64 * std::sqrt(static_cast<double>(width)) * 0x1p-24 * 4;
    for (size_t i = 0; i < dst.size(); ++i) ASSERT_NEAR(dst[i], expected[i], tolerance) << i;
  }
}

TEST(LayerNormTest, EpsilonCounts) {
  const std::vector<float> weight = {1, 1}, bias = {0, 0};
  // Variance 10⁻⁶: with eps 10⁻⁵ the rows shrink by √11, with 10⁻¹² they do not.
  const std::vector<float> src = {-1e-3f, 1e-3f};
  EXPECT_NEAR(Normalize(src, {.name = "n", .weight = weight, .bias = bias, .eps = 1e-5})[1],
              1 / std::sqrt(11.0), 1e-4);
  EXPECT_NEAR(Normalize(src, {.name = "n", .weight = weight, .bias = bias, .eps = 1e-12})[1], 1.0,
              1e-4);
}

TEST(LayerNormTest, RefusesSizesThatDoNotFit) {
  EXPECT_THAT(
      LayerNorm::Create({.name = "norm1", .weight = std::vector<float>(3)}),
      StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("norm1: expected")));
}

}  // namespace
}  // namespace encoderd::ops
