// Goal: a picture shows every weight at its place, and its labels never touch one another.
// Method: pictures are written, read back and looked at by pixel; layouts are checked as numbers.
#include "deploy/client/attention_figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "deploy/client/colour_map.h"
#include "tests/deploy/client/picture.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd::client {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

AttentionFigure MakeFigure(int tokens, int layers, int heads, std::span<const float> weights) {
  AttentionFigure figure;
  figure.title = "a title";
  figure.query_rows.resize(static_cast<size_t>(tokens));
  std::iota(figure.query_rows.begin(), figure.query_rows.end(), 0);
  for (int i = 0; i < tokens; ++i) figure.token_labels.push_back(absl::StrCat("token", i));
  figure.grid_columns = heads;
  for (int i = 0; i < layers * heads; ++i) figure.panels.push_back({"panel", weights});
  return figure;
}

TEST(DrawAttentionTest, DrawsEveryWeightAsASquareOfItsColour) {
  // Three quarters are 0, one is the largest: the ends of the scale, each in a pure colour.
  const std::vector<float> weights = {0, 0.5f, 0, 0};
  const AttentionFigure figure = MakeFigure(2, 1, 1, weights);
  const int square = LayOutFigure(figure)->cell * LayOutFigure(figure)->cell;
  const TempFolder folder;
  const std::string path = folder.Path("two.png");
  ASSERT_THAT(DrawAttention(figure, path), IsOk());
  const Picture picture(path);
  // The colour bar has a line or two of the same colours.
  EXPECT_NEAR(picture.Count(Viridis(0)), 3 * square, square / 8);
  EXPECT_NEAR(picture.Count(Viridis(1)), square, square / 8);
}

TEST(DrawAttentionTest, GrowsWithTheGrid) {
  const std::vector<float> weights(16 * 16, 1.0f / 16);
  const TempFolder folder;
  const std::string one = folder.Path("one.png");
  const std::string grid = folder.Path("grid.png");
  ASSERT_THAT(DrawAttention(MakeFigure(16, 1, 1, weights), one), IsOk());
  ASSERT_THAT(DrawAttention(MakeFigure(16, 2, 3, weights), grid), IsOk());
  const FigureLayout layout = *LayOutFigure(MakeFigure(16, 2, 3, weights));
  EXPECT_GE(Picture(grid).width(), Picture(one).width() + 2 * layout.panel_width);
  EXPECT_GE(Picture(grid).height(), Picture(one).height() + layout.panel_height);
}

TEST(DrawAttentionTest, DrawsMapsWithoutAnyWeight) {
  const std::vector<float> weights = {0};
  const TempFolder folder;
  ASSERT_THAT(DrawAttention(MakeFigure(1, 1, 1, weights), folder.Path("zero.png")), IsOk());
}

TEST(DrawAttentionTest, NamesTheFileThatCannotBeWritten) {
  const std::vector<float> weights = {1};
  EXPECT_THAT(DrawAttention(MakeFigure(1, 1, 1, weights), "/no/such/folder/a.png"),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("/no/such/folder/a.png")));
}

TEST(LayOutFigureTest, KeepsLabelsApart) {
  for (int tokens = 1; tokens <= 64; ++tokens) {
    const FigureLayout layout = *LayOutFigure(MakeFigure(tokens, 1, 1, {}));
    EXPECT_TRUE(layout.labelled) << tokens;
    EXPECT_GE(layout.cell, 15) << tokens;  // a line of 12 pixels and some air
  }
  // Titles of about 110 pixels.
  for (const int tokens : {1, 2, 32}) {
    EXPECT_GE(LayOutFigure(MakeFigure(tokens, 1, 64, {}))->column_pitch, 130) << tokens;
  }
}

TEST(LayOutFigureTest, NumbersTheAxesWhereNamesWouldNotBeRead) {
  EXPECT_FALSE(LayOutFigure(MakeFigure(65, 1, 1, {}))->labelled);
  EXPECT_FALSE(LayOutFigure(MakeFigure(64, 12, 12, {}))->labelled);
  EXPECT_TRUE(LayOutFigure(MakeFigure(16, 12, 12, {}))->labelled);
}

TEST(LayOutFigureTest, KeepsPicturesWithinAMoment) {
  for (const int tokens : {1, 16, 64, 65, 128, 512, 1024}) {
    const auto layout = LayOutFigure(MakeFigure(tokens, 12, 12, {}));
    ASSERT_THAT(layout, IsOk()) << tokens;
    EXPECT_GE(layout->cell, 1);
    EXPECT_LE(12 * layout->panel_width, std::max(4096, 12 * tokens));
  }
}

TEST(LayOutFigureTest, RefusesPicturesThatNoSurfaceHolds) {
  EXPECT_THAT(LayOutFigure(MakeFigure(8192, 1, 3, {})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--heads")));
}

TEST(ViridisTest, GrowsBrighterAllTheWay) {
  const auto luminance = [](uint32_t colour) {
    return 0.2126 * ((colour >> 16) & 0xff) + 0.7152 * ((colour >> 8) & 0xff) +
           0.0722 * (colour & 0xff);
  };
  for (int i = 0; i < 100; ++i) {
    EXPECT_LE(luminance(Viridis(static_cast<float>(i) / 100)),
              luminance(Viridis(static_cast<float>(i + 1) / 100)));
  }
  EXPECT_EQ(Viridis(0), 0x440154u);
  EXPECT_EQ(Viridis(0.5f), 0x21908cu);
  EXPECT_EQ(Viridis(1), 0xfde725u);
  EXPECT_EQ(Viridis(-1), Viridis(0));
  EXPECT_EQ(Viridis(2), Viridis(1));
  EXPECT_EQ(Viridis(std::numeric_limits<float>::quiet_NaN()), Viridis(0));
}

}  // namespace
}  // namespace encoderd::client
