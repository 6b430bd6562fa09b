// Goal:   every tile gets one result, whoever helps and wherever a helper stops: the owner waits
//         for nobody, and nothing that a late helper may still touch is used again before it is
//         out.
// Method: the protocol alone. Helpers are stopped where a test wants them by semaphores.
#include "engine/tile_phase.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <semaphore>
#include <thread>
#include <vector>

#include "absl/log/check.h"
#include "absl/status/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using Copy = TilePhase::Copy;
using Stop = absl::FunctionRef<bool()>;

constexpr int kHelpers = 3;

bool Never() { return false; }

// Copies computed to their end, by tile.
struct Counts {
  explicit Counts(int tiles) : first(static_cast<size_t>(tiles)), second(first.size()) {}

  absl::Status Compute(int tile, Copy copy) {
    ++(copy == Copy::kFirst ? first : second)[static_cast<size_t>(tile)];
    return absl::OkStatus();
  }

  std::vector<int> first, second;
};

// A helper that stops inside its first tile until it is let go.
class StalledHelper {
 public:
  explicit StalledHelper(TilePhase& phase, bool finishes = true)
      : thread_([this, &phase, finishes] {
          ASSERT_TRUE(phase.Enter());
          phase.Help(
              [&](int tile, Copy, Stop) {
                tile_ = tile;
                inside_.release();
                go_on_.acquire();
                return finishes ? absl::OkStatus() : absl::CancelledError();
              },
              Never);
          last_out_ = phase.Leave();
        }) {
    inside_.acquire();
  }
  ~StalledHelper() {
    if (thread_.joinable()) Finish();
  }

  int tile() const { return tile_; }
  void GoOn() { go_on_.release(); }
  // Lets it go to its end. Returns what Leave said.
  bool Finish() {
    GoOn();
    thread_.join();
    return last_out_;
  }

 private:
  int tile_ = -1;
  bool last_out_ = false;
  std::binary_semaphore inside_{0}, go_on_{0};
  std::thread thread_;
};

TEST(TilePhaseTest, OwnerAloneComputesEachTileOnce) {
  TilePhase phase(5, kHelpers);
  for (const int tiles : {5, 1, 3}) {
    phase.Open(tiles, /*shared=*/false);
    Counts counts(5);
    EXPECT_THAT(phase.Finish([&](int tile, Copy copy, Stop) { return counts.Compute(tile, copy); }),
                IsOk());
    for (int tile = 0; tile < 5; ++tile) {
      EXPECT_EQ(counts.first[static_cast<size_t>(tile)], tile < tiles ? 1 : 0);
    }
    EXPECT_THAT(counts.second, ::testing::Each(0));
    EXPECT_TRUE(phase.Close());
  }
}

TEST(TilePhaseTest, NobodyEntersAPhaseThatIsNotSharedOrIsClosed) {
  TilePhase phase(1, kHelpers);
  EXPECT_FALSE(phase.Enter());
  phase.Open(1, /*shared=*/false);
  EXPECT_FALSE(phase.Enter());
  EXPECT_TRUE(phase.Close());
  phase.Open(1, /*shared=*/true);
  EXPECT_TRUE(phase.Close());
  EXPECT_FALSE(phase.Enter());
}

TEST(TilePhaseTest, NoMoreHelpersEnterThanThereIsRoomFor) {
  TilePhase phase(4, /*max_helpers=*/2);
  phase.Open(4, /*shared=*/true);
  EXPECT_TRUE(phase.Enter());
  EXPECT_TRUE(phase.Enter());
  EXPECT_FALSE(phase.Enter());
  EXPECT_FALSE(phase.Leave());
  EXPECT_TRUE(phase.Enter());
  EXPECT_FALSE(phase.Close());
  EXPECT_FALSE(phase.Leave());
  EXPECT_TRUE(phase.Leave());
}

TEST(TilePhaseTest, HelperThatStopsBeforeItClaimsIsNotWaitedFor) {
  TilePhase phase(4, kHelpers);
  phase.Open(4, /*shared=*/true);
  ASSERT_TRUE(phase.Enter());
  Counts counts(4);
  EXPECT_THAT(phase.Finish([&](int tile, Copy copy, Stop) { return counts.Compute(tile, copy); }),
              IsOk());
  EXPECT_THAT(counts.first, ::testing::Each(1));
  EXPECT_FALSE(phase.Close()) << "somebody is inside";
  // It wakes up: nothing is left for it, and it is the last one out.
  phase.Help([](int, Copy, Stop) { return absl::InternalError("claimed in a closed phase"); },
             Never);
  EXPECT_TRUE(phase.Leave());
  phase.Open(4, /*shared=*/true);
  EXPECT_TRUE(phase.Close());
}

