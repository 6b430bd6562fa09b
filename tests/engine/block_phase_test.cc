// Goal:   whatever rows of a phase are handed to an operation lie in the phase's memory, with the
//         rows that the operation rounds them up to.
#include "engine/block_phase.h"

#include <algorithm>
#include <vector>

#include "engine/ops/row_buckets.h"
#include "gtest/gtest.h"

namespace encoderd {
namespace {

// Two sequences of 130 and 126 tokens in a tile of 256 rows, which a helper had and the owner has
// computed a second time: the heads go through the later one's rows 64 at a time, from row 130 on.
TEST(BlockPhaseTest, ChunksThatBeginAnywhereInATileEndWithinTheGeneration) {
  constexpr int64_t kFirst = 130, kTile = BatchLayout::kMaxRows, kChunk = 64;
  for (const int helpers : {0, 1, 7, 20}) {
    const PhaseShape shape = {.width = 8,
                              .hidden = 8,
                              .limits = {.max_batch_tokens = 512, .max_sequence_tokens = 512},
                              .helpers = helpers};
    const auto generation = Generation::Create(shape);
    ASSERT_TRUE(generation.ok());
    const Tile last = {.stored_row = BatchLayout::MaxStoredRows(shape.limits) - kTile};
    std::vector<TileRows> copies = {(*generation)->First(last)};
    for (int i = 0; i < shape.helpers_of_phase(); ++i) copies.push_back((*generation)->Second(i));
    const TileRows begin = (*generation)->First({.stored_row = 0});
    for (const auto mode : {ops::RowBuckets::Mode::kSteps, ops::RowBuckets::Mode::kFixed}) {
      const ops::RowBuckets buckets(mode);
      int64_t end = 0;  // of the rows that the last chunk takes
      for (int64_t row = kFirst; row < kTile; row += kChunk) {
        buckets.ForEachChunk(std::min(kChunk, kTile - row),
                             [&](int64_t first, int64_t rows) { end = row + first + rows; });
      }
      ASSERT_GT(end, kTile);
      for (const TileRows& rows : copies) {
        EXPECT_LE((rows.hidden - begin.hidden) / shape.width + end, shape.GenerationRows());
        EXPECT_LE((rows.qkv - begin.qkv) / (3 * shape.hidden) + end, shape.GenerationRows());
      }
    }
    // The rows that are promised are there.
    std::fill_n(begin.hidden, shape.GenerationRows() * shape.width, 1.0f);
    std::fill_n(begin.qkv, shape.GenerationRows() * 3 * shape.hidden, 1.0f);
  }
}

}  // namespace
}  // namespace encoderd
