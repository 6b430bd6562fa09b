#include "engine/tile_phase.h"

#include <immintrin.h>

#include "absl/log/check.h"

namespace encoderd {

void TilePhase::Open(int tiles, bool shared) {
  CHECK_EQ(word_.load(std::memory_order_acquire), 0u) << "TilePhase::Open: somebody is inside";
  CHECK_LE(tiles, max_tiles_);
  for (int tile = 0; tile < tiles; ++tile) {
    tiles_[static_cast<size_t>(tile)].store(Tile::kUnfinished, std::memory_order_relaxed);
  }
  count_ = tiles;
  next_.store(0, std::memory_order_relaxed);
  word_.store(shared ? kOpen : 0, std::memory_order_release);
}

bool TilePhase::Enter() {
  uint32_t word = word_.load(std::memory_order_relaxed);
  while ((word & kOpen) != 0 && word - kOpen < max_helpers_) {
    if (word_.compare_exchange_weak(word, word + 1, std::memory_order_acquire,
                                    std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

void TilePhase::Settle(int tile, Tile to) {
  std::atomic<Tile>& state = tiles_[static_cast<size_t>(tile)];
  Tile now = state.load(std::memory_order_relaxed);
  while (now < Tile::kFirst) {
    if (state.compare_exchange_weak(now, to, std::memory_order_acq_rel,
                                    std::memory_order_relaxed)) {
      return;
    }
  }
}

bool TilePhase::AwaitUntil(int tile, Clock::time_point end) const {
  while (State(tile) == Tile::kUnfinished) {
    if (Clock::now() >= end) return false;
    _mm_pause();
  }
  return true;
}

}  // namespace encoderd
