// softmax.h — the vector passes of attention between its two matrix products.
//
// Source: Milakov & Gimelshein 2018, 3.1: the keys come part by part. Weights are relative to the
//         row's largest score so far; where a part brings a larger one, what was summed before is
//         multiplied by how much smaller it has become.
// Role:   private to engine/ops. Dispatched by Highway to the widest vectors in use.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "engine/precision.h"

namespace encoderd::ops {

// What the keys so far have come to for one query row.
struct RowState {
  float max = -std::numeric_limits<float>::infinity();  // the largest score that is not hidden
  float sum = 0;     // Σ exp(score - max); 0: no key was seen; NaN: a score was not finite
  float factor = 1;  // what the last part did to what was summed before it, or ScaleRows is to do
};

// Where q, k and v of a head begin, that is to be computed next: `count` numbers in each row.
struct NextHead {
  std::array<const float*, 3> parts = {};
  int64_t stride = 0;  // from one row to the next
  int64_t count = 0;   // 0: nothing comes next
};

// The scores of some query rows and a part of the keys.
struct ScoreBlock {
  float* scores = nullptr;  // [rows][stride]
  int64_t stride = 0;       // at least `padded`
  int64_t rows = 0;
  int64_t keys = 0;
  int64_t padded = 0;  // the keys and as many behind them as the next product reads
  // Added to the scores: [rows][bias_stride], finite or −∞, which hides a key; a stride of 0: the
  // same for all rows. Null: nothing.
  const float* bias = nullptr;
  int64_t bias_stride = 0;
  float* copy =
      nullptr;  // null, or where to write the weights in fp32 as well: [rows][copy_stride]
  int64_t copy_stride = 0;
  // Fetched into the second-level cache meanwhile: as many rows as there are of scores.
  NextHead next;
};

// Replaces each score by its weight exp(score + bias - max), fp32 or, from where a row begins, bf16,
// and brings `states` [rows] up to date. Hidden keys weigh exactly 0, and so does the padding.
void ExpScores(const ScoreBlock& block, Precision precision, RowState* states);

// dst[i] = src[i] · factor for i < count; dst may be src.
void Scale(const float* src, int64_t count, float factor, float* dst);

// The same for `rows` rows of `count` numbers, each with the factor of its state.
void ScaleRows(const RowState* states, int64_t rows, const float* src, int64_t src_stride,
               int64_t count, float* dst, int64_t dst_stride);

// What a query row and some keys get for how far apart they are.
struct RowTerms {
  const int32_t* rows = nullptr;    // of a table, for each key
  int64_t keys = 0;                 // a multiple of 16, at most kByKeyStride
  const float* by_query = nullptr;  // by row of the table
  const float* by_key = nullptr;    // by row from first_row on, kByKeyStride keys each
  int32_t first_row = 0;
};
inline constexpr int64_t kByKeyStride = 64;

// scores[j] += by_query[rows[j]] + by_key[(rows[j] - first_row) · kByKeyStride + j].
void AddByRow(const RowTerms& terms, float* scores);

}  // namespace encoderd::ops
