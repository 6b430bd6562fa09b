#include "engine/ops/tile_product.h"

#include <immintrin.h>

#include "engine/ops/fetch.h"
#include "engine/ops/panel.h"

namespace encoderd::ops {
namespace {

constexpr int kPanelTiles = 4;
constexpr size_t kPanelRowBytes = kPanelTiles * kTileRowBytes;  // of B and of C
static_assert(kPanelRowBytes == kPanelColumns * sizeof(float));
static_assert(kTilePanelBytes == kTileRows * kPanelRowBytes);

#define ENCODERD_TILES __attribute__((target("amx-tile,amx-bf16,amx-int8")))

// The numbers of tiles are parts of instructions: 0 to 3 are sums, 4 is of A, 5 and 6 of B.
ENCODERD_TILES void LoadSums(const std::byte* c) {
  _tile_loadd(0, c, kPanelRowBytes);
  _tile_loadd(1, c + kTileRowBytes, kPanelRowBytes);
  _tile_loadd(2, c + 2 * kTileRowBytes, kPanelRowBytes);
  _tile_loadd(3, c + 3 * kTileRowBytes, kPanelRowBytes);
}

ENCODERD_TILES void ZeroSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

ENCODERD_TILES void StoreSums(std::byte* c) {
  _tile_stored(0, c, kPanelRowBytes);
  _tile_stored(1, c + kTileRowBytes, kPanelRowBytes);
  _tile_stored(2, c + 2 * kTileRowBytes, kPanelRowBytes);
  _tile_stored(3, c + 3 * kTileRowBytes, kPanelRowBytes);
}

#define ENCODERD_MULTIPLY(sum, b)       \
  if constexpr (kInt8) {                \
    _tile_dpbusd(sum, /*u8*/ 4, b);     \
  } else {                              \
    _tile_dpbf16ps(sum, /*bf16*/ 4, b); \
  }

template <bool kInt8>
ENCODERD_TILES void MultiplyTiles(const TileProduct& p) {
  if (p.add) {
    LoadSums(p.c);
  } else {
    ZeroSums();
  }
  const std::byte *a = p.a, *b = p.b, *next = p.next;
  for (int64_t i = 0; i < p.depth; ++i) {
    _tile_loadd(4, a, static_cast<size_t>(p.a_row_bytes));
    _tile_loadd(5, b, kPanelRowBytes);
    _tile_loadd(6, b + kTileRowBytes, kPanelRowBytes);
    ENCODERD_MULTIPLY(0, 5)
    ENCODERD_MULTIPLY(1, 6)
    for (int64_t line = 0; line < p.next_lines; ++line, next += kLineBytes) FetchLine(next);
    _tile_loadd(5, b + 2 * kTileRowBytes, kPanelRowBytes);
    _tile_loadd(6, b + 3 * kTileRowBytes, kPanelRowBytes);
    ENCODERD_MULTIPLY(2, 5)
    ENCODERD_MULTIPLY(3, 6)
    a += kTileRowBytes;
    b += kTilePanelBytes;
  }
  StoreSums(p.c);
}

}  // namespace

void Multiply(Precision precision, const TileProduct& product) {
  if (precision == Precision::kInt8) {
    MultiplyTiles<true>(product);
  } else {
    MultiplyTiles<false>(product);
  }
}

}  // namespace encoderd::ops
