// Goal:   distances fall into the buckets, and heads have the slopes, that the models were trained
//         with.
// Method: tables written down from the libraries and from the paper.
#include "engine/ops/position_bias.h"

#include <cstdint>
#include <map>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace encoderd::ops {
namespace {

using ::testing::ElementsAre;

// The first distance of each bucket in transformers' MPNetEncoder.relative_position_bucket.
TEST(RelativeBucketTest, BeginsEachBucketWhereTheLibraryDoes) {
  const std::map<int64_t, int64_t> begins = {
      {0, 0}, {1, 1},  {2, 2},   {3, 3},   {4, 4},   {5, 5},   {6, 6},   {7, 7},
      {8, 8}, {12, 9}, {16, 10}, {23, 11}, {32, 12}, {46, 13}, {64, 14}, {91, 15}};
  for (int64_t distance = 0; distance < 1000; ++distance) {
    const int64_t bucket = std::prev(begins.upper_bound(distance))->second;
    EXPECT_EQ(RelativeBucket(-distance, 32, 128), bucket) << distance;
    if (distance > 0) {
      EXPECT_EQ(RelativeBucket(distance, 32, 128), 16 + bucket) << distance;
    }
  }
}

TEST(BucketBiasTest, IsTheSameForAllDistancesBeyondItsReach) {
  std::vector<float> table;
  for (int i = 0; i < 32 * 2; ++i) table.push_back(static_cast<float>(i));
  const PositionBias bias = BucketBias(table, 32, 128);
  std::vector<float> row(1000, 0.5f);
  AddPositionBias(bias, /*head=*/1, /*row=*/500, /*first=*/0, /*end=*/1000, row.data());
  for (int64_t key = 0; key < 1000; ++key) {
    const float expected =
        table[static_cast<size_t>(RelativeBucket(key - 500, 32, 128) * 2 + 1)] + 0.5f;
    EXPECT_EQ(row[static_cast<size_t>(key)], expected) << key;
  }
}

TEST(BucketBiasTest, LeavesOtherKeysAlone) {
  const std::vector<float> table(32, 1.0f);
  std::vector<float> row(10, 0.0f);
  AddPositionBias(BucketBias(table, 32, 128), /*head=*/0, /*row=*/500, /*first=*/3, /*end=*/6,
                  row.data());
  EXPECT_THAT(row, ElementsAre(0, 0, 0, 1, 1, 1, 0, 0, 0, 0));
}

TEST(AlibiBiasTest, HasTheSlopesOfThePaper) {
  EXPECT_THAT(AlibiBias(8).slopes, ElementsAre(0.5f, 0.25f, 0.125f, 0.0625f, 0.03125f, 0.015625f,
                                               0.0078125f, 0.00390625f));
  EXPECT_THAT(AlibiBias(1).slopes, ElementsAre(0.00390625f));
  // Six heads: those of four, and the first and third of eight.
  EXPECT_THAT(AlibiBias(6).slopes,
              ElementsAre(0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f));
}

TEST(AlibiBiasTest, FallsWithTheDistanceToBothSides) {
  std::vector<float> row(5, 0.0f);
  AddPositionBias(AlibiBias(8), /*head=*/1, /*row=*/2, /*first=*/0, /*end=*/5, row.data());
  EXPECT_THAT(row, ElementsAre(-0.5f, -0.25f, 0.0f, -0.25f, -0.5f));
}

}  // namespace
}  // namespace encoderd::ops
