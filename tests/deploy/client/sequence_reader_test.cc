// Goal: what a user types becomes exactly the sequence meant, or an error that names the place.
// Method: texts in every form, compared with the message field by field.
#include "deploy/client/sequence_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/status/status_matchers.h"

namespace encoderd::client {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<float> Floats(const v1::Tensor& tensor) {
  std::vector<float> values(tensor.data().size() / sizeof(float));
  std::memcpy(values.data(), tensor.data().data(), tensor.data().size());
  return values;
}

TEST(ParseSequenceTest, ReadsIdsInEverySpelling) {
  for (const char* text : {"101 7592 -1", "101,7592,-1", " 101, 7592,\t-1 ", "[101, 7592, -1]",
                           R"({"input_ids": [101, 7592, -1]})"}) {
    const absl::StatusOr<v1::Sequence> sequence = ParseSequence(text);
    ASSERT_THAT(sequence, IsOk()) << text;
    EXPECT_THAT(sequence->input_ids(), ElementsAre(101, 7592, -1)) << text;
    EXPECT_FALSE(sequence->has_mask());
  }
}

TEST(ParseSequenceTest, ReadsEveryFieldOfTheContract) {
  const absl::StatusOr<v1::Sequence> sequence = ParseSequence(
      R"({"input_ids": [5, 6], "token_type_ids": [0, 1], "position_ids": [3, 4],
          "mask": {"keys": [1, 0], "pairs": [[1, 0], [0, 1]], "causal": true,
                   "head_pairs": [[[1, 1], [0, 1]]], "segment_ids": [7, 8]},
          "spans": [[0, 1], [0, 2]]})");
  ASSERT_THAT(sequence, IsOk());
  EXPECT_THAT(sequence->token_type_ids(), ElementsAre(0, 1));
  EXPECT_THAT(sequence->position_ids(), ElementsAre(3, 4));
  EXPECT_EQ(sequence->mask().keys(), std::string("\1\0", 2));
  EXPECT_EQ(sequence->mask().pairs(), std::string("\1\0\0\1", 4));
  EXPECT_EQ(sequence->mask().head_pairs(), std::string("\1\1\0\1", 4));
  EXPECT_THAT(sequence->mask().segment_ids(), ElementsAre(7, 8));
  EXPECT_TRUE(sequence->mask().causal());
  ASSERT_EQ(sequence->spans_size(), 2);
  EXPECT_EQ(sequence->spans(1).begin(), 0u);
  EXPECT_EQ(sequence->spans(1).end(), 2u);
}

TEST(ParseSequenceTest, ReadsVectorsRowByRow) {
  const absl::StatusOr<v1::Sequence> sequence =
      ParseSequence(R"({"inputs_embeds": [[0.5, -2], [1e-3, 4], [5, 6]]})");
  ASSERT_THAT(sequence, IsOk());
  EXPECT_EQ(sequence->inputs_embeds().dtype(), v1::DATA_TYPE_FP32);
  EXPECT_THAT(sequence->inputs_embeds().shape(), ElementsAre(3, 2));
  EXPECT_THAT(Floats(sequence->inputs_embeds()), ElementsAre(0.5f, -2, 1e-3f, 4, 5, 6));
}

TEST(ParseSequenceTest, KeepsAMaskPartThatIsEmpty) {
  const absl::StatusOr<v1::Sequence> sequence =
      ParseSequence(R"({"input_ids": [1], "mask": {"keys": []}})");
  ASSERT_THAT(sequence, IsOk());
  EXPECT_TRUE(sequence->mask().has_keys());
  EXPECT_FALSE(sequence->mask().has_pairs());
}

