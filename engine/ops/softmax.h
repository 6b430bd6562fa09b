// softmax.h — the vector passes of attention between its two matrix products.
//
// Role: private to engine/ops; used by attention.cc. Dispatched by Highway to the widest vectors in
//       use.
#pragma once

#include <cstdint>

namespace encoderd::ops {

// Scores of one query row, cut into blocks of kKeyBlock keys: key j is at data[(j / kKeyBlock) ·
// block_stride + j % kKeyBlock].
inline constexpr int64_t kKeyBlock = 64;
// Keys are padded to a multiple of this, the widest vector; padding keys carry a bias of −∞.
inline constexpr int64_t kKeyStep = 16;

struct ScoreRow {
  float* data = nullptr;
  int64_t block_stride = 0;
  int64_t keys = 0;  // S, or those of some blocks; without padding
};

// Replaces each score s by exp(s · scale + bias − max) and returns their sum, which is at least 1;
// hidden keys (bias −∞) become exactly 0. When every key is hidden, so does the sum. A NaN or
// infinity among the scores gives NaN. bias: [S rounded up to kKeyStep], finite or −∞. The scores of
// padding keys must be finite.
float ExpRow(const ScoreRow& row, const float* bias, float scale);

// dst[j] = row[j] · factor for the S keys.
void ScaleRow(const ScoreRow& row, float factor, float* dst);

// What a query row and a block of keys get for how far apart they are.
struct RowTerms {
  const int32_t* rows = nullptr;    // of a table, for each key
  int64_t keys = 0;                 // a multiple of kKeyStep, at most kKeyBlock
  const float* by_query = nullptr;  // by row of the table
  const float* by_key = nullptr;    // by row from first_row on, kKeyBlock keys each
  int32_t first_row = 0;
};

// scores[j] += by_query[rows[j]] + by_key[(rows[j] - first_row) · kKeyBlock + j].
void AddByRow(const RowTerms& terms, float* scores);

// dst[c · kKeyBlock + r] = src[r · src_stride + c] for r < rows ≤ kKeyBlock, c < columns: keys
// become columns.
void TransposeKeys(const float* src, int64_t src_stride, int64_t rows, int64_t columns, float* dst);

}  // namespace encoderd::ops
