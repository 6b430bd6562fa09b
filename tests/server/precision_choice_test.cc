// Goal:   the precision that is served is the fastest within the bound, and a fleet can agree on it.
// Method: fake engines of chosen errors and speeds; the file as bytes and between two processes'
//         choices.
#include "server/precision_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/status/status_matchers.h"
#include "engine/accuracy.h"
#include "tests/engine/io/temp_folder.h"
#include "tests/server/fake_engine.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- Errors -------------------------------------------------------------------------------------

TEST(LargestErrorTest, IsThatOfTheWorstRow) {
  const std::vector<float> expected = {1, 0, /**/ 3, 4, /**/ 0, 2};
  EXPECT_EQ(LargestError(expected, expected, 2), 0);
  EXPECT_EQ(LargestError(expected, std::vector<float>{7, 0, 6, 8, 0, 1}, 2), 0) << "a scale";
  EXPECT_NEAR(LargestError(expected, std::vector<float>{1, 0, 4, 3, 0, 2}, 2), 1 - 24.0 / 25,
              1e-12);
  EXPECT_NEAR(LargestError(expected, std::vector<float>{1, 0, 3, 4, 0, -2}, 2), 2, 1e-12);
  EXPECT_EQ(LargestError(expected, std::vector<float>{1, 0, 3, 4, 0, 0}, 2), 1) << "zeros";
  EXPECT_EQ(LargestError(std::vector<float>{0, 0}, std::vector<float>{0, 0}, 2), 0);
  for (const float bad : {NAN, INFINITY}) {
    EXPECT_EQ(LargestError(expected, std::vector<float>{1, 0, 3, bad, 0, 2}, 2), 2);
  }
}

TEST(FixedSequencesTest, AreTheSameEveryTimeAndFitTheModel) {
  FakeEngine engine;
  const FixedSequences one(engine.spec(), 20), other(engine.spec(), 20);
  ASSERT_EQ(one.sequences().size(), other.sequences().size());
  for (size_t i = 0; i < one.sequences().size(); ++i) {
    EXPECT_LE(one.sequences()[i].tokens(), 20);
    EXPECT_TRUE(std::ranges::equal(one.sequences()[i].input_ids, other.sequences()[i].input_ids));
  }
  EXPECT_EQ(one.sequences().size(), 4) << "1, 2, 7 and 20 tokens";
  EXPECT_NE(one.sequences()[3].input_ids[0], one.sequences()[3].input_ids[1]);

  engine.mutable_spec().input = InputKind::kVectors;
  engine.mutable_spec().input_dim = 5;
  const FixedSequences vectors(engine.spec(), 20);
  EXPECT_THAT(std::vector<int64_t>(vectors.sequences()[2].inputs_embeds->shape.begin(),
                                   vectors.sequences()[2].inputs_embeds->shape.end()),
              ElementsAre(7, 5));
  const auto worker = engine.CreateWorker();
  for (const Sequence& sequence : vectors.sequences()) {
    EXPECT_THAT(LastHiddenState(engine.spec(), **worker, sequence), IsOk());
  }
}

// ---- The choice ---------------------------------------------------------------------------------

// What an engine of a precision is like; without one, it cannot be loaded.
struct Kind {
  float error = 0;
  absl::Duration per_token = absl::Microseconds(10);
  bool broken = false;
};

absl::StatusOr<PrecisionChoice> Choose(const std::map<Precision, Kind>& kinds,
                                       double error_max = 0.01) {
  return ChoosePrecision(error_max,
                         [&](Precision precision) -> absl::StatusOr<std::unique_ptr<Engine>> {
                           const auto kind = kinds.find(precision);
                           if (kind == kinds.end())
                             return absl::FailedPreconditionError("no such instructions");
                           auto engine = std::make_unique<FakeEngine>();
                           engine->mutable_info().precision = PrecisionName(precision);
                           engine->SetError(kind->second.error);
                           engine->SetWork(kind->second.per_token);
                           if (kind->second.broken) engine->SetBroken();
                           return engine;
                         });
}

constexpr auto kFast = absl::Microseconds(5), kFaster = absl::Microseconds(2);
constexpr float kSmallError = 1, kLargeError = 3000;

TEST(ChoosePrecisionTest, TakesTheFastestWithinTheBound) {
  const auto choice = Choose({{Precision::kFp32, {}},
                              {Precision::kBf16, {.error = kSmallError, .per_token = kFast}},
                              {Precision::kInt8, {.error = kSmallError, .per_token = kFaster}}});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->precision, Precision::kInt8);
  EXPECT_EQ(choice->weights_sha256, "fake-weights");
  EXPECT_EQ(choice->isa, "none");
  ASSERT_EQ(choice->trials.size(), 3);
  EXPECT_EQ(choice->trials[0].error, 0);
  EXPECT_GT(choice->trials[1].error, 0);
  EXPECT_LT(choice->trials[1].error, 0.01);
  EXPECT_NEAR(choice->trials[0].tokens_per_second, 100'000, 30'000);
  EXPECT_NEAR(choice->trials[2].tokens_per_second, 500'000, 150'000);
}

