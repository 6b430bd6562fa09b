#include "engine/ops/panel_product.h"

#include <algorithm>
#include <span>

#include "absl/strings/str_cat.h"
#include "engine/ops/fetch.h"
#include "engine/ops/fp32_product.h"
#include "engine/ops/head_packing.h"
#include "engine/ops/runtime.h"
#include "engine/ops/tile_product.h"
#include "engine/ops/ukernel.h"
#include "engine/tensor/rounding.h"

namespace encoderd::ops {
namespace {

// Of a row, in one block of the depth: 768 values of fp32.
constexpr int64_t kMaxBlockBytes = 3072;
// The depth that tiles go through at once, in tiles: 32 KiB of B and 8 KiB of A for each step of
// rows, which a 48 KiB L1 cache holds beside the sums.
constexpr int64_t kMaxTileDepth = 8;

static_assert(kPanelColumns == kKeyBlock, "TransposeKeys makes panels");

}  // namespace

PanelProduct::PanelProduct(Precision precision, int64_t depth, int64_t columns,
                           const RowBuckets& buckets)
    : precision_(precision),
      depth_(depth),
      columns_(RoundUp(columns, kPanelColumns)),
      buckets_(buckets),
      on_tiles_(precision != Precision::kFp32 && HasTiles()) {
  // Blocks of equal depth, as far as whole rows of tiles allow.
  constexpr int64_t kDepthStep = 64;
  const int64_t most = kMaxBlockBytes / OperandBytes(precision);
  block_depth_ = std::min(depth, RoundUp(CeilDiv(depth, CeilDiv(depth, most)), kDepthStep));
  if (precision == Precision::kFp32 || on_tiles_) return;
  for (int64_t skipped = 0; skipped < depth; skipped += block_depth_) {
    kernels_.push_back(RowKernels::Of({.precision = precision,
                                       .depth = DepthOf(skipped),
                                       .stride = depth,
                                       .accumulate = skipped > 0}));
  }
}

std::string PanelProduct::Implementation() const {
  const char* const operands = precision_ == Precision::kFp32   ? "f32"
                               : precision_ == Precision::kBf16 ? "bf16"
                                                                : "u8·s8";
  return absl::StrCat(on_tiles_                        ? "tiles "
                      : precision_ == Precision::kFp32 ? "vectors "
                                                       : "brgemm ",
                      operands);
}

void PanelProduct::Pack(const std::byte* panel, int64_t column, std::byte* weights) const {
  // torch keeps [out, in]: columns are to be rows. What is interleaved moves as one float.
  const auto floats = [&](int64_t values) {
    return static_cast<int64_t>(BytesOf(values) / sizeof(float));
  };
  for (int64_t skipped = 0; skipped < depth_; skipped += block_depth_) {
    TransposeKeys(reinterpret_cast<const float*>(panel + BytesOf(skipped)), floats(depth_),
                  kPanelColumns, floats(DepthOf(skipped)),
                  reinterpret_cast<float*>(weights + PanelOffset(skipped, column)));
  }
}

// ---- Running ------------------------------------------------------------------------------------

// Sums of several blocks wait for the last one. Those of a single one are done with at once, so that
// the next part has the same place; tiles alone have all rows under way together.
size_t PanelProduct::sum_bytes() const {
  const int64_t rows = !in_one_block() ? kChunkRows * (columns_ / kPanelColumns)
                       : on_tiles_     ? kChunkRows
                                       : RowBuckets::kMaxRows;
  return static_cast<size_t>(rows * kPanelColumns) * sizeof(float);
}

std::byte* PanelProduct::SumsAt(const Block& block, int64_t row) const {
  if (in_one_block() && !on_tiles_) return block.sums;
  return block.sums + static_cast<size_t>(row * kPanelColumns) * sizeof(float);
}

void PanelProduct::Run(const Chunk& chunk, absl::FunctionRef<void(const Part&)> done) const {
  constexpr size_t kColumnBytes = kChunkRows * sizeof(float);
  for (int64_t skipped = 0; skipped < depth_; skipped += block_depth_) {
    const int64_t depth = DepthOf(skipped);
    for (int64_t column = 0; column < columns_; column += kPanelColumns) {
      const Block block = {
          .rows = chunk.rows + BytesOf(skipped),
          .count = chunk.count,
          .skipped = skipped,
          .depth = depth,
          .panel = chunk.weights + PanelOffset(skipped, column),
          .end = chunk.weights + weight_bytes(),
          .sums = chunk.sums + (in_one_block() ? 0 : static_cast<size_t>(column) * kColumnBytes)};
      const auto summed = [&](int64_t row, int64_t rows, const std::byte* sums) {
        if (skipped + depth == depth_) done({column, row, rows, sums});
      };
      if (on_tiles_) {
        RunTiles(block, summed);
      } else if (precision_ == Precision::kFp32) {
        RunVectors(block, summed);
      } else {
        RunKernels(block, summed);
      }
    }
  }
}

void PanelProduct::RunVectors(const Block& block, Summed summed) const {
  ++ThreadOpCounts().ukernels;
  const auto* const end = reinterpret_cast<const float*>(block.end);
  const auto* const panel = reinterpret_cast<const float*>(block.panel);
  // What is fetched while these rows are summed: their share of as much as the panel itself.
  const auto next = [&](int64_t row) {
    return std::min(end, panel + block.depth * kPanelColumns * (block.count + row) / block.count);
  };
  for (int64_t row = 0; row < block.count; row += RowBuckets::kMaxRows) {
    const int64_t rows = std::min(RowBuckets::kMaxRows, block.count - row);
    std::byte* const sums = SumsAt(block, row);
    SumProducts({.rows = reinterpret_cast<const float*>(block.rows) + row * depth_,
                 .stride = depth_,
                 .count = rows,
                 .depth = block.depth,
                 .panel = panel,
                 .next = {next(row), next(row + rows)},
                 .sums = reinterpret_cast<float*>(sums),
                 .accumulate = block.skipped > 0});
    summed(row, rows, sums);
  }
}

void PanelProduct::RunKernels(const Block& block, Summed summed) const {
  const RowKernels& kernels = *kernels_[static_cast<size_t>(block.skipped / block_depth_)];
  buckets_.ForEachChunk(block.count, [&](int64_t row, int64_t bucket_rows) {
    std::byte* const sums = SumsAt(block, row);
    kernels.For(bucket_rows).Run(block.rows + BytesOf(row * depth_), block.panel, sums);
    summed(row, std::min(bucket_rows, block.count - row), sums);
  });
}

// A few tiles of the depth at a time, whose weights stay in L1 for all rows.
void PanelProduct::RunTiles(const Block& block, Summed summed) const {
  TileUse::Whole();
  ++ThreadOpCounts().ukernels;
  const auto row_bytes = static_cast<int64_t>(BytesOf(depth_));
  const auto tiles = static_cast<int64_t>(BytesOf(block.depth)) / kTileRowBytes;
  const int64_t step = CeilDiv(tiles, CeilDiv(tiles, kMaxTileDepth));
  for (int64_t first = 0; first < tiles; first += step) {
    TileProduct product = {.a_row_bytes = row_bytes,
                           .b = block.panel + first * kTilePanelBytes,
                           .depth = std::min(step, tiles - first),
                           .add = block.skipped + first > 0};
    const std::byte* const next = product.b + product.depth * kTilePanelBytes;
    if (next < block.end) {
      product.next = next;
      product.next_lines = CeilDiv(kTilePanelBytes / kLineBytes, CeilDiv(block.count, kTileRows));
    }
    for (int64_t row = 0; row < block.count; row += kTileRows) {
      product.a = block.rows + row * row_bytes + first * kTileRowBytes;
      product.c = SumsAt(block, row);
      Multiply(precision_, product);
      product.next += product.depth * product.next_lines * kLineBytes;
      if (first + step >= tiles) summed(row, std::min(kTileRows, block.count - row), product.c);
    }
  }
}

}  // namespace encoderd::ops