TEST(TilePhaseTest, TileOfAStalledHelperIsComputedByTheOwner) {
  TilePhase phase(3, kHelpers);
  phase.Open(3, /*shared=*/true);
  StalledHelper helper(phase);
  Counts counts(3);
  EXPECT_THAT(phase.Finish([&](int tile, Copy copy, Stop) { return counts.Compute(tile, copy); }),
              IsOk());
  for (int tile = 0; tile < 3; ++tile) {
    const bool late = tile == helper.tile();
    EXPECT_EQ(counts.first[static_cast<size_t>(tile)], late ? 0 : 1);
    EXPECT_EQ(counts.second[static_cast<size_t>(tile)], late ? 1 : 0);
    EXPECT_EQ(phase.result(tile), late ? Copy::kSecond : Copy::kFirst);
  }
  EXPECT_FALSE(phase.Close());
  const int late = helper.tile();
  EXPECT_TRUE(helper.Finish()) << "it is the last one out";
  EXPECT_EQ(phase.result(late), Copy::kSecond) << "its copy came too late";
}

TEST(TilePhaseTest, TwoStalledHelpersHoldNothingUp) {
  TilePhase phase(2, kHelpers);
  phase.Open(2, /*shared=*/true);
  StalledHelper one(phase), other(phase);
  Counts counts(2);
  EXPECT_THAT(phase.Finish([&](int tile, Copy copy, Stop) { return counts.Compute(tile, copy); }),
              IsOk());
  EXPECT_THAT(counts.first, ::testing::Each(0));
  EXPECT_THAT(counts.second, ::testing::Each(1));
  EXPECT_FALSE(phase.Close());
  EXPECT_FALSE(one.Finish());
  EXPECT_TRUE(other.Finish());
}

TEST(TilePhaseTest, HelperThatIsFasterThanTheSecondCopyWins) {
  TilePhase phase(1, kHelpers);
  phase.Open(1, /*shared=*/true);
  StalledHelper helper(phase);
  EXPECT_THAT(phase.Finish([&](int, Copy copy, Stop stop) {
    EXPECT_EQ(copy, Copy::kSecond);
    EXPECT_FALSE(stop());
    helper.GoOn();
    while (!stop()) std::this_thread::yield();
    return absl::CancelledError();
  }),
              IsOk());
  EXPECT_EQ(phase.result(0), Copy::kFirst);
  std::ignore = phase.Close();
}

// The second copy was finished all the same, and a moment too late.
TEST(TilePhaseTest, SecondCopyThatComesTooLateDoesNotCount) {
  TilePhase phase(1, kHelpers);
  phase.Open(1, /*shared=*/true);
  StalledHelper helper(phase);
  EXPECT_THAT(phase.Finish([&](int, Copy, Stop stop) {
    helper.GoOn();
    while (!stop()) std::this_thread::yield();
    return absl::OkStatus();
  }),
              IsOk());
  EXPECT_EQ(phase.result(0), Copy::kFirst);
  std::ignore = phase.Close();
}

TEST(TilePhaseTest, TileThatAHelperGivesUpIsTheOwnersFirstCopy) {
  TilePhase phase(1, kHelpers);
  phase.Open(1, /*shared=*/true);
  ASSERT_TRUE(phase.Enter());
  bool leaving = false;
  phase.Help(
      [&](int, Copy, Stop stop) {
        leaving = true;
        EXPECT_TRUE(stop());
        return absl::CancelledError();
      },
      [&] { return leaving; });
  EXPECT_FALSE(phase.Leave()) << "the phase is open";
  Counts counts(1);
  EXPECT_THAT(phase.Finish([&](int tile, Copy copy, Stop) { return counts.Compute(tile, copy); }),
              IsOk());
  EXPECT_EQ(counts.first[0], 1);
  EXPECT_TRUE(phase.Close());
}

TEST(TilePhaseTest, HelperStopsAtWhatItHasLost) {
  TilePhase phase(1, kHelpers);
  phase.Open(1, /*shared=*/true);
  std::binary_semaphore inside{0}, finished{0};
  bool stopped = false;
  std::thread helper([&] {
    ASSERT_TRUE(phase.Enter());
    phase.Help(
        [&](int, Copy, Stop stop) {
          inside.release();
          finished.acquire();
          stopped = stop();
          return absl::CancelledError();
        },
        Never);
    std::ignore = phase.Leave();
  });
  inside.acquire();
  EXPECT_THAT(phase.Finish([](int, Copy, Stop) { return absl::OkStatus(); }), IsOk());
  finished.release();
  helper.join();
  EXPECT_TRUE(stopped);
  EXPECT_TRUE(phase.Close());
}