TEST(ChoosePrecisionTest, PassesOverTheFastestBeyondTheBound) {
  const auto choice = Choose({{Precision::kFp32, {}},
                              {Precision::kBf16, {.error = kSmallError, .per_token = kFast}},
                              {Precision::kInt8, {.error = kLargeError, .per_token = kFaster}}});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->precision, Precision::kBf16);
  EXPECT_GT(choice->trials[2].error, 0.01);
  EXPECT_GT(choice->trials[2].tokens_per_second, choice->trials[1].tokens_per_second);
}

TEST(ChoosePrecisionTest, StaysWithFp32WhereNothingIsWithinTheBound) {
  const auto choice = Choose({{Precision::kFp32, {}},
                              {Precision::kBf16, {.error = kSmallError, .per_token = kFast}},
                              {Precision::kInt8, {.error = kLargeError, .per_token = kFaster}}},
                             /*error_max=*/0);
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->precision, Precision::kFp32);
}

TEST(ChoosePrecisionTest, IsNotMovedByNoise) {
  const auto choice = Choose({{Precision::kFp32, {}}, {Precision::kBf16, {}}});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->precision, Precision::kFp32);
}

TEST(ChoosePrecisionTest, SaysWhyAPrecisionIsNoCandidate) {
  const auto choice =
      Choose({{Precision::kFp32, {}}, {Precision::kInt8, {.per_token = kFaster, .broken = true}}});
  ASSERT_THAT(choice, IsOk());
  EXPECT_EQ(choice->precision, Precision::kFp32);
  EXPECT_EQ(choice->trials[1].refused, "no such instructions");
  EXPECT_EQ(choice->trials[2].refused, "last_hidden_state has a NaN");
}

TEST(ChoosePrecisionTest, FailsAsFp32Does) {
  EXPECT_THAT(Choose({}), StatusIs(absl::StatusCode::kFailedPrecondition, "no such instructions"));
}

// ---- The file -----------------------------------------------------------------------------------

PrecisionChoice SomeChoice() {
  return {.precision = Precision::kBf16,
          .error_max = 0.01,
          .isa = "amx",
          .weights_sha256 = "ab",
          .trials = {{.tokens_per_second = 7000.5},
                     {.precision = Precision::kBf16, .error = 1e-5, .tokens_per_second = 9000},
                     {.precision = Precision::kInt8, .refused = "no \"such\" instructions"}}};
}

TEST(PrecisionFileTest, GivesWhatWasWrittenAndIsNotWrittenTwice) {
  const TempFolder folder;
  const std::string path = folder.path() + "/choice.json";
  EXPECT_THAT(ReadPrecisionFile(path), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_THAT(WritePrecisionFile(path, SomeChoice()), IsOk());
  const auto read = ReadPrecisionFile(path);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->precision, Precision::kBf16);
  EXPECT_EQ(read->error_max, 0.01);
  EXPECT_EQ(read->isa, "amx");
  EXPECT_EQ(read->weights_sha256, "ab");
  ASSERT_EQ(read->trials.size(), 3);
  EXPECT_EQ(read->trials[0].tokens_per_second, 7000.5);
  EXPECT_EQ(read->trials[1].error, 1e-5);
  EXPECT_EQ(read->trials[2].refused, "no \"such\" instructions");

  PrecisionChoice other = SomeChoice();
  other.precision = Precision::kInt8;
  EXPECT_THAT(WritePrecisionFile(path, other), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(ReadPrecisionFile(path)->precision, Precision::kBf16);
  const std::filesystem::directory_iterator files(folder.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1) << "a draft was left behind";
}

TEST(PrecisionFileTest, SaysWhereItCannotBeWritten) {
  EXPECT_THAT(WritePrecisionFile("/no/such/folder/choice.json", SomeChoice()),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("/no/such/folder/choice.json: cannot be written: No such file")));
}

TEST(PrecisionFileTest, RefusesWhatItWouldNotHaveWritten) {
  const TempFolder folder;
  const std::string path = folder.path() + "/choice.json";
  ASSERT_THAT(WritePrecisionFile(path, SomeChoice()), IsOk());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::vector<std::tuple<std::string, std::string, std::string>> faults = {
      {"encoderd_precision_1", "other", "format: expected encoderd_precision_1, got \"other\""},
      {"\"bf16\"", "\"fp16\"", "precision: expected fp32, bf16 or int8, got \"fp16\""},
      {"\"ab\"", "5", "weights_sha256: expected a text, got 5"},
      {"\"error_max\": 0.01", "\"error_max\": -1", "error_max: expected a number of at least 0"},
      {"\"isa\"", "\"ISA\"", "isa: expected a text, got none"},
      {"\"error\": 0.0", "\"error\": \"0\"", "trials[0].error: expected a number"},
      {"\"refused\"", "\"refuse\"", "trials[2].error: expected a number"},
      {"\"error_max\"", "\"more\": 1, \"error_max\"", "more: no such member"},
      {"{", "", "choice.json"}};
  for (const auto& [from, to, fault] : faults) {
    std::string changed = text.str();
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), from.size(), to);
    std::ofstream(path) << changed;
    EXPECT_THAT(
        ReadPrecisionFile(path).status(),
        StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr(path), HasSubstr(fault))));
  }
}

}  // namespace
}  // namespace encoderd
