// row_check.h — private to engine/ops: the self-check that a row's bits do not depend on the rows
// around it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ops/row_buckets.h"
#include "engine/status_macros.h"

namespace encoderd::ops {

// Fills each bucket with copies of one row, runs it, and compares every row of the result with the
// first row of the first bucket. run(src, rows, dst) → absl::Status is the operation under test.
template <typename F>
absl::StatusOr<bool> RowsAgreeInEveryBucket(const RowBuckets& buckets, int64_t in, int64_t out,
                                            F&& run) {
  const int64_t capacity = buckets.rows(buckets.count() - 1);
  std::vector<float> src(static_cast<size_t>(capacity * in));
  // Irregular values of either sign, so that another order of summation shows in the last bits.
  for (int64_t i = 0; i < in; ++i)
    src[static_cast<size_t>(i)] = std::sin(static_cast<float>(i * i + 1));
  const size_t row_bytes = static_cast<size_t>(out) * sizeof(float);
  for (int64_t row = 1; row < capacity; ++row) {
    std::memcpy(&src[static_cast<size_t>(row * in)], src.data(),
                static_cast<size_t>(in) * sizeof(float));
  }
  std::vector<float> dst(static_cast<size_t>(capacity * out));
  std::vector<float> first;
  for (int64_t index = 0; index < buckets.count(); ++index) {
    RETURN_IF_ERROR(run(src.data(), buckets.rows(index), dst.data()));
    if (first.empty()) first.assign(dst.begin(), dst.begin() + out);
    for (int64_t row = 0; row < buckets.rows(index); ++row) {
      if (std::memcmp(&dst[static_cast<size_t>(row * out)], first.data(), row_bytes) != 0)
        return false;
    }
  }
  return true;
}

}  // namespace encoderd::ops
