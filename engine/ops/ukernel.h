// ukernel.h — one small matrix product of oneDNN's brgemm micro-kernels, called directly.
//
// Role:  private to engine/ops: all products are made of these, but for those of fp32_product.h,
//        head_product.h and tile_product.h.
// Tiles: where the CPU has matrix tiles (AMX), bf16 and int8 kernels want them configured. Run sees
//        to that, and costs least when kernels that want the same tiles follow each other: that is
//        so for all kernels with m a multiple of 16 and n of 32. Whoever runs such kernels holds a
//        TileUse meanwhile, so that no thread keeps tiles, which make its context switches slow,
//        longer than it needs them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine/ops/onednn.h"
#include "engine/ops/runtime.h"
#include "engine/precision.h"
#include "oneapi/dnnl/dnnl_ukernel.hpp"

namespace encoderd::ops {

// Rows and bytes of each tile, as the CPU loads them.
using TileShapes = std::array<std::byte, 64>;

// C [m, n] = A [m, k] · B [k, n], or C += A · B.
//
//          A     B                                                        C
//   fp32   fp32  fp32, [k][ldb]                                           fp32
//   bf16   bf16  bf16, [k / 2][ldb][2]: pairs of rows, interleaved        fp32
//   int8   u8    s8,   [k / 4][ldb][4]: four rows each, interleaved       int32
class Ukernel {
 public:
  struct Shape {
    Precision precision;
    int64_t m, n, k, lda, ldb, ldc;
    bool accumulate;
  };

  Ukernel() = default;
  // Throws dnnl::error.
  explicit Ukernel(const Shape& s);

  void Run(const void* a, const void* b, void* c) const {
    static const std::vector<std::pair<dnnl::memory::dim, dnnl::memory::dim>> kOffsets = {{0, 0}};
    if (tiles_ != nullptr && configured_ != tiles_) Configure();
    kernel_.execute(a, b, kOffsets, c, scratch_);
    ++ThreadOpCounts().ukernels;
  }

  bool uses_tiles() const { return tiles_ != nullptr; }

 private:
  friend class TileUse;

  void Configure() const;

  static constexpr size_t kMaxScratchBytes = 8192;  // twice what any tile kernel is known to want

  static thread_local const TileShapes* configured_;  // what the tiles are configured for
  alignas(64) static thread_local std::byte scratch_[kMaxScratchBytes];

  dnnl::ukernel::brgemm kernel_;
  const TileShapes* tiles_ = nullptr;  // one object for all kernels that want the same; null: none
};

// While one lives, its thread may run kernels that use tiles.
class TileUse {
 public:
  TileUse() = default;
  TileUse(const TileUse&) = delete;
  TileUse& operator=(const TileUse&) = delete;
  ~TileUse();

  // Configures tiles that are all whole, for code that multiplies them itself. REQUIRES: one lives,
  // and the CPU has tiles.
  static void Whole();
};

}  // namespace encoderd::ops
