// row_buckets.h — the row counts that primitives are built for, and how any number of rows is cut
// into them.
//
// Why:  a oneDNN primitive has its row count built in. Building one per batch size would cost
//       0.4–0.9 ms each and grow without bound; run-time row counts fall off the fast path. So rows
//       go through in chunks of at most kMaxRows, and the last chunk is rounded up to the next
//       bucket. The extra rows are computed from whatever lies there and never read.
// Bits: a row's result must not depend on its bucket. Where the engine's self-check finds that it
//       does, it uses the single bucket of fixed blocks, which makes it true by construction.
#pragma once

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"

namespace encoderd::ops {

class RowBuckets {
 public:
  // 8: the smallest step that costs little (M = 8 takes a third less than 16) and keeps clear of M
  // = 1, which has its own kernel and its own bits. 256: the FFN activations of a block, at a
  // width of 1536, are 1.5 MiB and stay in a 2 MiB L2 cache; 512 rows would not.
  static constexpr int64_t kStep = 8;
  static constexpr int64_t kMaxRows = 256;
  // One of the block sizes at which gemm:jit gives every row the same bits on AVX2.
  static constexpr int64_t kFixedRows = 64;
  // Rows that buffers must have beyond the rows in use, because the last chunk is rounded up.
  static constexpr int64_t kPaddingRows = kFixedRows;

  enum class Mode { kSteps, kFixed };
  explicit RowBuckets(Mode mode = Mode::kSteps) : mode_(mode) {}

  bool fixed() const { return mode_ == Mode::kFixed; }
  int64_t count() const { return fixed() ? 1 : kMaxRows / kStep; }
  // Row count of bucket `index`, 0 … count()-1.
  int64_t rows(int64_t index) const { return fixed() ? kFixedRows : (index + 1) * kStep; }

  // Calls run(first_row, bucket_index) → absl::Status for each chunk of `row_count` rows, in order,
  // until one fails.
  template <typename F>
  absl::Status ForEachChunk(int64_t row_count, F&& run) const {
    const int64_t largest = rows(count() - 1);
    for (int64_t first = 0; first < row_count; first += largest) {
      const int64_t wanted = std::min(row_count - first, largest);
      const int64_t index = fixed() ? 0 : (wanted + kStep - 1) / kStep - 1;
      if (absl::Status status = run(first, index); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  Mode mode_;
};

}  // namespace encoderd::ops
