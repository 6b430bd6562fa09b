// Goal:   widening is exact and narrowing rounds to nearest even, for every bit pattern.
// Method: all 65,536 halves against values computed from sign, exponent and mantissa with ldexp;
//         every rounding boundary between neighbours, and one step to either side of it.
#include "engine/tensor/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <ostream>
#include <span>
#include <string>
#include <vector>

namespace encoderd {
namespace {

struct Format {
  DataType type;
  int exponent_bits;
  int mantissa_bits;
};

// Names the parameter in the test list.
void PrintTo(const Format& format, std::ostream* out) { *out << DataTypeName(format.type); }

constexpr Format kBf16 = {DataType::kBf16, 8, 7};
constexpr Format kFp16 = {DataType::kFp16, 5, 10};

// The value of a bit pattern, from the definition of the format.
double Decode(const Format& format, uint16_t bits) {
  const int exponent_ones = (1 << format.exponent_bits) - 1;
  const int bias = exponent_ones / 2;
  const int exponent = (bits >> format.mantissa_bits) & exponent_ones;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const double sign = (bits & 0x8000) ? -1.0 : 1.0;
  if (exponent == exponent_ones) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign *
         std::ldexp((1 << format.mantissa_bits) + mantissa, exponent - bias - format.mantissa_bits);
}

std::vector<uint16_t> AllPatterns() {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = static_cast<uint16_t>(i);
  return patterns;
}

std::vector<float> Widen(const Format& format, const std::vector<uint16_t>& halves) {
  std::vector<float> floats(halves.size());
  WidenToFp32(format.type, std::as_bytes(std::span(halves)), floats);
  return floats;
}

std::vector<uint16_t> Narrow(const Format& format, const std::vector<float>& floats) {
  std::vector<uint16_t> halves(floats.size());
  NarrowFromFp32(format.type, floats, std::as_writable_bytes(std::span(halves)));
  return halves;
}

class HalfFormatTest : public ::testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Convert, HalfFormatTest, ::testing::Values(kBf16, kFp16),
                         [](const auto& test) {
                           return std::string(DataTypeName(test.param.type));
                         });

TEST_P(HalfFormatTest, WidensEveryPatternExactly) {
  const std::vector<uint16_t> patterns = AllPatterns();
  const std::vector<float> widened = Widen(GetParam(), patterns);
  for (size_t i = 0; i < patterns.size(); ++i) {
    const double expected = Decode(GetParam(), patterns[i]);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(widened[i])) << i;
      continue;
    }
    ASSERT_EQ(static_cast<double>(widened[i]), expected) << i;
    ASSERT_EQ(std::signbit(widened[i]), std::signbit(expected)) << i;
  }
}

TEST_P(HalfFormatTest, NarrowsWhatItWidenedToTheSamePattern) {
  const std::vector<uint16_t> patterns = AllPatterns();
  const std::vector<uint16_t> back = Narrow(GetParam(), Widen(GetParam(), patterns));
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (std::isnan(Decode(GetParam(), patterns[i]))) {
      ASSERT_TRUE(std::isnan(Decode(GetParam(), back[i]))) << i;
    } else {
      ASSERT_EQ(back[i], patterns[i]);
    }
  }
}

TEST_P(HalfFormatTest, RoundsToNearestAndTiesToEven) {
  const Format format = GetParam();
  const auto infinity_pattern =
      static_cast<uint16_t>(((1 << format.exponent_bits) - 1) << format.mantissa_bits);
  for (int low = 0; low < infinity_pattern; ++low) {
    const auto lower = static_cast<uint16_t>(low);
    const auto upper = static_cast<uint16_t>(low + 1);
    // Rounding to infinity starts where the next finite value would be, one step above the largest.
    const double below = Decode(format, lower);
    const double step = upper == infinity_pattern
                            ? below - Decode(format, static_cast<uint16_t>(low - 1))
                            : Decode(format, upper) - below;
    const auto middle = static_cast<float>(below + step / 2);
    ASSERT_EQ(static_cast<double>(middle), below + step / 2) << "no tie in fp32 at " << low;
    for (float sign : {1.0f, -1.0f}) {
      const auto bit = static_cast<uint16_t>(sign < 0 ? 0x8000 : 0);
      const std::vector<uint16_t> rounded =
          Narrow(format, {sign * std::nextafter(middle, 0.0f), sign * middle,
                          sign * std::nextafter(middle, std::numeric_limits<float>::infinity())});
      ASSERT_EQ(rounded[0], lower | bit) << low;
      ASSERT_EQ(rounded[1], (low % 2 == 0 ? lower : upper) | bit) << low;
      ASSERT_EQ(rounded[2], upper | bit) << low;
    }
  }
}

TEST_P(HalfFormatTest, KeepsExtremesAndNaN) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Format format = GetParam();
  const std::vector<uint16_t> halves = Narrow(
      format, {kInfinity, -kInfinity, std::numeric_limits<float>::max(),
               std::numeric_limits<float>::denorm_min(), -std::numeric_limits<float>::denorm_min(),
               std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffffffffu)});
  EXPECT_EQ(Decode(format, halves[0]), kInfinity);
  EXPECT_EQ(Decode(format, halves[1]), -kInfinity);
  EXPECT_EQ(Decode(format, halves[2]), kInfinity);
  EXPECT_EQ(halves[3], 0x0000);
  EXPECT_EQ(halves[4], 0x8000);
  EXPECT_TRUE(std::isnan(Decode(format, halves[5])));
  EXPECT_TRUE(std::isnan(Decode(format, halves[6])));
}

TEST_P(HalfFormatTest, DoesNotCareForAlignmentOrLength) {
  const Format format = GetParam();
  for (size_t count = 0; count < 200; ++count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i) - 50;
    std::vector<std::byte> halves(2 * count + 1, std::byte{0xaa});
    NarrowFromFp32(format.type, values, std::span(halves).subspan(1));
    std::vector<float> back(count);
    WidenToFp32(format.type, std::span(halves).subspan(1), back);
    ASSERT_EQ(back, values);
    ASSERT_EQ(halves[0], std::byte{0xaa});
  }
}

TEST(ConvertTest, CopiesFp32BitsFromAnyAddress) {
  const std::vector<float> values = {1.5f, -0.0f, std::numeric_limits<float>::denorm_min(), 3e38f};
  std::vector<std::byte> bytes(4 * values.size() + 3);
  NarrowFromFp32(DataType::kFp32, values, std::span(bytes).subspan(3));
  std::vector<float> back(values.size());
  WidenToFp32(DataType::kFp32, std::span(bytes).subspan(3), back);
  EXPECT_EQ(std::memcmp(back.data(), values.data(), 4 * values.size()), 0);
}

TEST(ConvertTest, RoundsFp64ToTheNearestFp32) {
  const std::vector<double> values = {0.1, -1e300, 1.0 + 0x1p-24, 1.0 + 0x1.8p-23, -0.0};
  std::vector<std::byte> bytes(8 * values.size() + 5);
  std::memcpy(bytes.data() + 5, values.data(), 8 * values.size());
  std::vector<float> floats(values.size());
  WidenToFp32(DataType::kFp64, std::span(bytes).subspan(5), floats);
  EXPECT_EQ(floats[0], 0.1f);
  EXPECT_EQ(floats[1], -std::numeric_limits<float>::infinity());
  EXPECT_EQ(floats[2], 1.0f);             // a tie: to even
  EXPECT_EQ(floats[3], 1.0f + 0x1p-22f);  // a tie: to even, upwards
  EXPECT_TRUE(std::signbit(floats[4]));
}

}  // namespace
}  // namespace encoderd
