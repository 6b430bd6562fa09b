#include "engine/ops/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/ops/attention_kernels.h"
#include "engine/ops/head_packing.h"
#include "engine/ops/onednn.h"
#include "engine/ops/score_bias.h"
#include "engine/ops/softmax.h"
#include "engine/status_macros.h"
#include "engine/tensor/rounding.h"

namespace encoderd::ops {
namespace {

constexpr int64_t kQueryBlock = Attention::kQueryBlock;
constexpr int64_t kKeyChunk = 512;
constexpr int64_t kSpanRows = 256;
// Between rows of scores: a chunk, and a cache line to keep the rows out of each other's sets.
constexpr int64_t kScoreStride = kKeyChunk + 16;

static_assert(Attention::kPieceStep == kKeyBlock && kKeyBlock % kQueryBlock == 0);
static_assert(kKeyChunk % kKeyBlock == 0 && kSpanRows % kQueryBlock == 0);

// One head of kKeyBlock tokens, or of what is left at the end of a sequence (head_packing.h).
struct HeadBlock {
  const std::byte* q;  // null where the caller's rows are not packed
  const std::byte* k;
  const std::byte* v;
};

// The scratch of one Run, by name.
struct Scratch {
  HeadBlock* blocks;    // [key blocks] of the current head
  std::byte* packed;    // k and v of one head, where the caller has not packed it
  std::byte* q;         // [span rows]: likewise q
  float* scores;        // [kQueryBlock][kScoreStride]; then the weights
  float* bias_of_keys;  // [tokens]
  float* bias;          // [kQueryBlock][kScoreStride]
  RowState* states;     // [span rows]
  float* context;       // [span rows][depth]
  float* ones;          // [one step of rows][kScoreStride]: the weights of a row that sees nothing
  float* even_context;  // [one step of rows][depth]: what they give
  float* map_rows;      // [kQueryBlock][padded tokens]
  float* by_query;      // [kQueryBlock][position rows]: queries with positions as keys
  float* by_key;        // [TileRows][kByKeyStride]: positions as queries with a block of keys
  int32_t* distance_rows;  // [kKeyChunk + kQueryBlock]: the position rows by distance
};

// Hands out parts of a memory from its beginning on, each on a cache line of its own. With no memory
// it only counts.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  template <typename T>
  T* Take(int64_t count) {
    std::byte* const taken = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += RoundUp(count * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(taken);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* const memory_;
  int64_t bytes_ = 0;
};

// What is being computed of one head.
struct HeadRun {
  const AttentionArgs& args;
  const Scratch& scratch;
  const ScoreBias& bias;
  int64_t head = 0;
  int64_t map_place = -1;         // in the map, or -1
  bool has_even_context = false;  // whether scratch.even_context is this head's
  bool finite = true;             // whether every score was

  bool wants_map_rows() const { return map_place >= 0 || args.each_row != nullptr; }
};

// Consecutive query rows.
struct Rows {
  int64_t first = 0;
  int64_t count = 0;
};

// The keys of the key blocks that some rows can reach; the first begins a block, and the end is that
// of a block or of the sequence.
Keys InReach(const AttentionArgs& args, Rows rows) {
  if (args.window == 0) return {.first = 0, .end = args.tokens};
  const int64_t first = std::max<int64_t>(rows.first - args.window, 0);
  const int64_t end = std::min(rows.first + rows.count + args.window, args.tokens);
  return {.first = first / kKeyBlock * kKeyBlock,
          .end = std::min(RoundUp(end, kKeyBlock), args.tokens)};
}

}  // namespace

struct Attention::Impl {
  AttentionOptions options;
  HeadFormat format;
  ScoreKernels score;
  ContextKernels context;
  ScoreKernels by_query;  // the position rows being keys
  ScoreKernels by_key;    // and queries

  explicit Impl(const AttentionOptions& options);
  Scratch Carve(int64_t tokens, Carver& carver) const;

  int64_t PackedHeadBytes(int64_t tokens) const { return 3 * format.plane_bytes(tokens); }
  HeadBlock* ListBlocks(const std::byte* q, const std::byte* k, const std::byte* v, int64_t tokens,
                        HeadBlock* blocks) const;
  void PrepareHead(const HeadRun& run) const;
  const std::byte* Queries(const HeadRun& run, Rows rows) const;
  NextHead NextRows(const HeadRun& run, int64_t first) const;

