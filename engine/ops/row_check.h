// row_check.h — private to engine/ops: the self-check that a row's bits do not depend on the rows
// around it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/status/statusor.h"
#include "engine/ops/row_buckets.h"
#include "engine/status_macros.h"
#include "engine/tensor/buffer.h"

namespace encoderd::ops {

// Fills each bucket with three rows in turn, runs it, and compares every row of the result with the
// first of its kind that was seen: a row's bits must depend neither on the bucket, nor on its
// place, nor on what lies beside it. run(src, rows, dst) → absl::Status is the operation under
// test.
template <typename F>
absl::StatusOr<bool> RowsAgreeInEveryBucket(const RowBuckets& buckets, int64_t in, int64_t out,
                                            F&& run) {
  constexpr int64_t kKinds = 3;
  const int64_t capacity = buckets.rows(buckets.count() - 1);
  auto floats = [](int64_t count) { return static_cast<size_t>(count) * sizeof(float); };
  ASSIGN_OR_RETURN(const Buffer src, Buffer::Allocate(floats(capacity * in), "self-check input"));
  ASSIGN_OR_RETURN(const Buffer dst, Buffer::Allocate(floats(capacity * out), "self-check output"));
  ASSIGN_OR_RETURN(const Buffer first, Buffer::Allocate(floats(kKinds * out), "self-check rows"));
  for (int64_t row = 0; row < capacity; ++row) {
    // Irregular values of either sign and of very different size from row to row, so that another
    // order of summation, or a value from a neighbour, shows in the last bits.
    const auto kind = static_cast<float>(row % kKinds);
    for (int64_t i = 0; i < in; ++i) {
      src.floats()[static_cast<size_t>(row * in + i)] =
          std::sin(static_cast<float>(i * i + 1) + kind) * std::pow(100.0f, kind - 1);
    }
  }
  for (int64_t index = 0; index < buckets.count(); ++index) {
    RETURN_IF_ERROR(run(src.floats().data(), buckets.rows(index), dst.floats().data()));
    if (index == 0) std::memcpy(first.data(), dst.data(), first.size());
    for (int64_t row = 0; row < buckets.rows(index); ++row) {
      if (std::memcmp(dst.data() + floats(row * out), first.data() + floats(row % kKinds * out),
                      floats(out)) != 0) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace encoderd::ops
