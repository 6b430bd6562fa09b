// Goal:   every token has one place, tiles are no larger than one thread computes at a time and fit
//         the memory that there is for them, whatever the lengths.
#include "engine/batch_layout.h"

#include <algorithm>
#include <random>
#include <vector>

#include "engine/ops/attention.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace encoderd {
namespace {

constexpr int64_t kStep = ops::Attention::kPieceStep;

// Sequences of these lengths, which run so many blocks each.
class Items {
 public:
  explicit Items(const std::vector<int64_t>& lengths, std::vector<int64_t> blocks = {})
      : ids_(static_cast<size_t>(*std::ranges::max_element(lengths))),
        plans_(lengths.size()),
        items_(lengths.size()) {
    for (size_t i = 0; i < lengths.size(); ++i) {
      request_.sequences.push_back(
          {.input_ids = std::span(ids_).first(static_cast<size_t>(lengths[i]))});
      plans_[i].layers_run = blocks.empty() ? 1 : blocks[i];
      items_[i] = {.request = &request_, .plan = &plans_[i], .sequence = i};
      pointers_.push_back(&items_[i]);
    }
  }

  Request& request() { return request_; }
  std::span<BatchItem* const> pointers() const { return pointers_; }

 private:
  std::vector<int32_t> ids_;
  Request request_;
  std::vector<Plan> plans_;
  std::vector<BatchItem> items_;
  std::vector<BatchItem*> pointers_;
};

std::vector<int64_t> TileSizes(const BatchLayout& layout) {
  std::vector<int64_t> rows;
  for (const Tile& tile : layout.tiles()) rows.push_back(tile.rows);
  return rows;
}

void ExpectSound(const BatchLayout& layout, int64_t tile_rows, const BatchLimits& limits) {
  int64_t free_row = 0;
  for (const Tile& tile : layout.tiles()) {
    EXPECT_GT(tile.rows, 0);
    EXPECT_LE(tile.rows, tile_rows);
    EXPECT_GE(tile.stored_row, free_row);
    EXPECT_EQ(tile.stored_row % kStep, 0);
    free_row = tile.stored_row + (tile.rows + kStep - 1) / kStep * kStep;
    int64_t row = 0;
    for (const Segment& segment : layout.SegmentsOf(tile)) {
      EXPECT_EQ(segment.row, row);
      row += segment.tokens;
    }
    EXPECT_EQ(row, tile.rows);
  }
  EXPECT_EQ(layout.StoredRows(), free_row);
  EXPECT_LE(free_row, BatchLayout::MaxStoredRows(limits));
  EXPECT_LE(static_cast<int>(layout.tiles().size()), BatchLayout::MaxTiles(limits));
  for (const PlacedSequence& sequence : layout.sequences()) {
    int64_t token = 0;
    for (const Segment& segment : layout.SegmentsOf(sequence)) {
      EXPECT_EQ(segment.first_token, token);
      EXPECT_EQ(token % kStep, 0);
      token += segment.tokens;
    }
    EXPECT_EQ(token, sequence.tokens);
  }
}

TEST(BatchLayoutTest, RandomLengthsFitWhateverTheTiles) {
  std::mt19937 rng(3);
  const BatchLimits limits = {.max_batch_tokens = 512, .max_sequence_tokens = 1024};
  const auto layout = BatchLayout::Create();
  ASSERT_TRUE(layout.ok());
  for (int i = 0; i < 3000; ++i) {
    std::vector<int64_t> lengths, blocks;
    const int64_t longest = std::vector<int64_t>{1, 16, 130, 200, 512}[rng() % 5];
    for (int64_t left = limits.max_batch_tokens; left > 0; left -= lengths.back()) {
      lengths.push_back(std::min<int64_t>(left, 1 + static_cast<int64_t>(rng()) % longest));
      if (rng() % 2 == 0 && left > 1) lengths.back() = 1;
      blocks.push_back(static_cast<int64_t>(rng() % 3));
    }
    Items items(lengths, blocks);
    for (const int64_t tile_rows : {128, 192, 256}) {
      (*layout)->Place(items.pointers(), tile_rows);
      ExpectSound(**layout, tile_rows, limits);
    }
  }
  for (int64_t tokens = 1; tokens <= limits.max_sequence_tokens; tokens += 37) {
    Items items({tokens});
    for (const int64_t tile_rows : {64, 128, 192, 256}) {
      (*layout)->Place(items.pointers(), tile_rows);
      ExpectSound(**layout, tile_rows, limits);
    }
  }
}

TEST(BatchLayoutTest, ShortSequencesShareTilesAndLongOnesAreCutEvenly) {
  const auto layout = BatchLayout::Create();
  ASSERT_TRUE(layout.ok());
  Items short_ones({100, 100, 100, 56});
  (*layout)->Place(short_ones.pointers(), 256);
  EXPECT_THAT(TileSizes(**layout), ::testing::ElementsAre(200, 156));
  Items one({300});
  (*layout)->Place(one.pointers(), 256);
  EXPECT_THAT(TileSizes(**layout), ::testing::ElementsAre(192, 108));
}

TEST(BatchLayoutTest, WhatStillRunsIsTheFirstRowsOfTheFirstTiles) {
  const auto layout = BatchLayout::Create();
  ASSERT_TRUE(layout.ok());
  Items items({100, 90, 80, 70}, {1, 3, 2, 3});
  (*layout)->Place(items.pointers(), 256);
  EXPECT_THAT(TileSizes(**layout), ::testing::ElementsAre(90 + 70 + 80, 100));
  EXPECT_EQ((*layout)->TilesBeyond(0), 2);
  EXPECT_EQ((*layout)->TilesBeyond(2), 1);
  EXPECT_EQ((*layout)->RowsBeyond((*layout)->tiles()[0], 2), 240);
  EXPECT_EQ((*layout)->RowsBeyond((*layout)->tiles()[0], 4), 160);
  EXPECT_EQ((*layout)->TilesBeyond(6), 0);
}

TEST(BatchLayoutTest, TilesAreAsManyAsThreadsCanShareEvenly) {
  EXPECT_EQ(BatchLayout::TileRows(512, 1, true), 256) << "alone, larger products are faster";
  EXPECT_EQ(BatchLayout::TileRows(512, 2, true), 128);
  EXPECT_EQ(BatchLayout::TileRows(128, 2, true), 64);
  EXPECT_EQ(BatchLayout::TileRows(128, 2, false), 128) << "short ones are not put into small tiles";
  for (int64_t tokens = 65; tokens < 4096; tokens += 61) {
    for (const int threads : {2, 3, 4, 16}) {
      const int64_t rows = BatchLayout::TileRows(tokens, threads, true);
      EXPECT_EQ(rows % kStep, 0);
      EXPECT_LE(rows, BatchLayout::kMaxRows);
    }
  }
}

TEST(BatchLayoutTest, OwnMasksOutliveTheCallers) {
  const auto layout = BatchLayout::Create();
  ASSERT_TRUE(layout.ok());
  std::vector<uint8_t> keys = {1, 0, 1}, pairs(9, 1);
  std::vector<int32_t> segments = {4, 4, 5}, positions = {7, 0, 2};
  Items items({3, 3});
  items.request().sequences[1].position_ids = positions;
  items.request().sequences[0].mask = {.keys = keys, .segment_ids = segments};
  items.request().sequences[1].mask = {.pairs = pairs, .causal = true};
  (*layout)->Place(items.pointers(), 256);
  ASSERT_TRUE((*layout)->CanOwnMasks());
  (*layout)->OwnMasks();
  std::ranges::fill(keys, 9);
  std::ranges::fill(pairs, 9);
  std::ranges::fill(segments, 9);
  std::ranges::fill(positions, 9);
  const auto sequences = (*layout)->sequences();
  EXPECT_THAT(sequences[0].mask.keys, ::testing::ElementsAre(1, 0, 1));
  EXPECT_THAT(sequences[0].mask.segment_ids, ::testing::ElementsAre(4, 4, 5));
  EXPECT_THAT(sequences[1].mask.pairs, ::testing::Each(1));
  EXPECT_TRUE(sequences[1].mask.causal);
  EXPECT_THAT(sequences[1].position_ids, ::testing::ElementsAre(7, 0, 2));
  EXPECT_TRUE(sequences[1].mask.keys.empty());
  // Every batch has its own masks.
  (*layout)->Place(items.pointers(), 256);
  EXPECT_EQ((*layout)->sequences()[0].mask.keys.data(), keys.data());
  (*layout)->OwnMasks();
  EXPECT_THAT((*layout)->sequences()[0].mask.keys, ::testing::Each(9));
}

TEST(BatchLayoutTest, MasksThatAreTooLargeAreLeftToTheOwner) {
  const auto layout = BatchLayout::Create();
  ASSERT_TRUE(layout.ok());
  const std::vector<uint8_t> huge(BatchLayout::kMaxMaskBytes + 1, 1);
  Items items({3});
  items.request().sequences[0].mask.head_pairs = huge;
  (*layout)->Place(items.pointers(), 256);
  EXPECT_FALSE((*layout)->CanOwnMasks());
}

}  // namespace
}  // namespace encoderd
