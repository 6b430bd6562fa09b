// Goal:   each token is given the row of the position table that its family's reference gives it,
//         and, where mask tokens are dropped, the scale.
// Method: models whose tables carry what was used in channel 0 and are zero elsewhere, without the
//         embedding norm: hidden state 0 says what was used.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "engine/model/families.h"
#include "engine/model/spec_json.h"
#include "tests/engine/ask.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::FloatEq;
using ::testing::HasSubstr;

using Ids = std::vector<int32_t>;

// The family of `config`, with a table of `positions` rows that can be read off.
class RowReader {
 public:
  RowReader(nlohmann::json config, int64_t positions) {
    config["max_position_embeddings"] = positions;
    EncoderSpec spec = SpecFromConfig(config).value();
    spec.embedding_norm = {};
    std::vector<TestTensor> tensors;
    for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
      int64_t elements = 1;
      for (const int64_t axis : tensor.shape) elements *= axis;
      std::vector<float> values(static_cast<size_t>(elements), 0.0f);
      if (tensor.name == spec.position_embedding.weight) {
        for (int64_t row = 0; row < positions; ++row) {
          values[static_cast<size_t>(row * spec.table_width())] = static_cast<float>(row);
        }
      }
      tensors.push_back(FloatTensor(tensor.name, tensor.shape, values));
    }
    folder_.Write("config.json", SpecToJson(spec).dump());
    folder_.Write("model.safetensors", Safetensors(tensors));
    engine_ = LoadEngine(folder_.path());
    worker_ = NewWorker(*engine_);
  }

  // Of all tokens of the request, one sequence behind the other.
  std::vector<int64_t> RowsOf(std::vector<Sequence> sequences) const {
    OutputSpec outputs;
    outputs.hidden_states = {0};
    const Answer answer =
        Ask(*engine_, *worker_, {.sequences = std::move(sequences), .outputs = outputs});
    const std::span<const float> values = Floats(answer.hidden_states[0]);
    std::vector<int64_t> rows;
    for (size_t at = 0; at < values.size(); at += static_cast<size_t>(spec().hidden_size)) {
      rows.push_back(static_cast<int64_t>(values[at]));
    }
    return rows;
  }
  std::vector<int64_t> RowsOf(const Ids& ids) const {
    return RowsOf(std::vector<Sequence>{{.input_ids = ids}});
  }

  // The first violation of a request with one sequence; empty: none.
  std::string FaultOf(const Sequence& sequence) const {
    Request request = {.sequences = {sequence}};
    request.outputs.last_hidden_state = true;
    const auto checked = Validate(spec(), {}, request);
    const auto* violations = std::get_if<Violations>(&checked);
    return violations == nullptr ? "" : violations->listed[0].description;
  }

  const EncoderSpec& spec() const { return engine_->spec(); }

 private:
  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Worker> worker_;
};

TEST(PositionRowsTest, OfRobertaStartBehindThePaddingInEverySequence) {
  const RowReader roberta(TinyRoberta(), 12);
  EXPECT_THAT(roberta.RowsOf({0, 9, 2}), ElementsAre(2, 3, 4));
  const Ids a = {0, 9, 2}, b = {0, 9, 8, 2};
  EXPECT_THAT(roberta.RowsOf({{.input_ids = a}, {.input_ids = b}, {.input_ids = a}}),
              ElementsAre(2, 3, 4, 2, 3, 4, 5, 2, 3, 4));
}

TEST(PositionRowsTest, OfRobertaSkipPaddingWhereverItStands) {
  const RowReader roberta(TinyRoberta(), 12);
  EXPECT_THAT(roberta.RowsOf({0, 9, 1, 8, 2}), ElementsAre(2, 3, 1, 4, 5));
  const Ids left = {1, 1, 0, 9, 2};
  const std::vector<uint8_t> keys = {0, 0, 1, 1, 1};
  EXPECT_THAT(roberta.RowsOf({{.input_ids = left, .mask = {.keys = keys}}}),
              ElementsAre(1, 1, 2, 3, 4));
}

TEST(PositionRowsTest, OfInputVectorsAreCountedWithoutPadding) {
  const RowReader roberta(TinyRoberta(), 12);
  const std::vector<float> zeros(static_cast<size_t>(3 * roberta.spec().hidden_size), 0.0f);
  const std::vector<int64_t> shape = {3, roberta.spec().hidden_size};
  const InputTensor vectors = {.shape = shape, .data = std::as_bytes(std::span(zeros))};
  EXPECT_THAT(roberta.RowsOf({{.inputs_embeds = vectors}}), ElementsAre(2, 3, 4));
}

TEST(PositionRowsTest, AreThoseThatTheCallerSends) {
  const RowReader roberta(TinyRoberta(), 12);
  const Ids ids = {0, 1, 2}, sent = {11, 0, 5}, beyond = {0, 12, 0};
  EXPECT_THAT(roberta.RowsOf({{.input_ids = ids, .position_ids = sent}}), ElementsAre(11, 0, 5));
  EXPECT_THAT(roberta.FaultOf({.input_ids = ids, .position_ids = beyond}),
              HasSubstr("position 12 is not in the range 0 to 11"));
}

