#include "engine/ops/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/ops/onednn.h"
#include "engine/ops/rounding.h"
#include "engine/ops/softmax.h"
#include "engine/ops/ukernel.h"
#include "engine/status_macros.h"
#include "engine/tensor/convert.h"

namespace encoderd::ops {
namespace {

constexpr int64_t kQueryBlock = Attention::kQueryBlock;
// Query blocks are rounded up to this; kernels exist for each multiple.
constexpr int64_t kQueryStep = 8;
constexpr int64_t kFloatsPerLine = 16;

static_assert(Attention::kPieceStep == kKeyBlock && kKeyBlock % kQueryBlock == 0);

// Rows of the position table that the pairs of a query block and a key block need at most: one for
// each distance between them, from a multiple of kQueryStep on.
constexpr int64_t kTileRows = RoundUp(kQueryBlock + kKeyBlock - 1 + kQueryStep - 1, kQueryStep);

// One head of kKeyBlock tokens, or of what is left at the end of a sequence.
struct HeadBlock {
  const float* q;  // [tokens, head_dim]
  const float* k;  // [head_dim][kKeyBlock]: transposed, padding keys 0
  const float* v;  // [tokens, head_dim], padding rows 0
};

// The scratch of one Run, by name.
struct Scratch {
  HeadBlock* blocks;    // [key blocks] of the current head
  float* packed;        // one head of the sequence, where the caller has not packed it
  float* scores;        // [key blocks][kQueryBlock][kKeyBlock], from the first block in reach
  float* bias;          // [padded keys]: 0 where the keys mask lets a key be seen, −∞ elsewhere
  float* row_bias;      // [padded keys]: the same with all that is hidden from one row, and the
                        // position bias
  float* by_query;      // [kQueryBlock][position rows]: queries with positions as keys
  float* by_key;        // [kTileRows][kKeyBlock]: positions as queries with a block of keys
  int32_t* rows;        // [padded keys + kQueryBlock]: the position rows by distance
  float* context;       // [kQueryBlock, head_dim]
  float* ones;          // [kQueryStep][kKeyBlock]: the weights of a row that sees nothing
  float* even_context;  // [kQueryStep, head_dim]: what they give
  float* map_row;       // [padded keys]
};

constexpr float kHidden = -std::numeric_limits<float>::infinity();

// Keys [first, end) of the key blocks that some rows can reach; first begins a block, and end is
// the end of one or of the sequence.
struct Keys {
  int64_t first;
  int64_t end;
};

// Those that rows [first_row, first_row + rows) can reach.
Keys InReach(const AttentionArgs& args, int64_t first_row, int64_t rows) {
  if (args.window == 0) return {.first = 0, .end = args.tokens};
  const int64_t first = std::max<int64_t>(first_row - args.window, 0);
  const int64_t end = std::min(first_row + rows - 1 + args.window, args.tokens - 1) + 1;
  return {.first = first / kKeyBlock * kKeyBlock,
          .end = std::min(RoundUp(end, kKeyBlock), args.tokens)};
}

bool VariesByRow(const AttentionArgs& args) {
  const Mask& mask = *args.mask;
  return !mask.pairs.empty() || !mask.head_pairs.empty() || mask.causal ||
         !mask.segment_ids.empty() || args.window > 0;
}

// 0 or −∞ for each key as far as the keys mask and the padding decide.
void FillKeyBias(const Mask& mask, Keys keys, float* bias) {
  for (int64_t key = keys.first; key < keys.end; ++key) {
    bias[key] = mask.keys.empty() || mask.keys[static_cast<size_t>(key)] != 0 ? 0.0f : kHidden;
  }
  std::fill(bias + keys.end, bias + RoundUp(keys.end, kKeyStep), kHidden);
}

// Adds to `bias` what is hidden from query `row` of `head` and not from every row.
void HideForRow(const AttentionArgs& args, Keys keys, int64_t head, int64_t row, float* bias) {
  const Mask& mask = *args.mask;
  auto hide_zeros = [&](std::span<const uint8_t> part, int64_t plane) {
    if (part.empty()) return;
    const uint8_t* const seen = part.data() + (plane * args.tokens + row) * args.tokens;
    for (int64_t key = keys.first; key < keys.end; ++key) {
      if (seen[key] == 0) bias[key] = kHidden;
    }
  };
  auto hide = [&](int64_t first, int64_t end) {
    if (first < end) std::fill(bias + first, bias + end, kHidden);
  };
  hide_zeros(mask.pairs, /*plane=*/0);
  hide_zeros(mask.head_pairs, head);
  if (mask.causal) hide(row + 1, keys.end);
  if (args.window > 0) {
    hide(keys.first, row - args.window);
    hide(row + args.window + 1, keys.end);
  }
  if (!mask.segment_ids.empty()) {
    const int32_t own = mask.segment_ids[static_cast<size_t>(row)];
    for (int64_t key = keys.first; key < keys.end; ++key) {
      if (mask.segment_ids[static_cast<size_t>(key)] != own) bias[key] = kHidden;
    }
  }
}

bool HasRow(const MapOutput& map, int64_t row) {
  return map.rows.empty() || std::ranges::find(map.rows, row) != map.rows.end();
}

// Whether the map has any row of the query block that starts at `first_row`.
bool WantsRows(const MapOutput& map, int64_t first_row) {
  return map.rows.empty() || std::any_of(map.rows.begin(), map.rows.end(), [&](int64_t row) {
           return row >= first_row && row < first_row + kQueryBlock;
         });
}

// Writes a row of its `map_head`th head. REQUIRES: HasRow.
void WriteMapRow(const MapOutput& map, int64_t map_head, int64_t row,
                 std::span<const float> weights) {
  const auto rows = static_cast<int64_t>(map.rows.empty() ? weights.size() : map.rows.size());
  const int64_t index =
      map.rows.empty() ? row : std::ranges::find(map.rows, row) - map.rows.begin();
  const size_t row_bytes = weights.size() * DataTypeBytes(map.type);
  NarrowFromFp32(map.type, weights,
                 {map.dst + static_cast<size_t>(map_head * rows + index) * row_bytes, row_bytes});
}

// What is being computed of one head.
struct HeadRun {
  int64_t head;
  int64_t map_head;       // its place in the map, or -1
  bool has_even_context;  // whether scratch.even_context is this head's
};

}  // namespace

struct Attention::Impl {
  AttentionOptions options;
  // Indexed by (rounded size / step) - 1.
  using QueryKernels = std::array<Ukernel, kQueryBlock / kQueryStep>;
  std::array<QueryKernels, kKeyBlock / kKeyStep> score;    // by keys of the block, by query rows
  std::array<QueryKernels, kKeyBlock / kKeyStep> context;  // the same; first key block: C = A · B
  std::array<QueryKernels, kKeyBlock / kKeyStep> context_add;  // later key blocks: C += A · B
  QueryKernels by_query;  // by query rows, kKeyBlock rows of the position table being keys

