// tile_phase.h — how the tiles of one phase are shared between a batch's owner and helpers.
//
// Role:   the protocol alone; what a tile is, and what computing it means, is the caller's.
// Rules:  a tile goes to whoever claims it first. Nobody waits for a helper: when nothing is left
//         to claim, the owner computes what is still unfinished itself, as a second copy, and the
//         first copy to be published is the tile's result. All copies have the same bits.
//
//   owner   Open ─▶ Claim, compute, publish … ─▶ late tiles: second copies ─▶ Close ─▶ next phase
//   helper       Enter ─▶ Claim, compute, publish … ─────▶ (may be late) ─────────────────▶ Leave
//
// A helper may be anywhere when the phase is closed, and for as long as the kernel keeps it off its
// core. So whatever a phase's tiles read and write belongs to the phase until the last one is out:
// Close says so to the owner when no helper is inside, and Leave says so to the helper that was the
// last. After that the phase may be opened again.
// Threads: one owner; any number of helpers. No call blocks.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "engine/status_macros.h"

namespace encoderd {

class TilePhase {
 public:
  // First: made by whoever claimed the tile. Second: made by the owner, of a tile that is late.
  enum class Copy : uint8_t { kFirst, kSecond };

  // max_helpers: that are inside at a time.
  TilePhase(int max_tiles, int max_helpers)
      : max_tiles_(max_tiles),
        max_helpers_(static_cast<uint32_t>(max_helpers)),
        tiles_(new std::atomic<Tile>[static_cast<size_t>(max_tiles)]) {}

  // ---- The owner ----

  // shared: helpers may enter. REQUIRES: closed, and the last one is out; what the tiles read has
  // been written.
  void Open(int tiles, bool shared);

  // Returns when each tile has a published copy, or with the error of a `compute` of the owner's.
  // compute(tile, copy, stop) → absl::Status computes the copy of the tile that is asked for. It
  // may call `stop` between operations; where that is true the copy is of no use any more and it
  // may return kCancelled. A second copy is asked for where a helper has claimed the tile and has
  // not been heard of; where the helper was faster after all, the copy does not count, and its
  // memory may be used for the next.
  template <typename Compute>
  absl::Status Finish(Compute&& compute);

  // The copy that counts. REQUIRES: Finish returned OK.
  Copy result(int tile) const {
    return State(tile) == Tile::kSecond ? Copy::kSecond : Copy::kFirst;
  }

  // From now on nobody enters. Returns whether nobody is inside.
  [[nodiscard]] bool Close() { return (word_.fetch_and(~kOpen) & ~kOpen) == 0; }

  // ---- A helper ----

  // False when the phase is not open to helpers, or is full. One that has entered leaves.
  [[nodiscard]] bool Enter();

  // Claims and computes tiles until there are none, or the phase is closed, or `leave` says so.
  // `compute` as above; a copy that is not finished is left to the owner.
  template <typename Compute>
  void Help(Compute&& compute, absl::FunctionRef<bool()> leave);

  // Returns whether the phase is closed and this was the last one inside.
  [[nodiscard]] bool Leave() { return word_.fetch_sub(1) == 1; }

 private:
  using Clock = std::chrono::steady_clock;

  enum class Tile : uint8_t {
    kUnfinished,
    kGivenUp,  // its claimer has stopped: the owner may write the first copy
    kFirst,
    kSecond,
  };
  static constexpr uint32_t kOpen = uint32_t{1} << 31;

  Tile State(int tile) const {
    return tiles_[static_cast<size_t>(tile)].load(std::memory_order_acquire);
  }
  bool Published(int tile) const { return State(tile) >= Tile::kFirst; }
  bool IsOpen() const { return (word_.load(std::memory_order_acquire) & kOpen) != 0; }

  // The next tile that nobody has, or -1.
  int Claim() {
    const int tile = next_.fetch_add(1, std::memory_order_relaxed);
    return tile < count_ ? tile : -1;
  }

  // Puts `to` in the place of a state that has no copy yet; does nothing when a copy was faster.
  void Settle(int tile, Tile to);

  template <typename Compute>
  absl::Status ComputeLate(int tile, Compute& compute);
  // Waits for the claimer of the tile until `end`. Returns whether the tile has been settled.
  bool AwaitUntil(int tile, Clock::time_point end) const;

  const int max_tiles_;
  const uint32_t max_helpers_;
  std::unique_ptr<std::atomic<Tile>[]> tiles_;
  int count_ = 0;
  std::atomic<int> next_{0};
  std::atomic<uint32_t> word_{0};  // kOpen: to helpers; below it the number of them inside
};

template <typename Compute>
absl::Status TilePhase::Finish(Compute&& compute) {
  Clock::time_point now = Clock::now();
  std::optional<Clock::duration> fastest;
  for (int tile = Claim(); tile >= 0; tile = Claim()) {
    RETURN_IF_ERROR(compute(tile, Copy::kFirst, [] { return false; }));
    Settle(tile, Tile::kFirst);
    const Clock::time_point start = std::exchange(now, Clock::now());
    fastest = std::min(now - start, fastest.value_or(now - start));
  }
  // A helper that has a core of its own is through with its tile within the time that a tile takes
  // here, unless the owner was off its core meanwhile: so the fastest one counts. A second copy
  // before that would only take memory bandwidth from it.
  const Clock::time_point patience = now + fastest.value_or(Clock::duration::zero()) / 2;
  for (int tile = 0; tile < count_; ++tile) {
    if (AwaitUntil(tile, patience) && Published(tile)) continue;
    RETURN_IF_ERROR(ComputeLate(tile, compute));
  }
  return absl::OkStatus();
}

template <typename Compute>
absl::Status TilePhase::ComputeLate(int tile, Compute& compute) {
  const bool given_up = State(tile) == Tile::kGivenUp;
  const Copy copy = given_up ? Copy::kFirst : Copy::kSecond;
  absl::Status status = compute(tile, copy, [&] { return Published(tile); });
  if (!status.ok()) return Published(tile) ? absl::OkStatus() : status;
  Settle(tile, given_up ? Tile::kFirst : Tile::kSecond);
  return absl::OkStatus();
}

template <typename Compute>
void TilePhase::Help(Compute&& compute, absl::FunctionRef<bool()> leave) {
  while (IsOpen() && !leave()) {
    const int tile = Claim();
    if (tile < 0) return;
    const absl::Status status =
        compute(tile, Copy::kFirst, [&] { return leave() || !IsOpen() || Published(tile); });
    Settle(tile, status.ok() ? Tile::kFirst : Tile::kGivenUp);
  }
}

}  // namespace encoderd
