// Goal: every distribution has the mean and the maximum it claims; whatever else is written is
// refused with the place and the reason.
// Method: exact means, samples of a fixed seed, files with the worst of lines.
#include "deploy/client/load/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "absl/status/status_matchers.h"
#include "absl/strings/str_cat.h"
#include "deploy/client/load/arrivals.h"
#include "tests/engine/io/temp_folder.h"

namespace encoderd::client {
namespace {

using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

double SampleMean(const LengthDistribution& lengths) {
  constexpr int kSamples = 100000;
  std::mt19937_64 random(1);
  double sum = 0;
  for (int i = 0; i < kSamples; ++i) {
    const int64_t length = lengths.At(UnitRandom(random));
    EXPECT_GE(length, 1);
    EXPECT_LE(length, lengths.max());
    sum += static_cast<double>(length);
  }
  return sum / kSamples;
}

TEST(LengthDistributionTest, HasTheMeanAndMaximumItClaims) {
  struct Case {
    const char* text;
    double mean;
    double mean_tolerance;
    int64_t max;
  };
  for (const Case& expected :
       {Case{"fixed:128", 128, 0, 128}, Case{"uniform:1-128", 64.5, 0, 128},
        Case{"squad", 177, 0.1, 384}, Case{"short", 16, 0.1, 64}, Case{"bimodal", 260, 0, 512}}) {
    const auto lengths = LengthDistribution::Parse(expected.text);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    EXPECT_EQ(lengths->name(), expected.text);
    EXPECT_EQ(lengths->max(), expected.max) << expected.text;
    EXPECT_NEAR(lengths->mean(), expected.mean, expected.mean_tolerance) << expected.text;
    EXPECT_NEAR(SampleMean(*lengths), lengths->mean(), 0.015 * lengths->mean()) << expected.text;
  }
}

TEST(LengthDistributionTest, DrawsEveryLengthOfARange) {
  const LengthDistribution lengths = *LengthDistribution::Parse("uniform:3-5");
  EXPECT_EQ(lengths.At(0), 3);
  EXPECT_EQ(lengths.At(0.34), 4);
  EXPECT_EQ(lengths.At(0.999999), 5);
  const LengthDistribution bimodal = *LengthDistribution::Parse("bimodal");
  EXPECT_EQ(bimodal.At(0.49), 8);
  EXPECT_EQ(bimodal.At(0.5), 512);
}

TEST(LengthDistributionTest, TakesLengthsAtTheLimit) {
  EXPECT_EQ(LengthDistribution::Parse("fixed:1")->max(), 1);
  EXPECT_EQ(LengthDistribution::Parse(absl::StrCat("fixed:", kMaxLength))->max(), kMaxLength);
  EXPECT_EQ(LengthDistribution::Parse("uniform:4-4")->max(), 4);
}

TEST(LengthDistributionTest, RefusesWhatItDoesNotKnow) {
  for (const std::string text :
       {"", "normal", "fixed:", "fixed:0", "fixed:-1", "fixed:1.5", "fixed:128x", "uniform:5",
        "uniform:5-", "uniform:5-4", "uniform:0-4", "squad:1", "file:", "file:/no/such/file",
        "file:/tmp", "fixed:99999999999999999999"}) {
    EXPECT_THAT(LengthDistribution::Parse(text),
                StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("\n"))))
        << text;
  }
  EXPECT_THAT(LengthDistribution::Parse(absl::StrCat("fixed:", kMaxLength + 1)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("1 to 1048576"), HasSubstr("1048577"))));
}

// ---- file:PATH --------------------------------------------------------------------------------

std::string FileWith(const std::string& text) {
  static const TempFolder folder;
  return absl::StrCat("file:", folder.Write("lengths.txt", text));
}

TEST(LengthFileTest, DrawsEveryLineEquallyOften) {
  // Blank lines, spaces and the line ends of other systems are not lengths.
  const auto lengths = LengthDistribution::Parse(FileWith("30\n 10 \r\n\n10\n40"));
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  EXPECT_EQ(lengths->max(), 40);
  EXPECT_EQ(lengths->mean(), 22.5);
  EXPECT_EQ(lengths->At(0.49), 10);
  EXPECT_EQ(lengths->At(0.5), 30);
}

TEST(LengthFileTest, NamesTheLineThatIsNotALength) {
  for (const std::string line :
       {"x", "0", "-3", "12 13", "1e3", "99999999999999999999", "\x1b[2J", "\xff\xfe"}) {
    EXPECT_THAT(LengthDistribution::Parse(FileWith(absl::StrCat("1\n2\n", line, "\n4\n"))),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr("lengths.txt:3: expected a length of 1 to 1048576"),
                               HasSubstr("got \""), Not(HasSubstr("\x1b")))))
        << line;
  }
  EXPECT_THAT(LengthDistribution::Parse(FileWith(std::string(100000, '7'))),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       testing::ResultOf([](auto& text) { return text.size() < 300; }, true)));
  EXPECT_THAT(LengthDistribution::Parse(FileWith(std::string("1\n\0\n", 4))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(":2: ")));
}

TEST(LengthFileTest, RefusesFilesOfNoUse) {
  for (const std::string text : {"", "\n\n  \n"}) {
    EXPECT_THAT(LengthDistribution::Parse(FileWith(text)),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got none")));
  }
}

TEST(LengthFileTest, StopsAtTheMostLines) {
  std::string text;
  for (int64_t i = 0; i < kMaxLengthsInFile; ++i) text += "7\n";
  EXPECT_TRUE(LengthDistribution::Parse(FileWith(text)).ok());
  EXPECT_THAT(LengthDistribution::Parse(FileWith(text + "7\n")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(":1048577: expected at most 1048576 lengths")));
  EXPECT_THAT(LengthDistribution::Parse(FileWith(std::string(9 << 20, '\n'))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lengths.txt")));
}

}  // namespace
}  // namespace encoderd::client