  Scratch Carve(int64_t tokens, std::byte* memory) const;
  // Floats of one packed head.
  int64_t PackedFloats(int64_t tokens) const {
    return 3 * RoundUp(tokens, kKeyBlock) * options.head_dim;
  }
  int64_t PositionRows() const { return RoundUp(options.positions.rows, kKeyBlock); }
  // Floats of one head of the packed position table, which has no v.
  int64_t PackedPositionFloats() const { return 2 * PositionRows() * options.head_dim; }
  void PackHead(const float* qkv, int64_t tokens, int64_t head, bool values, float* packed) const;
  HeadBlock* ListBlocks(const float* packed, int64_t tokens, HeadBlock* blocks) const;
  void PrepareHead(const AttentionArgs& args, int64_t head, const Scratch& scratch) const;
  bool RunQueryBlock(const AttentionArgs& args, HeadRun& run, int64_t first_row,
                     const Scratch& scratch) const;
  void AddPositionScores(const AttentionArgs& args, Keys keys, int64_t head, int64_t first_row,
                         int64_t rows, const Scratch& scratch) const;
  float ExpScores(const AttentionArgs& args, Keys keys, int64_t head, int64_t row,
                  const ScoreRow& scores, const Scratch& scratch) const;
  void GiveMapRow(const AttentionArgs& args, Keys keys, const HeadRun& run, int64_t row,
                  const ScoreRow& scores, float sum, const Scratch& scratch) const;
  const float* EvenContext(const AttentionArgs& args, HeadRun& run, const Scratch& scratch) const;
};

namespace {

// Index of the kernels for `key`'s block, which begins there.
size_t KeyKernel(int64_t tokens, int64_t key) {
  return static_cast<size_t>(RoundUp(std::min(kKeyBlock, tokens - key), kKeyStep) / kKeyStep - 1);
}

// Index of the kernels for `rows` ≤ kQueryBlock query rows.
size_t RowKernel(int64_t rows) {
  return static_cast<size_t>(RoundUp(rows, kQueryStep) / kQueryStep - 1);
}

}  // namespace

absl::StatusOr<Attention> Attention::Create(const AttentionOptions& options) {
  auto impl = std::make_shared<Impl>();
  impl->options = options;
  absl::Status built = CatchOneDnn("attention", [&] {
    for (int64_t keys = kKeyStep; keys <= kKeyBlock; keys += kKeyStep) {
      for (int64_t rows = kQueryStep; rows <= kQueryBlock; rows += kQueryStep) {
        const auto k = static_cast<size_t>(keys / kKeyStep - 1);
        const auto r = static_cast<size_t>(rows / kQueryStep - 1);
        impl->score[k][r] = Ukernel({.precision = Precision::kFp32,
                                     .m = rows,
                                     .n = keys,
                                     .k = options.head_dim,
                                     .lda = options.head_dim,
                                     .ldb = kKeyBlock,
                                     .ldc = kKeyBlock,
                                     .accumulate = false});
        Ukernel::Shape shape = {.precision = Precision::kFp32,
                                .m = rows,
                                .n = options.head_dim,
                                .k = keys,
                                .lda = kKeyBlock,
                                .ldb = options.head_dim,
                                .ldc = options.head_dim,
                                .accumulate = false};
        impl->context[k][r] = Ukernel(shape);
        shape.accumulate = true;
        impl->context_add[k][r] = Ukernel(shape);
      }
    }
    if (options.positions.empty()) return;
    for (int64_t rows = kQueryStep; rows <= kQueryBlock; rows += kQueryStep) {
      impl->by_query[RowKernel(rows)] = Ukernel({.precision = Precision::kFp32,
                                                 .m = rows,
                                                 .n = kKeyBlock,
                                                 .k = options.head_dim,
                                                 .lda = options.head_dim,
                                                 .ldb = kKeyBlock,
                                                 .ldc = impl->PositionRows(),
                                                 .accumulate = false});
    }
  });
  RETURN_IF_ERROR(built);
  Attention attention;
  attention.impl_ = std::move(impl);
  return attention;
}

Scratch Attention::Impl::Carve(int64_t tokens, std::byte* memory) const {
  const int64_t padded = RoundUp(tokens, kKeyBlock);
  float* next = reinterpret_cast<float*>(memory);
  auto take = [&](int64_t floats) {
    return std::exchange(next, next + RoundUp(floats, kFloatsPerLine));
  };
  static_assert(sizeof(HeadBlock) % sizeof(float) == 0);
  constexpr int64_t kBlockFloats = sizeof(HeadBlock) / sizeof(float);
  static_assert(sizeof(int32_t) == sizeof(float));
  const bool positions = !options.positions.empty();
  return {.blocks = reinterpret_cast<HeadBlock*>(take(padded / kKeyBlock * kBlockFloats)),
          .packed = take(PackedFloats(tokens)),
          .scores = take(padded * kQueryBlock),
          .bias = take(padded),
          .row_bias = take(padded),
          .by_query = take(kQueryBlock * PositionRows()),
          .by_key = take(positions ? kTileRows * kKeyBlock : 0),
          .rows = reinterpret_cast<int32_t*>(take(positions ? padded + kQueryBlock : 0)),
          .context = take(kQueryBlock * options.head_dim),
          .ones = take(kQueryStep * kKeyBlock),
          .even_context = take(kQueryStep * options.head_dim),
          .map_row = take(padded)};
}

size_t Attention::scratch_bytes(int64_t tokens) const {
  const Scratch scratch = impl_->Carve(tokens, nullptr);
  return reinterpret_cast<size_t>(scratch.map_row + RoundUp(tokens, kKeyBlock));
}

// q and v are made dense, k becomes columns; k and v are padded with zeros to a whole kKeyStep.
void Attention::Impl::PackHead(const float* qkv, int64_t tokens, int64_t head, bool values,
                               float* packed) const {
  const auto& [row_stride, head_stride, q_offset, k_offset, v_offset] = options.strides;
  const int64_t d = options.head_dim;
  const int64_t padded = RoundUp(tokens, kKeyBlock);
  qkv += head * head_stride;
  auto copy = [&](const float* src, float* dst) {
    for (int64_t token = 0; token < tokens; ++token) {
      std::memcpy(dst + token * d, src + token * row_stride,
                  static_cast<size_t>(d) * sizeof(float));
    }
  };
  copy(qkv + q_offset, packed);
  float* const k = packed + padded * d;
  for (int64_t key = 0; key < tokens; key += kKeyBlock) {
    float* const columns = k + key * d;
    const int64_t count = std::min(kKeyBlock, tokens - key);
    TransposeKeys(qkv + k_offset + key * row_stride, row_stride, count, d, columns);
    for (int64_t i = 0; count % kKeyStep != 0 && i < d; ++i) {
      std::fill(columns + i * kKeyBlock + count, columns + i * kKeyBlock + RoundUp(count, kKeyStep),
                0.0f);
    }
  }
  if (!values) return;
  float* const v = packed + 2 * padded * d;
  copy(qkv + v_offset, v);
  std::fill(v + tokens * d, v + RoundUp(tokens, kKeyStep) * d, 0.0f);
}

// Writes the blocks of a packed head and returns where the next ones go.
HeadBlock* Attention::Impl::ListBlocks(const float* packed, int64_t tokens,
                                       HeadBlock* blocks) const {
  const int64_t plane = RoundUp(tokens, kKeyBlock) * options.head_dim;
  for (int64_t key = 0; key < tokens; key += kKeyBlock) {
    const float* const q = packed + key * options.head_dim;
    *blocks++ = {.q = q, .k = q + plane, .v = q + 2 * plane};
  }
  return blocks;
}

void Attention::Impl::PrepareHead(const AttentionArgs& args, int64_t head,
                                  const Scratch& scratch) const {
  if (args.qkv != nullptr) {
    PackHead(args.qkv, args.tokens, head, args.context != nullptr, scratch.packed);
    ListBlocks(scratch.packed, args.tokens, scratch.blocks);
    return;
  }
  HeadBlock* blocks = scratch.blocks;
  for (const PackedTokens& piece : args.pieces) {
    blocks = ListBlocks(piece.data + head * PackedFloats(piece.tokens), piece.tokens, blocks);
  }
}

void Attention::Pack(const float* qkv, int64_t tokens, float* packed) const {
  for (int64_t head = 0; head < impl_->options.heads; ++head) {
    impl_->PackHead(qkv, tokens, head, /*values=*/true,
                    packed + head * impl_->PackedFloats(tokens));
  }
}

absl::StatusOr<Buffer> Attention::PackPositions(const float* qkv) const {
  const auto head_bytes = static_cast<size_t>(impl_->PackedPositionFloats()) * sizeof(float);
  // Zeroed: whole blocks are read.
  ASSIGN_OR_RETURN(
      Buffer packed,
      Buffer::AllocateZeroed(static_cast<size_t>(impl_->options.heads) * head_bytes, "positions"));
  for (int64_t head = 0; head < impl_->options.heads; ++head) {
    impl_->PackHead(qkv, impl_->options.positions.rows, head, /*values=*/false,
                    packed.floats().data() + head * impl_->PackedPositionFloats());
  }
  return packed;
}

// Adds what the queries of a block give with the positions as keys, and its keys with the positions
// as queries: one product for each row of the table in reach, not for each pair.
void Attention::Impl::AddPositionScores(const AttentionArgs& args, Keys keys, int64_t head,
                                        int64_t first_row, int64_t rows,
                                        const Scratch& scratch) const {
  const int64_t d = options.head_dim;
  const float* const position_queries = args.positions + head * PackedPositionFloats();
  const float* const position_keys = position_queries + PositionRows() * d;

  // The row of the table for row i and key j lies at (j - keys.first) + (rows - 1 - i).
  const int64_t distances = RoundUp(keys.end - keys.first, kKeyStep) + rows - 1;
  for (int64_t i = 0; i < distances; ++i) {
    scratch.rows[i] = options.positions.of(keys.first - (first_row + rows - 1) + i);
  }

  const float* const q = scratch.blocks[first_row / kKeyBlock].q + first_row % kKeyBlock * d;
  for (int64_t row = scratch.rows[distances - 1] / kKeyBlock * kKeyBlock; row <= scratch.rows[0];
       row += kKeyBlock) {
    by_query[RowKernel(rows)].Run(q, position_keys + row * d, scratch.by_query + row);
  }
  for (int64_t key = keys.first; key < keys.end; key += kKeyBlock) {
    const int64_t count = RoundUp(std::min(kKeyBlock, keys.end - key), kKeyStep);
    const int32_t* const block_rows = scratch.rows + (key - keys.first);
    const int64_t last = block_rows[0];
    const int64_t first = block_rows[count + rows - 2] / kQueryStep * kQueryStep;
    for (int64_t row = first; row <= last; row += kQueryBlock) {
      score[KeyKernel(args.tokens, key)][RowKernel(std::min(kQueryBlock, last + 1 - row))].Run(
          position_queries + row * d, scratch.blocks[key / kKeyBlock].k,
          scratch.by_key + (row - first) * kKeyBlock);
    }
    for (int64_t i = 0; i < rows; ++i) {
      AddByRow({.rows = block_rows + (rows - 1 - i),
                .keys = count,
                .by_query = scratch.by_query + i * PositionRows(),
                .by_key = scratch.by_key,
                .first_row = static_cast<int32_t>(first)},
               scratch.scores + (key - keys.first) * kQueryBlock + i * kKeyBlock);
    }
  }
}

// Turns the scores of one row into unnormalised weights and returns their sum; 0: it sees nothing.
float Attention::Impl::ExpScores(const AttentionArgs& args, Keys keys, int64_t head, int64_t row,
                                 const ScoreRow& scores, const Scratch& scratch) const {
  const float* bias = scratch.bias;
  if (VariesByRow(args) || !options.position_bias.empty()) {
    std::copy(scratch.bias + keys.first, scratch.bias + RoundUp(keys.end, kKeyStep),
              scratch.row_bias + keys.first);
    AddPositionBias(options.position_bias, head, row, keys.first, keys.end, scratch.row_bias);
    HideForRow(args, keys, head, row, scratch.row_bias);
    bias = scratch.row_bias;
  }
  return ExpRow(scores, bias + keys.first, options.scale);
}

// Hands a row of the head's map to whoever wants it.
void Attention::Impl::GiveMapRow(const AttentionArgs& args, Keys keys, const HeadRun& run,
                                 int64_t row, const ScoreRow& scores, float sum,
                                 const Scratch& scratch) const {
  const bool written = run.map_head >= 0 && HasRow(*args.map, row);
  if (!written && args.each_row == nullptr) return;
  const std::span<float> weights(scratch.map_row, static_cast<size_t>(args.tokens));
  if (sum == 0) {
    std::ranges::fill(weights, 1.0f / static_cast<float>(args.tokens));
  } else {
    std::fill_n(scratch.map_row, keys.first, 0.0f);
    ScaleRow(scores, 1.0f / sum, scratch.map_row + keys.first);
    std::fill(scratch.map_row + keys.end, scratch.map_row + args.tokens, 0.0f);
  }
  if (args.each_row != nullptr) (*args.each_row)(run.head, row, weights);
  if (written) WriteMapRow(*args.map, run.map_head, row, weights);
}

// The sum of v over all keys, for rows that see nothing: computed once for each head that has one.
const float* Attention::Impl::EvenContext(const AttentionArgs& args, HeadRun& run,
                                          const Scratch& scratch) const {
  if (std::exchange(run.has_even_context, true)) return scratch.even_context;
  std::fill_n(scratch.ones, kQueryStep * kKeyBlock, 1.0f);
  for (int64_t key = 0; key < args.tokens; key += kKeyBlock) {
    const auto& kernels = key == 0 ? context : context_add;
    kernels[KeyKernel(args.tokens, key)][0].Run(scratch.ones, scratch.blocks[key / kKeyBlock].v,
                                                scratch.even_context);
  }
  return scratch.even_context;
}

// Returns whether every score was finite.
bool Attention::Impl::RunQueryBlock(const AttentionArgs& args, HeadRun& run, int64_t first_row,
                                    const Scratch& scratch) const {
  const int64_t d = options.head_dim;
  const int64_t rows = std::min(kQueryBlock, args.first_query + args.queries - first_row);
  const size_t row_kernel = RowKernel(rows);
  const Keys keys = InReach(args, first_row, rows);
  auto scores_of = [&](int64_t key) { return scratch.scores + (key - keys.first) * kQueryBlock; };

  const float* const q = scratch.blocks[first_row / kKeyBlock].q + first_row % kKeyBlock * d;
  for (int64_t key = keys.first; key < keys.end; key += kKeyBlock) {
    score[KeyKernel(args.tokens, key)][row_kernel].Run(q, scratch.blocks[key / kKeyBlock].k,
                                                       scores_of(key));
  }
  if (!options.positions.empty()) {
    AddPositionScores(args, keys, run.head, first_row, rows, scratch);
  }

  bool finite = true;
  std::array<float, kQueryBlock> sums;
  for (int64_t i = 0; i < rows; ++i) {
    const ScoreRow scores = {.data = scratch.scores + i * kKeyBlock,
                             .block_stride = kQueryBlock * kKeyBlock,
                             .keys = keys.end - keys.first};
    const float sum = ExpScores(args, keys, run.head, first_row + i, scores, scratch);
    finite = finite && std::isfinite(sum);
    sums[static_cast<size_t>(i)] = sum;
    if (run.map_head >= 0 || args.each_row != nullptr) {
      GiveMapRow(args, keys, run, first_row + i, scores, sum, scratch);
    }
  }
  if (args.context == nullptr) return finite;

  for (int64_t key = keys.first; key < keys.end; key += kKeyBlock) {
    const auto& kernels = key == keys.first ? context : context_add;
    kernels[KeyKernel(args.tokens, key)][row_kernel].Run(
        scores_of(key), scratch.blocks[key / kKeyBlock].v, scratch.context);
  }
  // Normalising here touches head_dim values a row instead of S.
  for (int64_t i = 0; i < rows; ++i) {
    const float sum = sums[static_cast<size_t>(i)];
    const float* const src = sum == 0 ? EvenContext(args, run, scratch) : scratch.context + i * d;
    const float factor = 1.0f / (sum == 0 ? static_cast<float>(args.tokens) : sum);
    float* const dst =
        args.context + (first_row - args.first_query + i) * options.heads * d + run.head * d;
    for (int64_t j = 0; j < d; ++j) dst[j] = src[j] * factor;
  }
  return finite;
}

absl::StatusOr<bool> Attention::Run(const AttentionArgs& args,
                                    std::span<std::byte> scratch_memory) const {
  const Impl& impl = *impl_;
  const Scratch scratch = impl.Carve(args.tokens, scratch_memory.data());
  FillKeyBias(*args.mask, InReach(args, args.first_query, args.queries), scratch.bias);
  bool finite = true;
  for (int64_t head = 0; head < impl.options.heads; ++head) {
    HeadRun run = {.head = head, .map_head = -1, .has_even_context = false};
    if (args.map != nullptr) {
      const auto found = std::find(args.map->heads.begin(), args.map->heads.end(), head);
      if (found != args.map->heads.end()) run.map_head = found - args.map->heads.begin();
    }
    const bool all_rows = args.context != nullptr || args.each_row != nullptr;
    if (run.map_head < 0 && !all_rows) continue;
    if (args.stop != nullptr && (*args.stop)()) return absl::CancelledError();
    impl.PrepareHead(args, head, scratch);
    const int64_t end = args.first_query + args.queries;
    for (int64_t row = args.first_query; row < end; row += kQueryBlock) {
      if (!all_rows && !WantsRows(*args.map, row)) continue;
      finite = impl.RunQueryBlock(args, run, row, scratch) && finite;
    }
  }
  return finite;
}

}  // namespace encoderd::ops
