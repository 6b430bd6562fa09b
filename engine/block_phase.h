// block_phase.h — one phase of a pass, block by block: what its tiles read and where they write.
//
// A phase takes rows from one block to the next:
//
//   q, k, v of all rows ─▶ attention ─▶ output ─▶ norm ─▶ FFN ─▶ norm ─▶ hidden rows ─▶ q, k, v of
//   (the phase before)    └──────────── a tile's own rows ────────────────────────┘ the next block
//
// A tile reads q, k and v of its sequences from the tiles of the phase before, and apart from that
// its own rows. So a phase needs one exchange between threads per block and no more.
//
// Memory: a Generation holds what the tiles of one phase give: hidden rows, and q, k, v for the
//         next block, as rows where the tile has whole sequences, and packed as attention reads
//         them where others have to read them. A pass goes from one generation to another and back;
//         a third is needed only where a helper is still inside an old phase. Where no tile needs
//         another's rows and no helper takes part, it stays in one.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/batch_layout.h"
#include "engine/contacts.h"
#include "engine/model/spec.h"
#include "engine/ops/attention.h"
#include "engine/pool.h"
#include "engine/tensor/buffer.h"
#include "engine/tile_phase.h"

namespace encoderd {

// What one tile gives.
struct TileRows {
  float* hidden = nullptr;  // [rows, width]
  float* qkv = nullptr;     // [rows, 3 · hidden], or packed
};

// Sizes of what phases work on.
struct PhaseShape {
  int64_t width = 0;   // of hidden rows, at their widest
  int64_t hidden = 0;  // of q, k and v each
  BatchLimits limits;
  int helpers = 0;  // of the engine

  // More than this many at one phase would find no tiles at S = 512; each of them may need a second
  // copy.
  static constexpr int kMaxHelpersOfPhase = 7;
  int helpers_of_phase() const { return std::min(helpers, kMaxHelpersOfPhase); }

  // Rows of a generation: first copies, second copies, and what lies behind the last one, since the
  // heads may begin at any row of a tile and round their rows up from there.
  int64_t GenerationRows() const;
  int64_t GenerationBytes() const;
};

class Generation : public Pooled {
 public:
  // Errors: kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<Generation>> Create(const PhaseShape& shape);

  TileRows First(const Tile& tile) const { return At(tile.stored_row); }
  // Room for a second copy of any tile. REQUIRES: 0 ≤ index < helpers_of_phase.
  TileRows Second(int index) const { return At(first_rows_ + index * BatchLayout::kMaxRows); }

 private:
  void TakePages(const PhaseShape& shape);
  TileRows At(int64_t row) const {
    return {.hidden = hidden_.floats().data() + row * width_,
            .qkv = qkv_.floats().data() + row * qkv_width_};
  }

  int64_t first_rows_ = 0;
  int64_t width_ = 0;
  int64_t qkv_width_ = 0;
  Buffer hidden_;
  Buffer qkv_;
};

class BlockPhase : public Pooled {
 public:
  explicit BlockPhase(const PhaseShape& shape);

  TilePhase tiles;

  // Written by the owner before the phase opens.
  PoolRef<BatchLayout> layout;
  PoolRef<Generation> in, out;     // held for as long as anybody is inside: input, first and second
                                   // point into them
  std::optional<int64_t> attend;   // the block to run, from its attention on
  std::optional<int64_t> project;  // the block whose q, k and v to compute behind that
  std::vector<TileRows> input;     // by tile: what the phase before gave
  std::vector<TileRows> first;     // by tile: room for first copies
  std::vector<TileRows> second;    // by tile: room for second copies, where there are any
  // Maps to write, by sequence; empty when none is wanted. Answers belong to the owner alone, so a
  // phase with maps is never offered to helpers.
  std::vector<ops::MapOutput> maps;
  // Given the rows of all maps; null when no sequence wants contacts. The owner's alone, too.
  Contacts* contacts = nullptr;

  // Written by whoever computes a tile: sequences with scores that are not finite.
  std::unique_ptr<std::atomic<bool>[]> bad_scores;

  // Called by the last one out: what the phase held is free, and so is the phase.
  void Release();
};

}  // namespace encoderd
