// Goal: the picture shows every measurement, and the lines they are judged by.
// Method: pictures are written, read back and looked at by pixel.
#include "deploy/client/load/load_figure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status_matchers.h"
#include "tests/deploy/client/picture.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd::client {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::HasSubstr;

constexpr uint32_t kP50 = 0x21908c;
constexpr uint32_t kP99 = 0x472d7b;
constexpr uint32_t kBound = 0xc62828;
constexpr uint32_t kInBound = 0xeef6ee;

LoadFigure Figure() {
  return {.title = "tiny: latency over rate",
          .subtitle = "Poisson arrivals, lengths fixed:128",
          .points = {{50, absl::Milliseconds(10), absl::Milliseconds(30)},
                     {100, absl::Milliseconds(20), absl::Milliseconds(90)}},
          .p99_bound = absl::Milliseconds(100),
          .offline_rate = 150,
          .best_rate = 100};
}

Picture Draw(const LoadFigure& figure) {
  const TempFolder folder;
  const std::string path = folder.Path("load.png");
  EXPECT_THAT(DrawLoad(figure, path), IsOk());
  return Picture(path);
}

TEST(DrawLoadTest, DrawsCurvesBoundAndRatesInBound) {
  const Picture picture = Draw(Figure());
  EXPECT_EQ(picture.width(), 960);
  EXPECT_EQ(picture.height(), 560);
  EXPECT_GT(picture.Count(kP50), 200);
  EXPECT_GT(picture.Count(kP99), 200);
  EXPECT_GT(picture.Count(kBound), 400);  // six of ten pixels of its width, and a label
  // 100 of 159 calls/s of a plot of 848 x 392, less what is drawn upon it.
  EXPECT_NEAR(picture.Count(kInBound), 848 * 392 * 100 / 159, 12000);
}

TEST(DrawLoadTest, LeavesOutTheRatesInBoundWhereThereAreNone) {
  LoadFigure figure = Figure();
  figure.best_rate = 0;
  EXPECT_EQ(Draw(figure).Count(kInBound), 0);
}

TEST(DrawLoadTest, DrawsAnotherPictureForOtherLatencies) {
  LoadFigure figure = Figure();
  const int before = Draw(figure).Count(kP99);
  // Hollow instead of full, and steeper.
  figure.points[1].p99 = absl::Milliseconds(900);
  EXPECT_NE(Draw(figure).Count(kP99), before);
}

TEST(DrawLoadTest, EndsCurvesAtTheirPoints) {
  const Picture picture = Draw(Figure());
  constexpr int kPlotTop = 104, kFirst = 84 + 848 * 50 / 159, kLast = 84 + 848 * 100 / 159;
  for (int y = kPlotTop; y < picture.height(); ++y) {
    for (int x = 0; x < picture.width(); ++x) {
      if (x >= kFirst - 8 && x <= kLast + 8) continue;
      ASSERT_NE(picture.At(x, y), kP50) << x << ", " << y;
      ASSERT_NE(picture.At(x, y), kP99) << x << ", " << y;
    }
  }
}

TEST(DrawLoadTest, MarksLatenciesWithoutEndAtTheUpperEdge) {
  LoadFigure figure = Figure();
  constexpr int kX = 84 + 848 * 100 / 159;  // of 100 calls/s
  EXPECT_NE(Draw(figure).At(kX, 100), kP99);
  figure.points[1].p99 = absl::InfiniteDuration();
  EXPECT_EQ(Draw(figure).At(kX, 100), kP99);
}

TEST(DrawLoadTest, TakesTheExtremes) {
  LoadFigure figure = Figure();
  figure.points = {{0.001, absl::ZeroDuration(), absl::Hours(1)}};
  Draw(figure);
  figure.points = {{100000, absl::InfiniteDuration(), absl::InfiniteDuration()}};
  Draw(figure);
}

TEST(DrawLoadTest, NamesTheFileThatCannotBeWritten) {
  EXPECT_THAT(DrawLoad(Figure(), "/no/such/folder/a.png"),
              StatusIs(absl::StatusCode::kAborted, HasSubstr("/no/such/folder/a.png")));
}

}  // namespace
}  // namespace encoderd::client
