#include "engine/batch_layout.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>

#include "engine/ops/attention.h"
#include "engine/status_macros.h"
#include "engine/tensor/rounding.h"

namespace encoderd {
namespace {

constexpr int64_t kPieceStep = ops::Attention::kPieceStep;

// Tiles of several sequences have at least this many rows where more could follow.
constexpr int64_t kMinPackedRows = 128;

// What a part of a mask takes, so that the next one is aligned.
size_t MaskBytes(size_t bytes) {
  return static_cast<size_t>(RoundUp(static_cast<int64_t>(bytes), int64_t{sizeof(int32_t)}));
}

int64_t HalfBlocks(const Plan& plan) {
  return 2 * plan.layers_run + (plan.last_map_only || plan.final_norm_needed ? 1 : 0);
}

}  // namespace

// The worst batch has one token in a tile of its own, kMinPackedRows + 1 in two pieces, one token,
// and so on.
int64_t BatchLayout::MaxStoredRows(const BatchLimits& limits) {
  return std::max(RoundUp(limits.max_sequence_tokens, kPieceStep),
                  RoundUp(2 * limits.max_batch_tokens + kPieceStep, kPieceStep));
}

int BatchLayout::MaxTiles(const BatchLimits& limits) {
  return static_cast<int>(std::max(CeilDiv(limits.max_sequence_tokens, kPieceStep),
                                   3 * limits.max_batch_tokens / kMinPackedRows + 3));
}

absl::StatusOr<std::unique_ptr<BatchLayout>> BatchLayout::Create() {
  auto layout = std::make_unique<BatchLayout>();
  ASSIGN_OR_RETURN(layout->masks_, Buffer::AllocateLasting(kMaxMaskBytes, "masks"));
  return layout;
}

// The time of the thread that has most to do: a product costs as much as its rows and, for the
// weights that it reads, some more. The last term is for the wait for whoever ends last.
int64_t BatchLayout::TileRows(int64_t tokens, int threads, bool single) {
  if (threads == 1) return kMaxRows;
  constexpr int64_t kReadingRows = 8;
  int64_t best_rows = kMaxRows, best_cost = std::numeric_limits<int64_t>::max();
  for (int64_t rows = single ? kPieceStep : kMinPackedRows; rows <= kMaxRows; rows += kPieceStep) {
    const int64_t tiles = CeilDiv(tokens, rows);
    const int64_t cost = 10 * CeilDiv(tiles, threads) * (rows + kReadingRows) + rows;
    if (cost < best_cost) {
      best_cost = cost;
      best_rows = rows;
    }
  }
  return best_rows;
}

void BatchLayout::Place(std::span<BatchItem* const> items, int64_t tile_rows) {
  sequences_.clear();
  segments_.clear();
  tiles_.clear();
  cut_ = false;
  for (BatchItem* item : items) {
    const Sequence& sequence = item->request->sequences[item->sequence];
    sequences_.push_back({.item = item,
                          .tokens = sequence.tokens(),
                          .half_blocks = HalfBlocks(*item->plan),
                          .mask = sequence.mask,
                          .position_ids = sequence.position_ids});
  }
  // A stable sort takes memory from the heap, and batches whose items all run equally far need
  // none.
  if (!std::ranges::is_sorted(sequences_, std::greater<>(), &PlacedSequence::half_blocks)) {
    std::ranges::stable_sort(sequences_, std::greater<>(), &PlacedSequence::half_blocks);
  }
  for (int i = 0; i < static_cast<int>(sequences_.size()); ++i) {
    PlacedSequence& sequence = sequences_[static_cast<size_t>(i)];
    sequence.first_segment = static_cast<int>(segments_.size());
    sequence.tokens > tile_rows ? PlaceInPieces(i, tile_rows) : PlaceWhole(i, tile_rows);
    sequence.segments = static_cast<int>(segments_.size()) - sequence.first_segment;
  }
}

void BatchLayout::PlaceWhole(int sequence, int64_t tile_rows) {
  const int64_t tokens = sequences_[static_cast<size_t>(sequence)].tokens;
  if (tiles_.empty() || tiles_.back().piece || tiles_.back().rows + tokens > tile_rows) {
    AddTile(/*piece=*/false);
  }
  AddSegment(sequence, 0, tokens);
}

// Evenly: a last piece of a few rows would cost as much as a whole one.
void BatchLayout::PlaceInPieces(int sequence, int64_t tile_rows) {
  const int64_t tokens = sequences_[static_cast<size_t>(sequence)].tokens;
  const int64_t pieces = CeilDiv(tokens, tile_rows);
  const int64_t rows = RoundUp(CeilDiv(tokens, pieces), kPieceStep);
  cut_ = true;
  for (int64_t first = 0; first < tokens; first += rows) {
    AddTile(/*piece=*/true);
    AddSegment(sequence, first, std::min(rows, tokens - first));
  }
}

void BatchLayout::AddTile(bool piece) {
  tiles_.push_back({.first_segment = static_cast<int>(segments_.size()),
                    .stored_row = StoredRows(),
                    .piece = piece});
}

int64_t BatchLayout::StoredRows() const {
  if (tiles_.empty()) return 0;
  return tiles_.back().stored_row + RoundUp(tiles_.back().rows, kPieceStep);
}

void BatchLayout::AddSegment(int sequence, int64_t first_token, int64_t tokens) {
  Tile& tile = tiles_.back();
  segments_.push_back({.sequence = sequence,
                       .tile = static_cast<int>(tiles_.size()) - 1,
                       .first_token = first_token,
                       .tokens = tokens,
                       .row = tile.rows});
  ++tile.segments;
  tile.rows += tokens;
}

bool BatchLayout::CanOwnMasks() const {
  size_t bytes = 0;
  for (const PlacedSequence& sequence : sequences_) {
    const Mask& mask = sequence.mask;
    for (const size_t part :
         {mask.keys.size_bytes(), mask.pairs.size_bytes(), mask.head_pairs.size_bytes(),
          mask.segment_ids.size_bytes(), sequence.position_ids.size_bytes()}) {
      bytes += MaskBytes(part);
    }
  }
  return bytes <= kMaxMaskBytes;
}

void BatchLayout::OwnMasks() {
  std::byte* next = masks_.data();
  const auto own = [&next](auto& part) {
    using T = typename std::remove_reference_t<decltype(part)>::element_type;
    if (part.empty()) return;
    std::memcpy(next, part.data(), part.size_bytes());
    part = {reinterpret_cast<T*>(next), part.size()};
    next += MaskBytes(part.size_bytes());
  };
  for (PlacedSequence& sequence : sequences_) {
    Mask& mask = sequence.mask;
    own(mask.keys);
    own(mask.pairs);
    own(mask.head_pairs);
    own(mask.segment_ids);
    own(sequence.position_ids);
  }
}

int64_t BatchLayout::RowsBeyond(const Tile& tile, int64_t half_blocks) const {
  int64_t rows = 0;
  for (const Segment& segment : SegmentsOf(tile)) {
    if (SequenceOf(segment).half_blocks > half_blocks) rows += segment.tokens;
  }
  return rows;
}

int BatchLayout::TilesBeyond(int64_t half_blocks) const {
  int tiles = 0;
  for (const Tile& tile : tiles_) {
    if (RowsBeyond(tile, half_blocks) > 0) ++tiles;
  }
  return tiles;
}

}  // namespace encoderd
