// Goal:   a folder's class decides which head it has, with the class' own tensors and labels; a
//         matrix that is saved once serves its two uses; what a class promises must be there.
// Method: the configurations of tiny models with classes and labels, and files with and without the
//         tensors of the heads.
#include "engine/model/heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/string_view.h"
#include "engine/model/checkpoint.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;
using ::testing::Not;

json OfClass(json config, const char* class_name, const json& changes = json::object()) {
  config["architectures"] = {class_name};
  config.update(changes);
  return config;
}

EncoderSpec SpecOf(const json& config) {
  auto spec = SpecFromConfig(config);
  EXPECT_THAT(spec.status(), IsOk());
  return spec.ok() ? *spec : EncoderSpec{};
}

void ExpectRefused(const json& config, const Matcher<absl::string_view>& message) {
  EXPECT_THAT(SpecFromConfig(config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, message));
}

std::vector<std::string> WeightsOf(const std::vector<Step>& steps) {
  std::vector<std::string> names;
  for (const Step& step : steps) names.push_back(step.names.weight);
  return names;
}

// ---- Classes ------------------------------------------------------------------------------------

TEST(HeadsTest, GivesMaskedWordsLogitsOverTheVocabulary) {
  for (const char* class_name : {"BertForMaskedLM", "BertForPreTraining"}) {
    const EncoderSpec spec = SpecOf(OfClass(TinyBert(), class_name, {{"hidden_act", "relu"}}));
    EXPECT_THAT(WeightsOf(spec.logits), ElementsAre("cls.predictions.transform.dense.weight",
                                                    "cls.predictions.transform.LayerNorm.weight",
                                                    "cls.predictions.decoder.weight"));
    EXPECT_EQ(spec.logits[0].activation, Activation::kRelu);
    EXPECT_EQ(spec.logits_width(), 11);
    EXPECT_THAT(spec.labels, IsEmpty());
    EXPECT_EQ(spec.query.bias, "bert.encoder.layer.{layer}.attention.self.query.bias");
    EXPECT_EQ(spec.pooler[0].names.weight, "bert.pooler.dense.weight");
  }
  const EncoderSpec roberta =
      SpecOf(OfClass(TinyRoberta(), "RobertaForMaskedLM", {{"hidden_act", "relu"}}));
  EXPECT_THAT(
      WeightsOf(roberta.logits),
      ElementsAre("lm_head.dense.weight", "lm_head.layer_norm.weight", "lm_head.decoder.weight"));
  EXPECT_EQ(roberta.logits[0].activation, Activation::kGelu) << "whatever the blocks use";
}

TEST(HeadsTest, GivesLabelsToTokensOrToSequences) {
  const json labels = {{"id2label", {{"0", "no"}, {"1", "yes"}, {"2", "perhaps"}}}};
  const EncoderSpec tokens = SpecOf(OfClass(TinyBert(), "BertForTokenClassification", labels));
  EXPECT_THAT(WeightsOf(tokens.logits), ElementsAre("classifier.weight"));
  EXPECT_THAT(tokens.classifier, IsEmpty());
  EXPECT_THAT(tokens.labels, ElementsAre("no", "yes", "perhaps"));

  const EncoderSpec bert = SpecOf(OfClass(TinyBert(), "BertForSequenceClassification", labels));
  EXPECT_THAT(bert.logits, IsEmpty());
  EXPECT_THAT(WeightsOf(bert.classifier),
              ElementsAre("bert.pooler.dense.weight", "classifier.weight"));
  EXPECT_EQ(bert.classifier_pooling, Pooling::kCls);
  EXPECT_EQ(bert.logits_width(), 3);

  const EncoderSpec roberta =
      SpecOf(OfClass(TinyRoberta(), "RobertaForSequenceClassification", labels));
  EXPECT_THAT(WeightsOf(roberta.classifier),
              ElementsAre("classifier.dense.weight", "classifier.out_proj.weight"));
}

