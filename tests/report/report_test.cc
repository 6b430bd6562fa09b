// Goal:   a table tells the median, what is below its floor, and what could not be measured and why.
// Method: measurements whose rounds are made up.
#include "tests/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace encoderd::report {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Measurement Made(std::vector<Found> rounds, Better better = Better::kHigher) {
  return {.key = "made",
          .figures = {{"made ÷ up", 0.9, 1.0, better}},
          .round =
              [rounds, next = size_t{0}](const Settings&) mutable {
                return std::vector<Found>{rounds[next++ % rounds.size()]};
              },
          .rounds = static_cast<int>(rounds.size())};
}

TEST(ReportTest, TakesTheMedianAndItsDetail) {
  const Outcome outcome =
      MeasureAll({Made({{1.5, "slow"}, {0.95, "usual"}, {0.2, "odd"}})}, Arguments());
  ASSERT_EQ(outcome.rows.size(), 1u);
  EXPECT_EQ(Median(outcome.rows[0].ratios), 0.95);
  EXPECT_EQ(outcome.rows[0].detail, "usual");
  EXPECT_EQ(outcome.Below(), 0);
  EXPECT_THAT(Line(outcome.rows[0]), HasSubstr("(0.200–1.500)"));
}

TEST(ReportTest, MarksWhatIsBelowItsFloor) {
  const Outcome outcome = MeasureAll({Made({{0.89, ""}})}, Arguments());
  EXPECT_EQ(outcome.Below(), 1);
  EXPECT_THAT(Line(outcome.rows[0]), HasSubstr("BELOW"));
  EXPECT_TRUE(ToJson(outcome)["rows"][0]["below"].get<bool>());
}

TEST(ReportTest, AFloorIsTheMostWhereLessIsBetter) {
  EXPECT_EQ(MeasureAll({Made({{0.89, ""}}, Better::kLower)}, Arguments()).Below(), 0);
  EXPECT_EQ(MeasureAll({Made({{0.91, ""}}, Better::kLower)}, Arguments()).Below(), 1);
}

TEST(ReportTest, TellsWhyAFigureIsMissing) {
  Measurement skipped = Made({{1.0, ""}});
  skipped.why_skipped = [] { return "no such machine"; };
  const Outcome outcome =
      MeasureAll({Made({{std::nullopt, "no such peer"}}), std::move(skipped)}, Arguments());
  EXPECT_THAT(Line(outcome.rows[0]), HasSubstr("NOT MEASURED: no such peer"));
  EXPECT_THAT(Line(outcome.rows[1]), HasSubstr("NOT MEASURED: no such machine"));
  EXPECT_EQ(outcome.Verdict(), "nothing was measured");
}

TEST(ReportTest, MeasuresOnlyWhatIsNamed) {
  Measurement other = Made({{1.0, ""}});
  other.key = "other";
  const std::vector<Measurement> all = {Made({{1.0, ""}}), other};
  Arguments arguments;
  ASSERT_TRUE(ParseArguments({"--only=other", "--quick"}, all, {.quick = true}, arguments));
  EXPECT_TRUE(arguments.settings.quick);
  EXPECT_EQ(MeasureAll(all, arguments).rows.size(), 1u);
  EXPECT_FALSE(ParseArguments({"--only=nothing"}, all, {}, arguments));
  EXPECT_FALSE(ParseArguments({"--fast"}, all, {}, arguments));
}

TEST(ReportTest, AFigureWithoutAFloorIsOnlyTold) {
  const Row row = {.figure = {.name = "told"}, .ratios = {0.01}};
  EXPECT_FALSE(row.Below());
  EXPECT_THAT(Line(row), Not(HasSubstr("BELOW")));
}

}  // namespace
}  // namespace encoderd::report