TEST(TilePhaseTest, ErrorOfTheOwnerEndsThePhase) {
  TilePhase phase(2, kHelpers);
  phase.Open(2, /*shared=*/true);
  EXPECT_THAT(phase.Finish([](int, Copy, Stop) { return absl::InternalError("a kernel"); }),
              StatusIs(absl::StatusCode::kInternal));
  EXPECT_TRUE(phase.Close());
  phase.Open(2, /*shared=*/true);
  StalledHelper helper(phase, /*finishes=*/false);
  EXPECT_THAT(phase.Finish([](int, Copy copy, Stop) {
    return copy == Copy::kFirst ? absl::OkStatus() : absl::InternalError("a kernel");
  }),
              StatusIs(absl::StatusCode::kInternal));
  EXPECT_FALSE(phase.Close());
  EXPECT_TRUE(helper.Finish());
}

// Many phases after one another in the memory of a few, with helpers that come and go: each tile is
// made from all tiles of the phase before, so a value that was lost, read too early or overwritten
// shows at the end.
TEST(TilePhaseTest, ChainOfPhasesIsTheSameWhoeverHelps) {
  constexpr int kTiles = 7, kPhases = 2000;
  struct Memory {
    TilePhase phase{kTiles, kHelpers};
    std::atomic<bool> in_use{false};
    const std::vector<uint64_t>* input = nullptr;
    std::vector<uint64_t> first = std::vector<uint64_t>(kTiles),
                          second = std::vector<uint64_t>(kTiles),
                          result = std::vector<uint64_t>(kTiles, 1);
    // The phase that it reads from must not be used again either.
    Memory* before = nullptr;
    std::atomic<int> readers{0};

    void Release() {
      before->readers.fetch_sub(1);
      in_use = false;
    }
    uint64_t Value(int tile) const {
      uint64_t value = static_cast<uint64_t>(tile) + 1;
      for (const uint64_t x : *input) value = value * 6364136223846793005u + x;
      return value;
    }
  };
  std::vector<Memory> memory(2 + 3 * kHelpers);
  std::atomic<Memory*> offer{nullptr};
  std::atomic<bool> ending{false};
  std::vector<std::thread> helpers;
  for (unsigned seed = 0; seed < kHelpers; ++seed) {
    helpers.emplace_back([&, seed] {
      std::mt19937 rng(seed);
      while (!ending) {
        Memory* const at = offer;
        if (at == nullptr || !at->phase.Enter()) continue;
        if (rng() % 4 == 0) std::this_thread::yield();
        at->phase.Help(
            [&](int tile, Copy, Stop stop) {
              if (rng() % 3 == 0) std::this_thread::yield();
              if (stop()) return absl::CancelledError();
              at->first[static_cast<size_t>(tile)] = at->Value(tile);
              return absl::OkStatus();
            },
            [&] { return rng() % 16 == 0; });
        if (at->phase.Leave()) at->Release();
      }
    });
  }
  auto run = [&](bool shared) {
    Memory* last = &memory[0];
    last->in_use = true;
    last->result.assign(kTiles, 1);
    last->readers = 1;
    for (int i = 0; i < kPhases; ++i) {
      Memory* next = nullptr;
      for (Memory& free : memory) {
        if (!free.in_use && free.readers == 0) next = &free;
      }
      CHECK(next != nullptr);
      next->in_use = true;
      next->before = last;
      last->readers.fetch_add(1);
      next->readers = 1;
      next->input = &last->result;
      next->phase.Open(kTiles, shared);
      if (shared) offer = next;
      const absl::Status finished = next->phase.Finish([&](int tile, Copy copy, Stop) {
        (copy == Copy::kFirst ? next->first : next->second)[static_cast<size_t>(tile)] =
            next->Value(tile);
        return absl::OkStatus();
      });
      CHECK(finished.ok()) << finished;
      for (size_t tile = 0; tile < kTiles; ++tile) {
        const bool first = next->phase.result(static_cast<int>(tile)) == Copy::kFirst;
        next->result[tile] = (first ? next->first : next->second)[tile];
      }
      if (next->phase.Close()) next->Release();
      last->readers.fetch_sub(1);
      last = next;
    }
    std::vector<uint64_t> result = last->result;
    last->readers.fetch_sub(1);
    memory[0].in_use = false;
    return result;
  };
  const std::vector<uint64_t> alone = run(false);
  EXPECT_EQ(run(true), alone);
  ending = true;
  for (std::thread& helper : helpers) helper.join();
}

}  // namespace
}  // namespace encoderd
