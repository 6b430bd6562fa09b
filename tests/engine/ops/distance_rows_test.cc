// Goal:   distances fall into the rows of the table that the models were trained with.
// Method: tables written down from the library.
#include "engine/ops/distance_rows.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>

#include "gtest/gtest.h"

namespace encoderd::ops {
namespace {

// The last buckets of transformers' make_log_bucket_position with 256 buckets a direction and 512
// positions, by their first distance.
TEST(RowsOfDistancesTest, BeginsEachBucketWhereTheLibraryDoes) {
  const DistanceRows table = RowsOfDistances(/*buckets=*/512, /*max_distance=*/512);
  const std::map<int64_t, int64_t> begins = {
      {444, 243}, {449, 244}, {454, 245}, {459, 246}, {464, 247}, {469, 248}, {474, 249},
      {479, 250}, {484, 251}, {490, 252}, {495, 253}, {500, 254}, {506, 255}, {512, 256}};
  EXPECT_EQ(table.rows, 512);
  for (int64_t distance = -127; distance <= 127; ++distance) {
    EXPECT_EQ(table.of(distance), 256 - distance) << distance;
  }
  for (int64_t distance = 444; distance < 2000; ++distance) {
    const int64_t bucket = std::prev(begins.upper_bound(distance))->second;
    EXPECT_EQ(table.of(distance), 256 - bucket) << distance;
    EXPECT_EQ(table.of(-distance), std::min<int64_t>(256 + bucket, 511)) << distance;
  }
}

TEST(RowsOfDistancesTest, BeginsEachOfFewBucketsWhereTheLibraryDoes) {
  const DistanceRows table = RowsOfDistances(/*buckets=*/16, /*max_distance=*/16);
  const std::map<int64_t, int64_t> begins = {{0, 0}, {1, 1}, {2, 2},  {3, 3}, {4, 4},
                                             {5, 5}, {7, 6}, {10, 7}, {16, 8}};
  for (int64_t distance = 0; distance < 100; ++distance) {
    const int64_t bucket = std::prev(begins.upper_bound(distance))->second;
    EXPECT_EQ(table.of(distance), 8 - bucket) << distance;
    EXPECT_EQ(table.of(-distance), std::min<int64_t>(8 + bucket, 15)) << distance;
  }
}

TEST(RowsOfDistancesTest, HasARowForEachDistanceWithoutBuckets) {
  const DistanceRows table = RowsOfDistances(/*buckets=*/0, /*max_distance=*/5);
  EXPECT_EQ(table.rows, 10);
  for (int64_t distance = -4; distance <= 5; ++distance) {
    EXPECT_EQ(table.of(distance), 5 - distance) << distance;
  }
  EXPECT_EQ(table.of(6), 0);
  EXPECT_EQ(table.of(-5), 9);
  EXPECT_EQ(table.of(-100), 9);
}

TEST(RowsOfDistancesTest, NeverRisesWithTheDistance) {
  for (const int64_t buckets : {0, 4, 8, 20, 64, 512}) {
    const DistanceRows table = RowsOfDistances(buckets, /*max_distance=*/300);
    for (int64_t distance = -400; distance < 400; ++distance) {
      EXPECT_GE(table.of(distance), table.of(distance + 1)) << buckets << ", " << distance;
    }
  }
}

}  // namespace
}  // namespace encoderd::ops
