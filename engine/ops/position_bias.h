// position_bias.h — what is added to the score of a query and a key for how far apart they are.
//
// Source: Raffel et al. 2020 (T5), 2.1, in the form without causality that transformers' MPNet has:
//         distances in buckets, a learned number for each bucket and head. Press et al. 2022
//         (ALiBi), 3, in the symmetric form that bidirectional encoders have: a slope for each head.
// Memory: neither grows with the sequence.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace encoderd::ops {

// For head h and a key d tokens behind the query (d < 0: in front of it): by_distance[h · (2 · reach
// + 1) + reach + d], with d cut to [-reach, reach]; then minus slopes[h] · |d|. What is empty adds
// nothing.
struct PositionBias {
  int64_t reach = 0;
  std::vector<float> by_distance;  // [heads, 2 · reach + 1]
  std::vector<float> slopes;       // [heads]

  bool empty() const { return by_distance.empty() && slopes.empty(); }
};

// The bucket of a key `distance` tokens behind the query. Of half of the `buckets` for each
// direction, half again are for one distance each; the others, ever wider, end at max_distance.
// REQUIRES: buckets is even and at least 4; max_distance > buckets / 4.
int64_t RelativeBucket(int64_t distance, int64_t buckets, int64_t max_distance);

// table: [buckets, heads].
PositionBias BucketBias(std::span<const float> table, int64_t buckets, int64_t max_distance);

// The slopes of the paper: powers of 2^(-8/n) for the largest power of two n of heads, and for the
// heads beyond it every other one of the powers for 2n.
PositionBias AlibiBias(int64_t heads);

// bias[key] += what there is for `row` of `head` and each key of [first, end).
void AddPositionBias(const PositionBias& position_bias, int64_t head, int64_t row, int64_t first,
                     int64_t end, float* bias);

}  // namespace encoderd::ops