  int64_t PositionRows() const { return RoundUp(options.positions.rows, kKeyBlock); }
  // One head of the packed position table, which has no v.
  int64_t PackedPositionBytes() const { return 2 * PositionRows() * format.row_bytes(); }
  // Position rows that the pairs of a query block and a key block need at most: one for each
  // distance between them, from a multiple of a step on.
  int64_t TileRows() const {
    return RoundUp(kQueryBlock + kKeyBlock - 1 + format.query_step() - 1, format.query_step());
  }
  void AddPositionScores(const HeadRun& run, Rows rows, Keys keys, const std::byte* q) const;

  void RunSpan(HeadRun& run, Rows span) const;
  void AddKeys(const HeadRun& run, Rows span, Rows rows, Keys keys, const std::byte* q,
               bool first) const;
  void FinishSpan(HeadRun& run, Rows span, Keys keys) const;
  void GiveMapRow(const HeadRun& run, Keys keys, int64_t row, float* weights, float sum) const;
  const float* EvenContext(HeadRun& run) const;
};

Attention::Impl::Impl(const AttentionOptions& given) : options(given) {
  const bool half = options.precision == Precision::kBf16 && options.head_dim >= kLeastHalfHeadDim;
  format = {.precision = half ? Precision::kBf16 : Precision::kFp32, .head_dim = options.head_dim};
  score = ScoreKernels(format, kScoreStride);
  context = ContextKernels(format, kScoreStride);
  if (options.positions.empty()) return;
  by_query = ScoreKernels(format, PositionRows());
  by_key = ScoreKernels(format, kByKeyStride);
}

absl::StatusOr<Attention> Attention::Create(const AttentionOptions& options) {
  Attention attention;
  RETURN_IF_ERROR(
      CatchOneDnn("attention", [&] { attention.impl_ = std::make_shared<const Impl>(options); }));
  return attention;
}

Scratch Attention::Impl::Carve(int64_t tokens, Carver& carver) const {
  const int64_t padded = RoundUp(tokens, kKeyBlock);
  const int64_t span = std::min(padded, kSpanRows);
  const int64_t step = format.query_step();
  const int64_t with_positions = options.positions.empty() ? 0 : 1;
  return {.blocks = carver.Take<HeadBlock>(padded / kKeyBlock),
          .packed = carver.Take<std::byte>(2 * format.plane_bytes(tokens)),
          .q = carver.Take<std::byte>(span * format.row_bytes()),
          .scores = carver.Take<float>(kQueryBlock * kScoreStride),
          .bias_of_keys = carver.Take<float>(padded),
          .bias = carver.Take<float>(kQueryBlock * kScoreStride),
          .states = carver.Take<RowState>(span),
          .context = carver.Take<float>(span * format.depth()),
          .ones = carver.Take<float>(step * kScoreStride),
          .even_context = carver.Take<float>(step * format.depth()),
          .map_rows = carver.Take<float>(kQueryBlock * padded),
          .by_query = carver.Take<float>(kQueryBlock * PositionRows()),
          .by_key = carver.Take<float>(with_positions * TileRows() * kByKeyStride),
          .distance_rows = carver.Take<int32_t>(with_positions * (kKeyChunk + kQueryBlock))};
}

size_t Attention::scratch_bytes(int64_t tokens) const {
  Carver counting(nullptr);
  impl_->Carve(tokens, counting);
  return static_cast<size_t>(counting.bytes());
}

void Attention::Pack(const float* qkv, int64_t tokens, float* packed) const {
  const AttentionOptions& options = impl_->options;
  const HeadFormat& format = impl_->format;
  const QkvStrides& strides = options.strides;
  auto* dst = reinterpret_cast<std::byte*>(packed);
  for (int64_t head = 0; head < options.heads; ++head) {
    const float* const src = qkv + head * strides.head_stride;
    const int64_t plane = format.plane_bytes(tokens);
    PackQueries(format, src + strides.q_offset, strides.row_stride, tokens, options.scale, dst);
    PackKeys(format, src + strides.k_offset, strides.row_stride, tokens, dst + plane);
    PackValues(format, src + strides.v_offset, strides.row_stride, tokens, dst + 2 * plane);
    dst += impl_->PackedHeadBytes(tokens);
  }
}

absl::StatusOr<Buffer> Attention::PackPositions(const float* qkv) const {
  const AttentionOptions& options = impl_->options;
  const QkvStrides& strides = options.strides;
  const int64_t head_bytes = impl_->PackedPositionBytes();
  // Zeroed: whole blocks are read.
  ASSIGN_OR_RETURN(
      Buffer packed,
      Buffer::AllocateLasting(static_cast<size_t>(options.heads * head_bytes), "positions"));
  std::byte* dst = packed.bytes().data();
  for (int64_t head = 0; head < options.heads; ++head, dst += head_bytes) {
    const float* const src = qkv + head * strides.head_stride;
    PackQueries(impl_->format, src + strides.q_offset, strides.row_stride, options.positions.rows,
                options.scale, dst);
    PackKeys(impl_->format, src + strides.k_offset, strides.row_stride, options.positions.rows,
             dst + head_bytes / 2);
  }
  return packed;
}

// Writes the blocks of a packed head and returns where the next ones go.
HeadBlock* Attention::Impl::ListBlocks(const std::byte* q, const std::byte* k, const std::byte* v,
                                       int64_t tokens, HeadBlock* blocks) const {
  for (int64_t key = 0; key < tokens; key += kKeyBlock) {
    const int64_t at = key * format.row_bytes();
    *blocks++ = {.q = q == nullptr ? nullptr : q + at, .k = k + at, .v = v + at};
  }
  return blocks;
}

void Attention::Impl::PrepareHead(const HeadRun& run) const {
  const AttentionArgs& args = run.args;
  HeadBlock* blocks = run.scratch.blocks;
  if (args.qkv != nullptr) {
    const QkvStrides& strides = options.strides;
    const float* const src = args.qkv + run.head * strides.head_stride;
    std::byte* const k = run.scratch.packed;
    std::byte* const v = k + format.plane_bytes(args.tokens);
    PackKeys(format, src + strides.k_offset, strides.row_stride, args.tokens, k);
    if (args.context != nullptr) {
      PackValues(format, src + strides.v_offset, strides.row_stride, args.tokens, v);
    }
    ListBlocks(/*q=*/nullptr, k, v, args.tokens, blocks);
    return;
  }
  for (const PackedTokens& piece : args.pieces) {
    const int64_t plane = format.plane_bytes(piece.tokens);
    const std::byte* const q =
        reinterpret_cast<const std::byte*>(piece.data) + run.head * PackedHeadBytes(piece.tokens);
    blocks = ListBlocks(q, q + plane, q + 2 * plane, piece.tokens, blocks);
  }
}

// Rows of q as the kernels read them.
const std::byte* Attention::Impl::Queries(const HeadRun& run, Rows rows) const {
  if (run.args.qkv == nullptr) {
    return run.scratch.blocks[rows.first / kKeyBlock].q +
           rows.first % kKeyBlock * format.row_bytes();
  }
  const QkvStrides& strides = options.strides;
  PackQueries(format,
              run.args.qkv + run.head * strides.head_stride + strides.q_offset +
                  rows.first * strides.row_stride,
              strides.row_stride, rows.count, options.scale, run.scratch.q);
  return run.scratch.q;
}

// The rows from `first` on of the head behind this one, where they are the caller's: such rows lie a
// whole width apart, which no CPU guesses, and mostly have left the second cache.
NextHead Attention::Impl::NextRows(const HeadRun& run, int64_t first) const {
  if (run.args.qkv == nullptr || run.head + 1 == options.heads) return {};
  const QkvStrides& strides = options.strides;
  const float* const row =
      run.args.qkv + first * strides.row_stride + (run.head + 1) * strides.head_stride;
  return {.parts = {row + strides.q_offset, row + strides.k_offset, row + strides.v_offset},
          .stride = strides.row_stride,
          .count = options.head_dim};
}

// Adds what the queries of a block give with the positions as keys, and its keys with the positions
// as queries: one product for each row of the table in reach, not for each pair.
void Attention::Impl::AddPositionScores(const HeadRun& run, Rows rows, Keys keys,
                                        const std::byte* q) const {
  const Scratch& scratch = run.scratch;
  const std::byte* const position_queries =
      reinterpret_cast<const std::byte*>(run.args.positions) + run.head * PackedPositionBytes();
  const std::byte* const position_keys = position_queries + PackedPositionBytes() / 2;

  // The row of the table for row i and key j lies at (j - keys.first) + (rows - 1 - i).
  int32_t* const by_distance = scratch.distance_rows;
  const int64_t distances = RoundUp(keys.count(), format.key_step()) + rows.count - 1;
  for (int64_t i = 0; i < distances; ++i) {
    by_distance[i] = options.positions.of(keys.first - (rows.first + rows.count - 1) + i);
  }

  for (int64_t row = by_distance[distances - 1] / kKeyBlock * kKeyBlock; row <= by_distance[0];
       row += kKeyBlock) {
    by_query.Run(q, rows.count, position_keys + row * format.row_bytes(), kKeyBlock,
                 scratch.by_query + row);
  }
  const int64_t step = format.query_step();
  for (int64_t key = keys.first; key < keys.end; key += kKeyBlock) {
    const int64_t count = std::min(kKeyBlock, keys.end - key);
    const int64_t padded = RoundUp(count, format.key_step());
    const int32_t* const block_rows = by_distance + (key - keys.first);
    const int64_t last = block_rows[0];
    const int64_t first = block_rows[padded + rows.count - 2] / step * step;
    by_key.Run(position_queries + first * format.row_bytes(), last + 1 - first,
               scratch.blocks[key / kKeyBlock].k, count, scratch.by_key);
    for (int64_t i = 0; i < rows.count; ++i) {
      AddByRow({.rows = block_rows + (rows.count - 1 - i),
                .keys = padded,
                .by_query = scratch.by_query + i * PositionRows(),
                .by_key = scratch.by_key,
                .first_row = static_cast<int32_t>(first)},
               scratch.scores + (key - keys.first) + i * kScoreStride);
    }
  }
}

// Brings the rows of a block, which are some of the span's, up to date with some more keys.
void Attention::Impl::AddKeys(const HeadRun& run, Rows span, Rows rows, Keys keys,
                              const std::byte* q, bool first) const {
  const Scratch& scratch = run.scratch;
  const int64_t in_span = rows.first - span.first;
  RowState* const states = scratch.states + in_span;
  // Calls f(block, keys of it, where its numbers lie in a row of so large ones).
  const auto for_each_block = [&](int64_t number_bytes, auto&& f) {
    for (int64_t key = keys.first; key < keys.end; key += kKeyBlock) {
      f(scratch.blocks[key / kKeyBlock], std::min(kKeyBlock, keys.end - key),
        reinterpret_cast<std::byte*>(scratch.scores) + (key - keys.first) * number_bytes);
    }
  };
  for_each_block(sizeof(float), [&](const HeadBlock& block, int64_t count, std::byte* scores) {
    score.Run(q, rows.count, block.k, count, reinterpret_cast<float*>(scores));
  });
  if (!options.positions.empty()) AddPositionScores(run, rows, keys, q);

  const auto padded = RoundUp(run.args.tokens, kKeyBlock);
  const ScoreBias::Block bias = run.bias.Of(run.head, rows.first, rows.count, keys);
  ExpScores({.scores = scratch.scores,
             .stride = kScoreStride,
             .rows = rows.count,
             .keys = keys.count(),
             .padded = RoundUp(keys.count(), format.key_step()),
             .bias = bias.data,
             .bias_stride = bias.stride,
             .copy = run.wants_map_rows() ? scratch.map_rows + keys.first : nullptr,
             .copy_stride = padded,
             .next = NextRows(run, rows.first)},
            format.precision, states);
  float* const contexts = scratch.context + in_span * format.depth();
  if (run.wants_map_rows() && !first) {
    const int64_t before = InReach(run.args, span).first;
    float* const weights = scratch.map_rows + before;
    ScaleRows(states, rows.count, weights, padded, keys.first - before, weights, padded);
  }
  if (run.args.context == nullptr) return;

  if (!first) {
    ScaleRows(states, rows.count, contexts, format.depth(), format.depth(), contexts,
              format.depth());
  }
  bool add = !first;
  const int64_t weight_bytes = format.number_bytes();
  for_each_block(weight_bytes, [&](const HeadBlock& block, int64_t count, std::byte* weights) {
    context.Run(weights, rows.count, block.v, count, add, contexts);
    add = true;
  });
}

// Hands a row of the head's map to whoever wants it. `weights`: unnormalised, of the keys in reach.
void Attention::Impl::GiveMapRow(const HeadRun& run, Keys keys, int64_t row, float* weights,
                                 float sum) const {
  const AttentionArgs& args = run.args;
  const bool written = run.map_place >= 0 && HasRow(*args.map, row);
  if (!written && args.each_row == nullptr) return;
  if (sum == 0) {
    std::fill_n(weights, args.tokens, 1.0f / static_cast<float>(args.tokens));
  } else {
    std::fill_n(weights, keys.first, 0.0f);
    Scale(weights + keys.first, keys.count(), 1.0f / sum, weights + keys.first);
    std::fill(weights + keys.end, weights + args.tokens, 0.0f);
  }
  const std::span<const float> all(weights, static_cast<size_t>(args.tokens));
  if (args.each_row != nullptr) (*args.each_row)(run.head, row, all);
  if (written) WriteMapRow(*args.map, run.map_place, row, all);
}

// The sum of v over all keys, for rows that see nothing: computed once for each head that has one.
const float* Attention::Impl::EvenContext(HeadRun& run) const {
  const Scratch& scratch = run.scratch;
  if (std::exchange(run.has_even_context, true)) return scratch.even_context;
  const int64_t step = format.query_step();
  for (int64_t i = 0; i < step; ++i) {
    float* const row = scratch.ones + i * kScoreStride;
    std::fill_n(row, kKeyBlock, 0.0f);
    RowState state;
    ExpScores(
        {.scores = row, .stride = kScoreStride, .rows = 1, .keys = kKeyBlock, .padded = kKeyBlock},
        format.precision, &state);
  }
  for (int64_t key = 0; key < run.args.tokens; key += kKeyBlock) {
    context.Run(reinterpret_cast<const std::byte*>(scratch.ones), /*rows=*/1,
                scratch.blocks[key / kKeyBlock].v, std::min(kKeyBlock, run.args.tokens - key),
                /*add=*/key > 0, scratch.even_context);
  }
  return scratch.even_context;
}

// Gives what has come of a span, whose keys have all been added. Normalising here touches head_dim
// numbers a row instead of S.
void Attention::Impl::FinishSpan(HeadRun& run, Rows span, Keys keys) const {
  const AttentionArgs& args = run.args;
  const Scratch& scratch = run.scratch;
  for (int64_t i = 0; i < span.count; ++i) {
    RowState& state = scratch.states[i];
    run.finite = run.finite && std::isfinite(state.sum);
    if (run.wants_map_rows()) {
      float* const weights = scratch.map_rows + i * RoundUp(args.tokens, kKeyBlock);
      GiveMapRow(run, keys, span.first + i, weights, state.sum);
    }
    state.factor = 1.0f / (state.sum == 0 ? static_cast<float>(args.tokens) : state.sum);
    if (state.sum == 0 && args.context != nullptr) {
      std::copy_n(EvenContext(run), format.depth(), scratch.context + i * format.depth());
    }
  }
  if (args.context == nullptr) return;
  const int64_t d = options.head_dim, width = options.heads * d;
  ScaleRows(scratch.states, span.count, scratch.context, format.depth(), d,
            args.context + (span.first - args.first_query) * width + run.head * d, width);
}

void Attention::Impl::RunSpan(HeadRun& run, Rows span) const {
  const Keys keys = InReach(run.args, span);
  const std::byte* const q = Queries(run, span);
  std::fill_n(run.scratch.states, span.count, RowState());
  for (int64_t key = keys.first; key < keys.end; key += kKeyChunk) {
    const Keys chunk = {.first = key, .end = std::min(key + kKeyChunk, keys.end)};
    for (int64_t row = 0; row < span.count; row += kQueryBlock) {
      AddKeys(run, span,
              {.first = span.first + row, .count = std::min(kQueryBlock, span.count - row)}, chunk,
              q + row * format.row_bytes(), /*first=*/key == keys.first);
    }
  }
  FinishSpan(run, span, keys);
}

absl::StatusOr<bool> Attention::Run(const AttentionArgs& args,
                                    std::span<std::byte> scratch_memory) const {
  const Impl& impl = *impl_;
  Carver carver(scratch_memory.data());
  const Scratch scratch = impl.Carve(args.tokens, carver);
  const ScoreBias bias(
      *args.mask, impl.options.position_bias, args.window, args.tokens,
      InReach(args, {.first = args.first_query, .count = args.queries}),
      {.of_keys = scratch.bias_of_keys, .rows = scratch.bias, .stride = kScoreStride});
  const TileUse tiles;
  bool finite = true;
  for (int64_t head = 0; head < impl.options.heads; ++head) {
    HeadRun run = {.args = args, .scratch = scratch, .bias = bias, .head = head};
    if (args.map != nullptr) run.map_place = PlaceOfHead(*args.map, head);
    const bool all_rows = args.context != nullptr || args.each_row != nullptr;
    if (run.map_place < 0 && !all_rows) continue;
    if (args.stop != nullptr && (*args.stop)()) return absl::CancelledError();
    impl.PrepareHead(run);
    // Where rows of maps are wanted, they are kept for a block; where there is a window, each block
    // has keys of its own.
    const int64_t span = run.wants_map_rows() || args.window > 0 ? kQueryBlock : kSpanRows;
    const int64_t end = args.first_query + args.queries;
    for (int64_t row = args.first_query; row < end; row += span) {
      const int64_t count = std::min(span, end - row);
      if (!all_rows && !HasRows(*args.map, row, count)) continue;
      impl.RunSpan(run, {.first = row, .count = count});
    }
    finite = finite && run.finite;
  }
  return finite;
}

}  // namespace encoderd::ops