TEST(PositionRowsTest, SufficeForTheLongestSequence) {
  const RowReader roberta(TinyRoberta(), 12);
  const Ids longest(10, 3), too_long(11, 3);
  EXPECT_THAT(roberta.RowsOf(longest), ElementsAre(2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(roberta.FaultOf({.input_ids = too_long}),
              HasSubstr("11 tokens; expected at most 10"));
}

// A sequence of this length is cut into pieces, each of which has to count what lies before it.
TEST(PositionRowsTest, GoOnFromPieceToPieceOfALongSequence) {
  const RowReader roberta(TinyRoberta(), 1000);
  Ids ids(700, 3);
  for (size_t at = 0; at < ids.size(); at += 7) ids[at] = 1;
  std::vector<int64_t> expected;
  int64_t last = 1;
  for (const int32_t id : ids) expected.push_back(id == 1 ? 1 : ++last);
  EXPECT_THAT(roberta.RowsOf(ids), ElementsAreArray(expected));
}

// Input vectors replace the words, so they are as wide as these.
TEST(InputVectorsTest, HaveTheWidthOfTheWordTable) {
  const RowReader electra(TinyElectra(), 12);
  const std::vector<float> zeros(12, 0.0f);
  const std::vector<int64_t> narrow = {3, 4}, wide = {2, 6};
  const auto vectors = [&](const std::vector<int64_t>& shape) {
    return InputTensor{.shape = shape, .data = std::as_bytes(std::span(zeros))};
  };
  EXPECT_EQ(electra.FaultOf({.inputs_embeds = vectors(narrow)}), "");
  EXPECT_THAT(electra.FaultOf({.inputs_embeds = vectors(wide)}),
              HasSubstr("expected [S, 4], got [2, 6]"));
}

// BERT's positions are the columns of what was sent, padding on the left included.
TEST(PositionRowsTest, OfBertAreColumns) {
  const RowReader bert(TinyBert(), 12);
  const Ids left = {0, 0, 5, 6, 7};
  const std::vector<uint8_t> keys = {0, 0, 1, 1, 1};
  EXPECT_THAT(bert.RowsOf({{.input_ids = left, .mask = {.keys = keys}}}),
              ElementsAre(0, 1, 2, 3, 4));
}

// A model whose words are 1, and whose word 4 is dropped.
class DroppingModel {
 public:
  DroppingModel() {
    EncoderSpec spec = SpecFromConfig(TinyTokenEncoder()).value();
    spec.token_dropout = true;
    spec.mask_token_id = 4;
    std::vector<TestTensor> tensors;
    for (const ExpectedTensor& tensor : ExpectedTensors(spec)) {
      int64_t elements = 1;
      for (const int64_t axis : tensor.shape) elements *= axis;
      tensors.push_back(FloatTensor(tensor.name, tensor.shape,
                                    std::vector<float>(static_cast<size_t>(elements), 1.0f)));
    }
    folder_.Write("config.json", SpecToJson(spec).dump());
    folder_.Write("model.safetensors", Safetensors(tensors));
    engine_ = LoadEngine(folder_.path());
    worker_ = NewWorker(*engine_);
  }

  // What each token's word was multiplied with.
  std::vector<float> ScalesOf(const Sequence& sequence) const {
    OutputSpec outputs;
    outputs.hidden_states = {0};
    const Answer answer = Ask(*engine_, *worker_, {.sequences = {sequence}, .outputs = outputs});
    const std::span<const float> values = Floats(answer.hidden_states[0]);
    std::vector<float> scales;
    const auto width = static_cast<size_t>(engine_->spec().hidden_size);
    for (size_t at = 0; at < values.size(); at += width) scales.push_back(values[at]);
    return scales;
  }
  int64_t width() const { return engine_->spec().hidden_size; }

 private:
  TempFolder folder_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Worker> worker_;
};

TEST(TokenDropoutTest, ScalesTokensByTheShareOfMaskTokens) {
  const DroppingModel model;
  const Ids none = {1, 2, 3}, one = {1, 4, 3, 2};
  EXPECT_THAT(model.ScalesOf({.input_ids = none}), ElementsAre(0.88f, 0.88f, 0.88f));
  const auto scale = FloatEq(0.88f / 0.75f);
  EXPECT_THAT(model.ScalesOf({.input_ids = one}), ElementsAre(scale, 0, scale, scale));
}

TEST(TokenDropoutTest, LeavesHiddenTokensOutOfTheShareAndScalesThemLikeOthers) {
  const DroppingModel model;
  const Ids ids = {1, 4, 0, 4, 0, 0};
  const std::vector<uint8_t> keys = {1, 1, 0, 0, 0, 0};
  const auto scale = FloatEq(0.88f / 0.5f);
  EXPECT_THAT(model.ScalesOf({.input_ids = ids, .mask = {.keys = keys}}),
              ElementsAre(scale, 0, scale, 0, scale, scale));
}

TEST(TokenDropoutTest, OfMaskTokensAloneIsFinite) {
  const DroppingModel model;
  const Ids ids = {4, 4, 1};
  const std::vector<uint8_t> keys = {1, 1, 0};
  EXPECT_THAT(model.ScalesOf({.input_ids = ids, .mask = {.keys = keys}}), ElementsAre(0, 0, 0.88f));
}

TEST(TokenDropoutTest, LeavesVectorsAlone) {
  const DroppingModel model;
  const std::vector<float> ones(static_cast<size_t>(2 * model.width()), 1.0f);
  const std::vector<int64_t> shape = {2, model.width()};
  EXPECT_THAT(
      model.ScalesOf(
          {.inputs_embeds = InputTensor{.shape = shape, .data = std::as_bytes(std::span(ones))}}),
      ElementsAre(1, 1));
}

}  // namespace
}  // namespace encoderd
