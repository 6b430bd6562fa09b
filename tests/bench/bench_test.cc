// Goal:   what is compared is what it says: lengths, padding, accuracy and operations; and a contender
//         answers as the protocol says.
// Method: pure functions against numbers worked out by hand; this engine as a contender, on a tiny
//         random model, against the same engine in this process; contenders that are shell commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/bench/contender.h"
#include "tests/bench/engine_runner.h"
#include "tests/bench/field.h"
#include "tests/bench/measurements.h"
#include "tests/bench/models.h"
#include "tests/bench/work.h"
#include "tests/engine/ask.h"
#include "tests/engine/random_model.h"

namespace encoderd::bench {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr BertShape kTiny = {2, 32, 2, 64, 30522, 512};

std::vector<std::string> EngineCommand(const std::string& model, const std::string& threads) {
  return {ENCODERD_ENGINE_CONTENDER, "--model=" + model, "--precision=fp32",
          "--threads=" + threads};
}

std::vector<std::string> Shell(const std::string& script) { return {"/bin/sh", "-c", script}; }

TEST(WorkTest, SpreadsLengthsOverTheMix) {
  const std::vector<int32_t> text = ReadTextIds();
  EXPECT_THAT(static_cast<double>(MakeWork(text, "squad", 64).Tokens()) / 64, DoubleNear(177, 1));
  EXPECT_THAT(static_cast<double>(MakeWork(text, "short", 64).Tokens()) / 64, DoubleNear(16, 0.5));
  EXPECT_EQ(MakeWork(text, "bimodal", 16).Tokens(), 8 * 8 + 8 * 512);
  EXPECT_EQ(MakeWork(text, "squad", 16).sequences, MakeWork(text, "squad", 16).sequences);
}

TEST(WorkTest, SequencesBeginAndEndWithTheirMarks) {
  for (const std::vector<int32_t>& ids : MakeWork(ReadTextIds(), "uniform:2-100", 20).sequences) {
    EXPECT_EQ(ids.front(), 101);
    EXPECT_EQ(ids.back(), 102);
    EXPECT_LT(std::ranges::max(ids), 30522);
  }
}

TEST(AccuracyTest, IsTheCosineOfEachRow) {
  const std::vector<float> expected = {1, 0, 0, 2}, got = {3, 3, 0, 1};
  const Accuracy accuracy = CompareRows(got, expected, 2);
  EXPECT_THAT(accuracy.least, DoubleNear(std::sqrt(0.5), 1e-9));
  EXPECT_THAT(accuracy.mean, DoubleNear((std::sqrt(0.5) + 1) / 2, 1e-9));
}

TEST(AccuracyTest, NothingComputedIsNotNear) {
  const std::vector<float> expected = {1, 0}, zeros = {0, 0};
  EXPECT_LT(CompareRows(zeros, expected, 2).least, LeastCosine(Precision::kInt8));
}

TEST(OperationsTest, AreThoseOfTheMatrixProducts) {
  EXPECT_THAT(Operations(kMiniLmL6, 128) / 1e9, DoubleNear(2.87, 0.01));
  EXPECT_THAT(Operations(kBertBase, 128) / 1e9, DoubleNear(22.4, 0.1));
}

TEST(EngineContenderTest, EncodesAsTheEngineDoes) {
  const TempFolder model;
  WriteRandomBert(kTiny, model);
  const auto contender = Contender::Start(EngineCommand(model.path(), "2"), model.Path("log"));
  ASSERT_TRUE(contender.ok()) << contender.status();
  const auto sequences = CheckSequences(ReadTextIds());
  const auto hidden = (*contender)->Encode(sequences);
  ASSERT_TRUE(hidden.ok()) << hidden.status();
  EXPECT_EQ(*hidden, EngineRunner(LoadEngine(model.path()), 1).Encode(sequences));
  EXPECT_THAT((*contender)->ways(), ElementsAre("apart"));
}

TEST(EngineContenderTest, TimesWhatItHasLearnt) {
  const TempFolder model;
  WriteRandomBert(kTiny, model);
  const auto contender = Contender::Start(EngineCommand(model.path(), "2"), model.Path("log"));
  ASSERT_TRUE(contender.ok()) << contender.status();
  ASSERT_TRUE((*contender)->Learn(MakeWork(ReadTextIds(), "squad", 16)).ok());
  for (const char* const batching : {"packed:512", "padded:384", "maps:512"}) {
    for (const char* const way : {"apart", "one"}) {
      const auto rate = (*contender)->Time("squad", {way, batching}, 0.01);
      ASSERT_TRUE(rate.ok()) << rate.status();
      EXPECT_GT(*rate, 0) << way << " " << batching;
    }
  }
}

TEST(ContenderTest, TellsWhyItCannot) {
  const TempFolder folder;
  const auto start = [&](const std::string& script) {
    const auto contender = Contender::Start(Shell(script), folder.Path("log"));
    return std::string(contender.status().message());
  };
  EXPECT_EQ(start("echo '{\"error\": \"no such precision\"}'"), "no such precision");
  EXPECT_THAT(start("exit 1"), HasSubstr("ended"));
  EXPECT_THAT(start("echo hello"), HasSubstr("JSON"));
  EXPECT_THAT(
      std::string(Contender::Start({"/no/such/program"}, folder.Path("log")).status().message()),
      HasSubstr("/no/such/program"));
}

TEST(ContenderTest, AnErrorIsNotItsEnd) {
  const TempFolder folder;
  const auto contender = Contender::Start(
      Shell("echo '{\"version\": \"1\", \"ways\": []}'; read x; echo '{\"error\": \"busy\"}';"
            "read x; echo '{\"rate\": 7}'; read x"),
      folder.Path("log"));
  ASSERT_TRUE(contender.ok()) << contender.status();
  EXPECT_THAT(std::string((*contender)->Time("w", {}, 1).status().message()), HasSubstr("busy"));
  EXPECT_EQ((*contender)->Time("w", {}, 1).value_or(0), 7);
}

TEST(ContenderTest, ItsEndIsAnError) {
  const TempFolder folder;
  const auto contender =
      Contender::Start(Shell("echo '{\"version\": \"1\", \"ways\": []}'"), folder.Path("log"));
  ASSERT_TRUE(contender.ok()) << contender.status();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE((*contender)->Time("w", {}, 1).ok());
}

TEST(RatioOfTest, TellsWhichSideIsMissing) {
  EXPECT_EQ(RatioOf(3.0, 2.0, "x").ratio, 1.5);
  const Found found = RatioOf(absl::UnavailableError("gone"), 2.0, "x");
  EXPECT_FALSE(found.ratio.has_value());
  EXPECT_EQ(found.detail, "gone");
}

}  // namespace
}  // namespace encoderd::bench