// DeBERTa has two heads for words under one class, and one pooler with an activation of its own.
TEST(HeadsTest, GivesDebertaTheHeadThatItsKeysChoose) {
  const EncoderSpec legacy = SpecOf(OfClass(TinyDebertaV2(), "DebertaV2ForMaskedLM"));
  EXPECT_THAT(WeightsOf(legacy.logits), ElementsAre("cls.predictions.transform.dense.weight",
                                                    "cls.predictions.transform.LayerNorm.weight",
                                                    "cls.predictions.decoder.weight"));
  const EncoderSpec trained =
      SpecOf(OfClass(TinyDebertaV2(), "DebertaV2ForMaskedLM", {{"legacy", false}}));
  EXPECT_THAT(WeightsOf(trained.logits), ElementsAre("lm_predictions.lm_head.dense.weight",
                                                     "lm_predictions.lm_head.LayerNorm.weight",
                                                     "lm_predictions.lm_head.decoder.weight"));
  EXPECT_EQ(trained.relative_embedding.weight, "deberta.encoder.rel_embeddings.weight");
  ExpectRefused(OfClass(TinyDebertaV2(), "DebertaV2ForMaskedLM", {{"legacy", "no"}}),
                HasSubstr("legacy is \"no\""));

  const EncoderSpec labels = SpecOf(OfClass(TinyDebertaV2(), "DebertaV2ForSequenceClassification",
                                            {{"pooler_hidden_act", "relu"}}));
  EXPECT_THAT(WeightsOf(labels.classifier),
              ElementsAre("pooler.dense.weight", "classifier.weight"));
  EXPECT_EQ(labels.classifier[0].activation, Activation::kRelu);
  EXPECT_EQ(labels.activation, Activation::kGelu);
}

TEST(HeadsTest, LeavesOtherClassesWithoutLogits) {
  for (const json& config :
       {TinyBert(), OfClass(TinyBert(), "BertModel"), OfClass(TinyBert(), "BertForMultipleChoice"),
        OfClass(TinyBert(), "BertModel", {{"architectures", json::array()}}),
        OfClass(TinyBert(), "BertModel", {{"architectures", nullptr}})}) {
    EXPECT_FALSE(SpecOf(config).has_logits());
    EXPECT_EQ(SpecOf(config).word_embedding.weight, "embeddings.word_embeddings.weight");
  }
  ExpectRefused(OfClass(TinyBert(), "", {{"architectures", "BertForMaskedLM"}}),
                HasSubstr("architectures is \"BertForMaskedLM\""));
}

// ---- Labels -------------------------------------------------------------------------------------

json WithLabels(const json& id2label, const json& changes = json::object()) {
  json config = OfClass(TinyBert(), "BertForTokenClassification", {{"id2label", id2label}});
  config.update(changes);
  return config;
}

TEST(HeadsTest, OrdersLabelsByTheirIndicesAsNumbers) {
  json names = json::object();
  for (int i = 0; i < 12; ++i) names[std::to_string(i)] = "L" + std::to_string(i);
  const std::vector<std::string> labels = SpecOf(WithLabels(names)).labels;
  ASSERT_EQ(labels.size(), 12u);
  EXPECT_EQ(labels[2], "L2");
  EXPECT_EQ(labels[10], "L10");
}

TEST(HeadsTest, NamesLabelsAsTheLibraryDoesWhereTheFileNamesNone) {
  EXPECT_THAT(SpecOf(OfClass(TinyBert(), "BertForTokenClassification")).labels,
              ElementsAre("LABEL_0", "LABEL_1"));
  EXPECT_THAT(SpecOf(OfClass(TinyBert(), "BertForTokenClassification", {{"num_labels", 1}})).labels,
              ElementsAre("LABEL_0"));
}

TEST(HeadsTest, RefusesLabelsWithGapsAndOfAnotherNumber) {
  ExpectRefused(WithLabels({{"0", "a"}, {"2", "c"}}), HasSubstr("the index 1"));
  ExpectRefused(WithLabels({{"1", "a"}}), HasSubstr("the index 0"));
  ExpectRefused(WithLabels({{"-1", "a"}, {"0", "b"}}), HasSubstr("the index 0"));
  ExpectRefused(WithLabels({{"0", "a"}, {"00", "b"}}), HasSubstr("each index once"));
  ExpectRefused(WithLabels({{"first", "a"}}), HasSubstr("indices from 0"));
  ExpectRefused(WithLabels({{"0", 7}}), HasSubstr("indices from 0"));
  ExpectRefused(WithLabels(json::object()), HasSubstr("id2label is {}"));
  ExpectRefused(WithLabels({"a", "b"}), HasSubstr("id2label"));
  ExpectRefused(WithLabels({{"0", "a"}, {"1", "b"}}, {{"num_labels", 3}}),
                AllOf(HasSubstr("num_labels is 3"), HasSubstr("2")));
  ExpectRefused(OfClass(TinyBert(), "BertForTokenClassification", {{"num_labels", 1 << 20}}),
                HasSubstr("num_labels is 1048576"));
}

// ---- Files --------------------------------------------------------------------------------------

constexpr char kTable[] = "bert.embeddings.word_embeddings.weight";
constexpr char kDecoder[] = "cls.predictions.decoder.weight";

class HeadFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<Checkpoint> Resolve(const json& config, const std::vector<TestTensor>& tensors) {
    auto file = SafetensorsFile::Open(folder_.Write("model.safetensors", Safetensors(tensors)));
    if (!file.ok()) return file.status();
    EncoderSpec spec = SpecOf(config);
    return Checkpoint::Resolve(*std::move(file), &spec);
  }

  static std::vector<TestTensor> WeightsWithout(const json& config, std::string_view start) {
    std::vector<TestTensor> tensors = TinyWeights(SpecOf(config));
    std::erase_if(tensors, [start](const auto& tensor) { return tensor.name.starts_with(start); });
    return tensors;
  }

  const TempFolder folder_;
};

