// row_buckets.h — the row counts that micro-kernels are built for, and how any number of rows is cut
// into them.
//
// Why:  a micro-kernel has its row count built in. So rows go through in chunks of kMaxRows, and
//       the last chunk is rounded up to the next bucket. The extra rows are computed from whatever
//       lies there and never read.
// Bits: a row's result must not depend on its bucket. Where the engine's self-check finds that it
//       does, it uses the single bucket of fixed blocks, which makes it true by construction.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/tensor/rounding.h"

namespace encoderd::ops {

class RowBuckets {
 public:
  // 8: the smallest step that costs little (M = 8 takes a third less than 16) and keeps clear of M
  // = 1, which has its own kernel and its own bits. 64: kernels get no faster beyond.
  static constexpr int64_t kStep = 8;
  static constexpr int64_t kMaxRows = 64;
  static constexpr int64_t kFixedRows = kMaxRows;
  // Rows that buffers must have beyond the rows in use, because the last chunk is rounded up.
  static constexpr int64_t kPaddingRows = kFixedRows;

  enum class Mode { kSteps, kFixed };
  explicit RowBuckets(Mode mode = Mode::kSteps) : mode_(mode) {}

  bool fixed() const { return mode_ == Mode::kFixed; }
  int64_t count() const { return fixed() ? 1 : kMaxRows / kStep; }
  // Row count of bucket `index`, 0 … count()-1.
  int64_t rows(int64_t index) const { return fixed() ? kFixedRows : (index + 1) * kStep; }

  // Calls run(first_row, rows_of_bucket) for each chunk of `row_count` rows, in order.
  template <typename F>
  void ForEachChunk(int64_t row_count, F&& run) const {
    for (int64_t first = 0; first < row_count; first += kMaxRows) {
      run(first, fixed() ? kFixedRows : std::min(RoundUp(row_count - first, kStep), kMaxRows));
    }
  }

 private:
  Mode mode_;
};

}  // namespace encoderd::ops