TEST(ParseSequenceTest, NamesThePlaceOfAFault) {
  const std::pair<const char*, const char*> faults[] = {
      {"101 x", "got x"},
      {"101 2147483648", "got 2147483648"},
      {"[1, 2", "expected JSON"},
      {"[1, 2.5]", "input_ids[1]: expected an integer of 32 bits, got 2.5"},
      {"[1, 2147483648]", "input_ids[1]"},
      {"[1, \"2\"]", "input_ids[1]"},
      {R"({"ids": [1]})", "got ids"},
      {R"({"input_ids": 1})", "input_ids: expected an array"},
      {R"({"inputs_embeds": [[1, 2], [3]]})", "inputs_embeds[1]: expected rows of equal length 2"},
      {R"({"inputs_embeds": [[1, null]]})", "inputs_embeds[0][1]: expected a number, got null"},
      {R"({"inputs_embeds": [1, 2]})", "inputs_embeds[0]: expected an array"},
      {R"({"mask": [1]})", "mask: expected an object"},
      {R"({"mask": {"key": [1]}})", "mask.key"},
      {R"({"mask": {"keys": [2]}})", "mask.keys: expected 0 and 1, got 2"},
      {R"({"mask": {"pairs": [[1, 0]]}})", "mask.pairs: expected [S, S], got [1, 2]"},
      {R"({"mask": {"causal": 1}})", "mask.causal"},
      {R"({"spans": [[0, 1, 2]]})", "spans[0]"},
      {R"({"spans": [[-1, 1]]})", "spans[0][0]"},
  };
  for (const auto& [text, message] : faults) {
    EXPECT_THAT(ParseSequence(text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(message)))
        << text;
  }
}

TEST(ReadSequencesTest, PrefersArgumentsToStandardInput) {
  std::istringstream input("9 9 9\n");
  const auto sequences =
      ReadSequences(std::vector<std::string>{"1,2", R"({"input_ids": [3]})"}, "", input);
  ASSERT_THAT(sequences, IsOk());
  ASSERT_EQ(sequences->size(), 2u);
  EXPECT_THAT((*sequences)[0].input_ids(), ElementsAre(1, 2));
  EXPECT_THAT((*sequences)[1].input_ids(), ElementsAre(3));
}

TEST(ReadSequencesTest, SkipsCommentsAndEmptyLinesOfStandardInputAndFiles) {
  const std::string text = "# ids\n\n1 2\n  \n[3]\n";
  const std::string path = testing::TempDir() + "/sequences.txt";
  std::ofstream(path) << text;
  for (const std::string& file : {std::string(), std::string("-"), path}) {
    std::istringstream input(text);
    const auto sequences = ReadSequences({}, file, input);
    ASSERT_THAT(sequences, IsOk()) << file;
    ASSERT_EQ(sequences->size(), 2u);
    EXPECT_THAT((*sequences)[1].input_ids(), ElementsAre(3));
  }
}

TEST(ReadSequencesTest, NamesLineOrArgumentOfAFault) {
  std::istringstream input("1 2\nx\n");
  EXPECT_THAT(ReadSequences({}, "", input),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("standard input line 2")));
  std::istringstream nothing("# only a comment\n");
  EXPECT_THAT(ReadSequences({}, "", nothing),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at least one sequence")));
  EXPECT_THAT(ReadSequences(std::vector<std::string>{"1", "x"}, "", nothing),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("sequence 1")));
  EXPECT_THAT(ReadSequences(std::vector<std::string>{"1"}, "ids.txt", nothing),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("got both")));
  EXPECT_THAT(
      ReadSequences({}, "/no/such/file", nothing),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("/no/such/file: cannot be read")));
}

TEST(MakeOneHotTest, PutsAOneAtEveryId) {
  v1::Sequence sequence = *ParseSequence("2 0");
  ASSERT_THAT(MakeOneHot(3, sequence), IsOk());
  EXPECT_THAT(sequence.input_ids(), IsEmpty());
  EXPECT_THAT(sequence.inputs_embeds().shape(), ElementsAre(2, 3));
  EXPECT_THAT(Floats(sequence.inputs_embeds()), ElementsAre(0, 0, 1, 1, 0, 0));
}

TEST(MakeOneHotTest, RefusesIdsOutsideTheVector) {
  for (const char* text : {"1 3", "1 -1"}) {
    v1::Sequence sequence = *ParseSequence(text);
    EXPECT_THAT(MakeOneHot(3, sequence),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("input_ids[1]")));
  }
  v1::Sequence vectors = *ParseSequence(R"({"inputs_embeds": [[1]]})");
  EXPECT_THAT(MakeOneHot(3, vectors), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace encoderd::client
