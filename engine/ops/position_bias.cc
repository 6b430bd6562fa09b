#include "engine/ops/position_bias.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace encoderd::ops {

int64_t RelativeBucket(int64_t distance, int64_t buckets, int64_t max_distance) {
  const int64_t half = buckets / 2;
  const int64_t exact = half / 2;
  const int64_t first = distance > 0 ? half : 0;
  const int64_t tokens = std::abs(distance);
  if (tokens < exact) return first + tokens;
  // In single precision as PyTorch does it, since a bucket may begin at a whole number.
  const float ratio =
      std::log(static_cast<float>(tokens) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
  const auto wide = static_cast<int64_t>(ratio * static_cast<float>(half - exact));
  return first + std::min(exact + wide, half - 1);
}

PositionBias BucketBias(std::span<const float> table, int64_t buckets, int64_t max_distance) {
  const int64_t heads = static_cast<int64_t>(table.size()) / buckets;
  PositionBias bias = {.reach = max_distance};
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t distance = -max_distance; distance <= max_distance; ++distance) {
      const int64_t bucket = RelativeBucket(distance, buckets, max_distance);
      bias.by_distance.push_back(table[static_cast<size_t>(bucket * heads + head)]);
    }
  }
  return bias;
}

PositionBias AlibiBias(int64_t heads) {
  const auto power = [](int64_t of, int64_t i) {
    return static_cast<float>(
        std::exp2(-8.0 * static_cast<double>(i + 1) / static_cast<double>(of)));
  };
  const auto whole = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  PositionBias bias;
  for (int64_t i = 0; i < whole; ++i) bias.slopes.push_back(power(whole, i));
  for (int64_t i = 0; i < heads - whole; ++i) bias.slopes.push_back(power(2 * whole, 2 * i));
  return bias;
}

void AddPositionBias(const PositionBias& position_bias, int64_t head, int64_t row, int64_t first,
                     int64_t end, float* bias) {
  if (!position_bias.by_distance.empty()) {
    const int64_t reach = position_bias.reach;
    const float* const of_row =
        position_bias.by_distance.data() + head * (2 * reach + 1) + reach - row;
    // Keys at and beyond both ends of the reach have one number each.
    const int64_t near = std::clamp(row - reach, first, end);
    const int64_t far = std::clamp(row + reach + 1, near, end);
    for (int64_t key = first; key < near; ++key) bias[key] += of_row[row - reach];
    for (int64_t key = near; key < far; ++key) bias[key] += of_row[key];
    for (int64_t key = far; key < end; ++key) bias[key] += of_row[row + reach];
  }
  if (!position_bias.slopes.empty()) {
    const float slope = position_bias.slopes[static_cast<size_t>(head)];
    for (int64_t key = first; key < end; ++key) {
      bias[key] -= slope * static_cast<float>(std::abs(key - row));
    }
  }
}

}  // namespace encoderd::ops
