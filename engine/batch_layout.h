// batch_layout.h — where the sequences of a pass lie, and how their rows are cut into tiles.
//
// A tile is what one thread computes of a block at a time: at most kMaxRows rows, either whole
// sequences or a piece of a longer one. Sequences lie in the order of how far they must run, so
// what still runs is always the first rows of the first tiles. No token is padded to anything.
//
// Pieces start at multiples of kPieceStep tokens, where attention cuts a sequence anyway. How a
// pass is cut moves no bit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/ops/mask.h"
#include "engine/ops/row_buckets.h"
#include "engine/pool.h"
#include "engine/tensor/buffer.h"

namespace encoderd {

// The largest batch, and the largest sequence that may come alone.
struct BatchLimits {
  int64_t max_batch_tokens = 0;
  int64_t max_sequence_tokens = 0;
};

struct PlacedSequence {
  BatchItem* item = nullptr;  // for the batch's owner alone: helpers may outlast it
  int64_t tokens = 0;
  // How far it runs, in half blocks: a map needs the first half of its block, and the final norm
  // counts as the half block behind the last block.
  int64_t half_blocks = 0;
  Mask mask;
  std::span<const int32_t> position_ids;  // empty: 0 … tokens-1
  int first_segment = 0;
  int segments = 0;
};

// Rows of a tile that belong to one sequence.
struct Segment {
  int sequence = 0;
  int tile = 0;
  int64_t first_token = 0;
  int64_t tokens = 0;
  int64_t row = 0;  // of the tile
};

struct Tile {
  int first_segment = 0;
  int segments = 0;
  int64_t rows = 0;
  int64_t stored_row = 0;  // where its rows lie among those of all tiles; the gaps are padding
  bool piece = false;      // of a sequence that other tiles have a part of
};

class BatchLayout : public Pooled {
 public:
  // 256: the FFN activations of a tile, at a width of 1536, are 1.5 MiB and stay in a 2 MiB L2 cache;
  // those of 512 rows would not.
  static constexpr int64_t kMaxRows = 256;
  // Masks and position ids of a batch that are copied for helpers, with room for a mask per head at
  // S = 512. Pages that no mask has reached stay untouched.
  static constexpr size_t kMaxMaskBytes = size_t{4} << 20;

  // Errors: kResourceExhausted.
  static absl::StatusOr<std::unique_ptr<BatchLayout>> Create();

  // Rows that all tiles of a batch take, and their number, at most.
  static int64_t MaxStoredRows(const BatchLimits& limits);
  static int MaxTiles(const BatchLimits& limits);

  // Tiles of about how many rows get `tokens` rows done soonest by so many threads. A single
  // sequence can be cut at any multiple of kPieceStep.
  static int64_t TileRows(int64_t tokens, int threads, bool single);

  // Lays the items out for tiles of tile_rows, a multiple of kPieceStep. REQUIRES: they fit the
  // limits, and tile_rows is what TileRows gives.
  void Place(std::span<BatchItem* const> items, int64_t tile_rows);

  // Whether there is room for copies of the masks and position ids; where not, no helper may see
  // this layout.
  bool CanOwnMasks() const;
  // Copies them, so that helpers may read them after the batch. REQUIRES: there is room, and
  // nobody else sees the layout yet.
  void OwnMasks();

  // Rows that the tiles take.
  int64_t StoredRows() const;
  // Whether any sequence lies in several tiles.
  bool cut() const { return cut_; }

  std::span<const PlacedSequence> sequences() const { return sequences_; }
  std::span<const Tile> tiles() const { return tiles_; }
  std::span<const Segment> SegmentsOf(const PlacedSequence& sequence) const {
    return Segments(sequence.first_segment, sequence.segments);
  }
  std::span<const Segment> SegmentsOf(const Tile& tile) const {
    return Segments(tile.first_segment, tile.segments);
  }
  const PlacedSequence& SequenceOf(const Segment& segment) const {
    return sequences_[static_cast<size_t>(segment.sequence)];
  }

  // Rows of the tile, from its first, whose sequences run further than so many half blocks.
  int64_t RowsBeyond(const Tile& tile, int64_t half_blocks) const;
  // Tiles, from the first, that have such rows.
  int TilesBeyond(int64_t half_blocks) const;

 private:
  std::span<const Segment> Segments(int first, int count) const {
    return std::span(segments_).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  }
  void PlaceWhole(int sequence, int64_t tile_rows);
  void PlaceInPieces(int sequence, int64_t tile_rows);
  void AddTile(bool piece);
  void AddSegment(int sequence, int64_t first_token, int64_t tokens);

  std::vector<PlacedSequence> sequences_;
  std::vector<Segment> segments_;
  std::vector<Tile> tiles_;
  bool cut_ = false;
  Buffer masks_;  // copies
};

}  // namespace encoderd
