#include "engine/ops/distance_rows.h"

#include <cmath>

namespace encoderd::ops {
namespace {

// How many rows from the one of distance 0 lies the row of `tokens` tokens in front.
int64_t Bucket(int64_t tokens, int64_t buckets, int64_t max_distance) {
  const int64_t exact = buckets / 4;
  if (buckets == 0 || tokens <= exact) return tokens;
  // In single precision as PyTorch does it, which makes the bucket of max_distance - 1 the last
  // that begins at a whole number.
  const float ratio = std::log(static_cast<float>(tokens) / static_cast<float>(exact)) /
                      std::log(static_cast<float>(static_cast<double>(max_distance - 1) /
                                                  static_cast<double>(exact)));
  return exact + static_cast<int64_t>(std::ceil(ratio * static_cast<float>(exact - 1)));
}

}  // namespace

DistanceRows RowsOfDistances(int64_t buckets, int64_t max_distance) {
  const int64_t half = buckets > 0 ? buckets / 2 : max_distance;
  DistanceRows table = {.rows = 2 * half, .reach = max_distance};
  for (int64_t behind = -max_distance; behind <= max_distance; ++behind) {
    const int64_t bucket = Bucket(std::abs(behind), buckets, max_distance);
    const int64_t row = half + (behind > 0 ? -bucket : bucket);
    table.row_of.push_back(static_cast<int32_t>(std::clamp<int64_t>(row, 0, table.rows - 1)));
  }
  return table;
}

}  // namespace encoderd::ops
