// panel_product.h — the sums of a product: the rows of a chunk by weights that lie in panels.
//
// Role: private to engine/ops; used by linear.cc, which makes rows and weights fit and finishes the
//       sums.
// How:  on matrix tiles where the CPU has them (tile_product.h); in vectors for fp32
//       (fp32_product.h); else by micro-kernels of oneDNN (row_kernels.h). All go through the depth
//       block by block, so that what they read of the rows stays in cache, in each block panel by
//       panel, so that weights are read once for all rows, and in each panel through all rows. The
//       weights lie in the order in which they are read: what is fetched ahead lies behind.
// Bits: a row's sums are taken along the depth and depend on no other row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/ops/operand.h"
#include "engine/ops/panel.h"
#include "engine/ops/row_buckets.h"
#include "engine/ops/row_kernels.h"
#include "engine/precision.h"

namespace encoderd::ops {

class PanelProduct {
 public:
  // Rows of a chunk: of a depth block they are 768 KiB and stay in a 2 MiB L2 cache.
  static constexpr int64_t kChunkRows = 256;

  struct Chunk {
    const std::byte* rows = nullptr;  // [count][depth], as operands of the precision
    int64_t count = 0;                // at most kChunkRows
    const std::byte* weights = nullptr;
    std::byte* sums = nullptr;  // sum_bytes()
  };
  // Some rows of one panel: what is summed at once.
  struct Part {
    int64_t column = 0;  // first of the panel
    int64_t row = 0;     // of the chunk
    int64_t rows = 0;
    const std::byte* sums = nullptr;  // [rows][kPanelColumns], fp32, of int8 int32
  };

  PanelProduct() = default;
  // Throws dnnl::error. REQUIRES: `depth` is a PaddedDepth.
  PanelProduct(Precision precision, int64_t depth, int64_t columns, const RowBuckets& buckets);

  int64_t depth() const { return depth_; }
  int64_t columns() const { return columns_; }  // in whole panels
  size_t weight_bytes() const { return BytesOf(columns_ * depth_); }
  size_t sum_bytes() const;

  // Writes one panel of weights, [kPanelColumns][depth] as operands, to its places.
  void Pack(const std::byte* panel, int64_t column, std::byte* weights) const;

  // Calls done(part) for each part of the product as soon as its sums are there. Rows are read up to
  // a multiple of RowBuckets::kFixedRows. Throws dnnl::error. REQUIRES: the thread holds a TileUse.
  void Run(const Chunk& chunk, absl::FunctionRef<void(const Part&)> done) const;

  // "tiles bf16", "vectors f32", "brgemm u8·s8" and the like.
  std::string Implementation() const;

 private:
  // A block of the depth of one panel, for all rows of a chunk.
  struct Block {
    const std::byte* rows;
    int64_t count;
    int64_t skipped;  // of the depth, before this block
    int64_t depth;
    const std::byte* panel;
    const std::byte* end;  // of all weights
    std::byte* sums;
  };
  using Summed = absl::FunctionRef<void(int64_t row, int64_t rows, const std::byte* sums)>;

  size_t BytesOf(int64_t values) const {
    return static_cast<size_t>(values * OperandBytes(precision_));
  }
  int64_t DepthOf(int64_t skipped) const { return std::min(block_depth_, depth_ - skipped); }
  size_t PanelOffset(int64_t skipped, int64_t column) const {
    return BytesOf(columns_ * skipped + column * DepthOf(skipped));
  }
  bool in_one_block() const { return block_depth_ == depth_; }
  std::byte* SumsAt(const Block& block, int64_t row) const;

  void RunVectors(const Block& block, Summed summed) const;
  void RunKernels(const Block& block, Summed summed) const;
  void RunTiles(const Block& block, Summed summed) const;

  Precision precision_ = Precision::kFp32;
  int64_t depth_ = 0;
  int64_t columns_ = 0;
  int64_t block_depth_ = 0;  // of all blocks but the last, which may be shorter
  RowBuckets buckets_;
  bool on_tiles_ = false;
  std::vector<std::shared_ptr<const RowKernels>> kernels_;  // by block, where they are used
};

}  // namespace encoderd::ops
