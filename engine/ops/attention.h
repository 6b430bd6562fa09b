// attention.h — softmax(q·kᵀ · scale + bias) · v for one sequence, head by head, with every mask part and
// with attention maps on demand.
//
// Source: Vaswani et al. 2017, 3.2; the matrix products are our own in fp32 (head_product.h),
//         else oneDNN 3.7 brgemm micro-kernels; softmax is ours (softmax.h).
// Order:  a span of query rows goes through the keys chunk by chunk, block of rows by block of rows.
//         A block's scores and a chunk's keys and values stay in the second cache; scratch grows
//         with S and never with S². As in Dao et al. 2022 (FlashAttention), 3.1, a row's weights
//         are relative to the largest score so far.
// Numbers: fp32, or in bf16 q, k, v and the weights rounded to bf16 as they enter the products. Sums,
//         softmax, masks, biases and maps are fp32 in both.
// Positions: where there is a table of relative positions, its rows are keys and queries too (He et
//         al. 2021, 3.1): the row for how far apart a query and a key are is a key to the query and
//         a query to the key, and the three products of a pair are added. (All queries are scaled.)
// Window: key blocks that no row of a query block can reach are not computed, so a row costs what
//         its window costs, however long the sequence.
// Bits:   a sequence is computed alone, whatever else is in its batch; maps are copied from what is
//         computed anyway. So nothing here depends on the neighbours or on what was asked for.
// A row that may see no key attends evenly to all keys of its sequence, those outside its window
// too. (So do models of transformers whose attention is eager: every score of such a row is the
// same lowest number.)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/ops/distance_rows.h"
#include "engine/ops/map_output.h"
#include "engine/ops/mask.h"
#include "engine/ops/position_bias.h"
#include "engine/precision.h"
#include "engine/tensor/buffer.h"

namespace encoderd::ops {

// Where q, k and v of head h and token t lie: data + t · row_stride + h · head_stride +
// {q,k,v}_offset, head_dim values each.
struct QkvStrides {
  int64_t row_stride = 0;
  int64_t head_stride = 0;
  int64_t q_offset = 0;
  int64_t k_offset = 0;
  int64_t v_offset = 0;
};

struct AttentionOptions {
  // kFp32 or kBf16. Heads narrower than kLeastHalfHeadDim are computed in fp32 anyway.
  Precision precision = Precision::kFp32;
  int64_t heads = 0;
  int64_t head_dim = 0;
  QkvStrides strides;
  float scale = 1;  // what q·kᵀ is multiplied with
  PositionBias position_bias;
  DistanceRows positions;  // of the table of relative positions
};

// Given a row of a head's map, [S], as fp32.
using MapRowSink =
    absl::FunctionRef<void(int64_t head, int64_t row, std::span<const float> weights)>;

// Consecutive tokens of a sequence whose q, k and v lie as the kernels read them: what Pack wrote.
struct PackedTokens {
  const float* data = nullptr;
  int64_t tokens = 0;
};

struct AttentionArgs {
  // q, k and v of the sequence: rows as `strides` says, or packed in pieces, of which all but the
  // last have a multiple of kPieceStep tokens.
  const float* qkv = nullptr;
  std::span<const PackedTokens> pieces;
  int64_t tokens = 0;  // S
  // Rows [first_query, first_query + queries) attend. REQUIRES: first_query is a multiple of
  // kQueryBlock.
  int64_t first_query = 0;
  int64_t queries = 0;
  const Mask* mask = nullptr;
  // Row i sees key j only where |i - j| ≤ window, and the mask lets it; 0: wherever the mask does.
  int64_t window = 0;
  // What PackPositions gave of this block's table. Read only where there is one.
  const float* positions = nullptr;
  // [queries, heads · head_dim]; null: only the map is wanted and v is left alone.
  float* context = nullptr;
  const MapOutput* map = nullptr;  // null: no map is wanted
  // Called with the rows of every head's map, by head and then by row. Null: nobody looks.
  const MapRowSink* each_row = nullptr;
  // Asked before each head: whether the result is of no use any more. Null: it is of use.
  const absl::FunctionRef<bool()>* stop = nullptr;
};

// Immutable after Create; Run may be called from several threads at once with different scratch.
class Attention {
 public:
  static constexpr int64_t kQueryBlock = 64;
  static constexpr int64_t kPieceStep = 64;
  // Below it, the zeros that bf16 kernels want would take more room and time than bf16 saves.
  static constexpr int64_t kLeastHalfHeadDim = 16;

  // Errors: kInternal when oneDNN cannot build its micro-kernels.
  static absl::StatusOr<Attention> Create(const AttentionOptions& options);

  Attention() = default;  // only to be assigned to

  // Packs `tokens` rows of q, k and v: `packed` has room for 3 · heads · head_dim values for each
  // token of `tokens` rounded up to kPieceStep.
  void Pack(const float* qkv, int64_t tokens, float* packed) const;

  // Packs the table of relative positions, [options.positions.rows] rows of q and k as `strides`
  // says, for AttentionArgs::positions. Errors: kResourceExhausted.
  absl::StatusOr<Buffer> PackPositions(const float* qkv) const;

  // Scratch that Run needs for sequences of up to `tokens` tokens.
  size_t scratch_bytes(int64_t tokens) const;

  // Returns whether every score was finite; where not, the rows concerned are NaN. Errors:
  // kCancelled once args.stop has said so; context and map are then unspecified. scratch: 64-byte
  // aligned.
  absl::StatusOr<bool> Run(const AttentionArgs& args, std::span<std::byte> scratch) const;

 private:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

}  // namespace encoderd::ops
