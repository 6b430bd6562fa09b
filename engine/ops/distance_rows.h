// distance_rows.h — which row of a table of relative positions stands for how far apart query and
// key are.
//
// Source: He et al. 2021 (DeBERTa), 3.1; the buckets of its second version are those of
//         transformers 5.24, models/deberta_v2: make_log_bucket_position.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace encoderd::ops {

// Rows count from the farthest key behind the query to the farthest in front of it, and half of
// them from distance 0 on: row_of never rises with the distance.
struct DistanceRows {
  int64_t rows = 0;             // of the table; 0: there is none
  int64_t reach = 0;            // beyond it on either side there is one row each
  std::vector<int32_t> row_of;  // [2 · reach + 1]: of a key d tokens behind the query at reach + d

  bool empty() const { return rows == 0; }
  int32_t of(int64_t distance) const {
    return row_of[static_cast<size_t>(reach + std::clamp(distance, -reach, reach))];
  }
};

// Of `buckets` rows, half for each direction, half again stand for one distance each; the others,
// ever wider, end at max_distance. 0 buckets: a row for each distance from 1 - max_distance to
// max_distance. REQUIRES: buckets is a multiple of 4; max_distance is at least 1, and more than
// buckets / 4 + 1 where there are buckets.
DistanceRows RowsOfDistances(int64_t buckets, int64_t max_distance);

}  // namespace encoderd::ops
