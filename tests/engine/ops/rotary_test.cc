// Goal:   Rotary equals its plain twin for every width, position and layout, touches q and k alone,
//         and computes its angles in single precision, as trained models had them.
// Method: random rows; tolerance from the two products and one sum of an element.
#include "engine/ops/rotary.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/engine/ops/reference_ops.h"

namespace encoderd::ops {
namespace {

struct Case {
  std::string name;
  int64_t heads, head_dim, width;
  bool by_head;
};

QkvStrides StridesOf(const Case& c) {
  const int64_t d = c.head_dim, hidden = c.heads * d;
  if (c.by_head) {
    return {.row_stride = 3 * hidden, .head_stride = 3 * d, .k_offset = d, .v_offset = 2 * d};
  }
  return {.row_stride = 3 * hidden, .head_stride = d, .k_offset = hidden, .v_offset = 2 * hidden};
}

Rotary Create(const RotaryOptions& options) {
  auto rotary = Rotary::Create(options);
  EXPECT_TRUE(rotary.ok()) << rotary.status();
  return *rotary;
}

class RotaryTest : public ::testing::TestWithParam<Case> {};

TEST_P(RotaryTest, EqualsReferenceAtEveryPosition) {
  const Case& c = GetParam();
  const RotaryOptions options = {.heads = c.heads,
                                 .strides = StridesOf(c),
                                 .width = c.width,
                                 .positions = 70,
                                 .base = 1000,
                                 .divisor = 1.25};
  const Rotary rotary = Create(options);
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  for (int64_t position = 0; position < options.positions; ++position) {
    std::vector<float> row(static_cast<size_t>(options.strides.row_stride));
    for (float& value : row) value = normal(rng);
    const std::vector<double> expected = reference::Rotate(options, position, row);
    const std::vector<float> before = row;
    rotary.Run(position, row.data());
    for (size_t i = 0; i < row.size(); ++i) {
      // Untouched values are equal, the others are the sum of two products of numbers up to 5, each
      // factor and each step rounded; the twin's frequencies are one rounding away, times 70.
      const double tolerance = expected[i] == before[i] ? 0 : 70 * 0x1p-24 * 10;
      ASSERT_NEAR(row[i], expected[i], tolerance) << "position " << position << " element " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, RotaryTest,
                         ::testing::Values(Case{"Smallest", 1, 2, 2, false},
                                           Case{"Whole", 2, 64, 64, false},
                                           Case{"Part", 3, 24, 10, false},
                                           Case{"OddHead", 2, 7, 6, false},
                                           Case{"ByHead", 3, 20, 20, true}),
                         [](const auto& instance) { return instance.param.name; });

TEST(RotaryTableTest, LeavesPositionZeroAsItIs) {
  const Rotary rotary = Create(
      {.heads = 1, .strides = {.head_stride = 4, .k_offset = 4}, .width = 4, .positions = 1});
  std::vector<float> row = {1, 2, 3, 4, 5, 6, 7, 8};
  rotary.Run(0, row.data());
  EXPECT_EQ(row, (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}));
}

// At position 8191 the angle of the second pair of a head of 64, base 160000, is 5632.…: in single
// precision it lies on a grid of 2⁻¹¹, whose point, and not the true angle, has been trained.
TEST(RotaryTableTest, RoundsAnglesToSinglePrecision) {
  const Rotary rotary = Create({.heads = 1,
                                .strides = {.head_stride = 64, .k_offset = 64},
                                .width = 64,
                                .positions = 8192,
                                .base = 160000});
  std::vector<float> row(128, 0.0f);
  row[1] = 1;
  rotary.Run(8191, row.data());
  const float frequency = 1 / static_cast<float>(std::pow(160000.0, 2.0 / 64));
  const float angle = 8191.0f * frequency;
  EXPECT_EQ(row[1], static_cast<float>(std::cos(static_cast<double>(angle))));
  const double exact = 8191 * std::pow(160000.0, -2.0 / 64);
  EXPECT_GT(std::abs(row[1] - std::cos(exact)), 1e-5);
}

TEST(RotaryTableTest, TakesFrequenciesInPlaceOfTheBase) {
  const std::vector<float> frequencies = {0.5f, 0.25f};
  const Rotary rotary = Create({.heads = 1,
                                .strides = {.head_stride = 4, .k_offset = 4},
                                .width = 4,
                                .positions = 3,
                                .frequencies = frequencies});
  std::vector<float> row = {1, 1, 0, 0, 0, 0, 0, 0};
  rotary.Run(2, row.data());
  EXPECT_FLOAT_EQ(row[0], std::cos(1.0f));
  EXPECT_FLOAT_EQ(row[1], std::cos(0.5f));
  EXPECT_FLOAT_EQ(row[2], std::sin(1.0f));
  EXPECT_FLOAT_EQ(row[3], std::sin(0.5f));
}

}  // namespace
}  // namespace encoderd::ops
