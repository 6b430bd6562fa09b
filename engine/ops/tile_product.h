// tile_product.h — a product of a few rows with a panel of columns, on matrix tiles (AMX).
//
// Role: private to engine/ops; used by panel_product.cc for bf16 and int8 where the CPU has tiles.
// Why:  a micro-kernel of oneDNN's (ukernel.h) needs more of the cache's bandwidth than tiles leave
//       it: here the caller cuts the depth so that the operands stay in L1, and the weights that come
//       next are fetched meanwhile.
// Bits: a row's sums are taken along the depth, one tile after the other, however it is cut, and
//       depend on no other row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/ops/operand.h"
#include "engine/precision.h"

namespace encoderd::ops {

// Of a tile, of kTileRowBytes each: 32 values in bf16, 64 in int8.
inline constexpr int64_t kTileRows = 16;

// C [kTileRows][kPanelColumns] = A · B, or C += A · B.
struct TileProduct {
  const std::byte* a = nullptr;  // kTileRows rows
  int64_t a_row_bytes = 0;       // from one to the next
  const std::byte* b = nullptr;  // a panel's, interleaved as Ukernel says
  std::byte* c = nullptr;        // fp32, of int8 int32
  int64_t depth = 0;             // in tiles
  bool add = false;
  const std::byte* next = nullptr;  // what is fetched into L2 meanwhile, in lines (fetch.h)
  int64_t next_lines = 0;           // for each tile of the depth
};

// Bytes of a panel that a tile of the depth takes.
inline constexpr int64_t kTilePanelBytes = 4096;

// REQUIRES: kBf16 or kInt8, and tiles that are all whole (TileUse::Whole).
void Multiply(Precision precision, const TileProduct& product);

}  // namespace encoderd::ops