std::vector<float> ValuesOf(const Checkpoint& checkpoint, std::string_view name) {
  const auto buffer = checkpoint.Read(name);
  EXPECT_THAT(buffer.status(), IsOk());
  if (!buffer.ok()) return {};
  return {buffer->floats().begin(), buffer->floats().end()};
}

// Savers keep one name of a matrix that is used twice, and not always the same one.
TEST_F(HeadFileTest, ReadsATiedMatrixFromWhereverTheFileHasIt) {
  const json config = OfClass(TinyBert(), "BertForMaskedLM");
  for (const char* absent : {kDecoder, kTable}) {
    const auto checkpoint = Resolve(config, WeightsWithout(config, absent));
    ASSERT_THAT(checkpoint.status(), IsOk()) << absent;
    const std::vector<float> table = ValuesOf(*checkpoint, kTable);
    EXPECT_EQ(table.size(), 11u * 6u);
    EXPECT_THAT(table, Contains(Not(0.0f)));
    EXPECT_EQ(table, ValuesOf(*checkpoint, kDecoder));
  }
}

TEST_F(HeadFileTest, ReadsTheBiasOfTheVocabularyByEitherName) {
  const json config = OfClass(TinyBert(), "BertForMaskedLM");
  std::vector<TestTensor> tensors = WeightsWithout(config, "none");
  FindTensor(tensors, "cls.predictions.decoder.bias")->name = "cls.predictions.bias";
  const auto other = Resolve(config, tensors);
  ASSERT_THAT(other.status(), IsOk());
  EXPECT_EQ(ValuesOf(*other, "cls.predictions.decoder.bias").size(), 11u);

  tensors = WeightsWithout(config, "none");
  tensors.push_back(FloatTensor("cls.predictions.bias", {11}, std::vector<float>(11)));
  const auto both = Resolve(config, tensors);
  ASSERT_THAT(both.status(), IsOk());
  EXPECT_THAT(both->unused(), IsEmpty());
}

TEST_F(HeadFileTest, RefusesAMissingMatrixThatIsNotTied) {
  const json config = OfClass(TinyBert(), "BertForMaskedLM", {{"tie_word_embeddings", false}});
  for (const char* absent : {kDecoder, kTable}) {
    EXPECT_THAT(Resolve(config, WeightsWithout(config, absent)).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr(std::string("\"") + absent + "\" is missing")));
  }
}

TEST_F(HeadFileTest, RefusesTwiceMissingTiedMatrices) {
  const json config = OfClass(TinyBert(), "BertForMaskedLM");
  std::vector<TestTensor> tensors = WeightsWithout(config, kDecoder);
  std::erase_if(tensors, [](const auto& tensor) { return tensor.name == kTable; });
  EXPECT_THAT(Resolve(config, tensors).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr(std::string("\"") + kTable + "\" is missing")));
}

TEST_F(HeadFileTest, RefusesAClassWhoseHeadIsNotInTheFile) {
  const json classifier = OfClass(TinyBert(), "BertForTokenClassification");
  EXPECT_THAT(Resolve(classifier, WeightsWithout(classifier, "classifier")).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("\"classifier.weight\" is missing"),
                             HasSubstr("\"classifier.bias\" is missing"))));
  const json sequences = OfClass(TinyBert(), "BertForSequenceClassification");
  EXPECT_THAT(
      Resolve(sequences, WeightsWithout(sequences, "bert.pooler")).status(),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"bert.pooler.dense.weight\"")));
}

TEST_F(HeadFileTest, RefusesAnotherNumberOfLabelsThanTheNamesSay) {
  const json two = OfClass(TinyBert(), "BertForTokenClassification");
  const json three = WithLabels({{"0", "a"}, {"1", "b"}, {"2", "c"}});
  EXPECT_THAT(Resolve(three, TinyWeights(SpecOf(two))).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"classifier.weight\": expected shape [3, 6], got [2, 6]")));
}

TEST_F(HeadFileTest, FindsAHeadAndItsEncoderInsideAWrapper) {
  for (const char* class_name : {"BertForMaskedLM", "BertForSequenceClassification"}) {
    const json config = OfClass(TinyBert(), class_name);
    std::vector<TestTensor> tensors = TinyWeights(SpecOf(config));
    AddPrefix(tensors, "model.");
    EXPECT_THAT(Resolve(config, tensors).status(), IsOk());
  }
}

}  // namespace
}  // namespace encoderd
