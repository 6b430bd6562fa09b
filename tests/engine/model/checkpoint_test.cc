// Goal:   every tensor that the spec needs is found whatever wrapped or respelled it, with the
//         right bytes; a file that does not fit is refused with every fault in one report.
// Method: tiny weights of each family, renamed, reshaped, cut and extended.
#include "engine/model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/string_view.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;
using ::testing::Not;

using Tensors = std::vector<TestTensor>;

class CheckpointTest : public ::testing::Test {
 protected:
  // Resolves the spec of `config` in a file with these tensors; spec_ is what is left of it.
  absl::StatusOr<Checkpoint> Resolve(const nlohmann::json& config, const Tensors& tensors) {
    auto file = SafetensorsFile::Open(folder_.Write("model.safetensors", Safetensors(tensors)));
    if (!file.ok()) return file.status();
    spec_ = *SpecFromConfig(config);
    return Checkpoint::Resolve(*std::move(file), &spec_);
  }

  Tensors Weights(const nlohmann::json& config) { return TinyWeights(*SpecFromConfig(config)); }

  // The tensors, after `damage`, are refused with this message.
  void ExpectRefused(const nlohmann::json& config, const std::function<void(Tensors&)>& damage,
                     const Matcher<absl::string_view>& message) {
    Tensors tensors = Weights(config);
    damage(tensors);
    EXPECT_THAT(Resolve(config, tensors).status(),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(folder_.Path("model.safetensors")), message)));
  }

  // The file with these tensors gives, by the spec's names, the same bytes as `expected`.
  void ExpectSameWeights(const nlohmann::json& config, const Tensors& tensors,
                         const Tensors& expected) {
    const auto checkpoint = Resolve(config, tensors);
    ASSERT_THAT(checkpoint.status(), IsOk());
    for (const TestTensor& tensor : expected) {
      const auto buffer = checkpoint->Read(tensor.name);
      ASSERT_THAT(buffer.status(), IsOk());
      EXPECT_EQ(std::string(reinterpret_cast<const char*>(buffer->data()), buffer->size()),
                tensor.bytes)
          << tensor.name;
    }
  }

  TempFolder folder_;
  EncoderSpec spec_;
};

TEST_F(CheckpointTest, FindsEveryTensorOfEveryFamily) {
  for (const nlohmann::json& config : TinyModels()) {
    const Tensors tensors = Weights(config);
    ExpectSameWeights(config, tensors, tensors);
  }
}

TEST_F(CheckpointTest, FindsEveryTensorUnderAWrappersPrefix) {
  for (const nlohmann::json& config : TinyModels()) {
    for (const char* prefix : {"bert.", "roberta.", "distilbert.", "model.", "encoder.",
                               "transformer.", "module.model.0.auto_model."}) {
      Tensors tensors = Weights(config);
      const Tensors expected = tensors;
      AddPrefix(tensors, prefix);
      ExpectSameWeights(config, tensors, expected);
    }
  }
}

TEST_F(CheckpointTest, FindsBlocksInAWrapperOfTheirOwn) {
  for (const char* around : {"", "model."}) {
    Tensors tensors = Weights(TinyAttentionStack());
    const Tensors expected = tensors;
    for (TestTensor& tensor : tensors) {
      if (tensor.name.starts_with("layers.")) tensor.name = "transformer." + tensor.name;
    }
    AddPrefix(tensors, around);
    ExpectSameWeights(TinyAttentionStack(), tensors, expected);
  }
}

// The same weights saved four ways, with a head of its own beside them.
TEST_F(CheckpointTest, FindsOldAndNewNamesOfNorms) {
  const Tensors expected = Weights(TinyBert());
  for (const bool prefixed : {false, true}) {
    for (const bool old_names : {false, true}) {
      Tensors tensors = expected;
      if (old_names) {
        RenameEndings(tensors, "LayerNorm.weight", "LayerNorm.gamma");
        RenameEndings(tensors, "LayerNorm.bias", "LayerNorm.beta");
      }
      if (prefixed) AddPrefix(tensors, "bert.");
      tensors.push_back(FloatTensor("cls.predictions.bias", {11}, std::vector<float>(11)));
      tensors.push_back(
          FloatTensor("cls.predictions.transform.LayerNorm.gamma", {6}, std::vector<float>(6)));
      ExpectSameWeights(TinyBert(), tensors, expected);
    }
  }
}

TEST_F(CheckpointTest, RefusesBothSpellingsOfOneTensor) {
  ExpectRefused(
      TinyBert(),
      [](Tensors& tensors) {
        tensors.push_back(FloatTensor("embeddings.LayerNorm.gamma", {6}, std::vector<float>(6)));
      },
      AllOf(HasSubstr("\"embeddings.LayerNorm.weight\""),
            HasSubstr("\"embeddings.LayerNorm.gamma\"")));
}

// Names with "gamma" and "beta" in them are names like any other.
TEST_F(CheckpointTest, RenamesNothingButTheEndingsOfNorms) {
  nlohmann::json config = {
      {"model_type", "custom"},
      {"input", "vectors"},
      {"input_dim", 2},
      {"positions", "none"},
      {"num_layers", 1},
      {"hidden_size", 2},
      {"num_heads", 1},
      {"ffn_size", 0},
      {"residual", true},
      {"norm", "post"},
      {"norm_eps", 1e-5},
      {"qkv", "fused"},
      {"score_scale", 1},
      {"activation", "none"},
      {"fused_qkv", {{"weight", "block.{layer}.gamma_scale"}}},
      {"attention_output", {{"weight", "layer_beta.weight"}}},
      {"norm1", {{"weight", "MyLayerNorm.weight"}}},
      {"aliases", {{{"from", "LayerNorm.weight"}, {"to", "LayerNorm.gamma"}}}}};
  Tensors tensors = Weights(config);
  ASSERT_NE(FindTensor(tensors, "block.0.gamma_scale"), nullptr);
  ASSERT_NE(FindTensor(tensors, "layer_beta.weight"), nullptr);
  ExpectSameWeights(config, tensors, tensors);
  // An ending is a whole part of a name: "MyLayerNorm" is none.
  RenameEndings(tensors, "MyLayerNorm.weight", "MyLayerNorm.gamma");
  EXPECT_THAT(Resolve(config, tensors), StatusIs(absl::StatusCode::kInvalidArgument,
                                                 HasSubstr("\"MyLayerNorm.weight\" is missing")));
}

TEST_F(CheckpointTest, RefusesToChooseBetweenTwoEncoders) {
  ExpectRefused(
      TinyBert(),
      [](Tensors& tensors) {
        Tensors other = tensors;
        AddPrefix(tensors, "query.");
        AddPrefix(other, "passage.");
        tensors.insert(tensors.end(), other.begin(), other.end());
      },
      AllOf(HasSubstr("2 times"), HasSubstr("\"query.\""), HasSubstr("\"passage.\"")));
}

TEST_F(CheckpointTest, PrefersTheEncoderWithoutAPrefix) {
  Tensors tensors = Weights(TinyBert());
  Tensors other = tensors;
  AddPrefix(other, "teacher.");
  const size_t count = tensors.size();
  tensors.insert(tensors.end(), other.begin(), other.end());
  const auto checkpoint = Resolve(TinyBert(), tensors);
  ASSERT_THAT(checkpoint.status(), IsOk());
  EXPECT_EQ(checkpoint->unused().size(), count);
}

// ---- Optional parts -----------------------------------------------------------------------------

TEST_F(CheckpointTest, DropsAPoolerThatIsNotThere) {
  Tensors tensors = Weights(TinyBert());
  std::erase_if(tensors, [](const TestTensor& t) { return t.name.starts_with("pooler."); });
  const auto checkpoint = Resolve(TinyBert(), tensors);
  ASSERT_THAT(checkpoint.status(), IsOk());
  EXPECT_TRUE(spec_.pooler.empty());
  EXPECT_FALSE(checkpoint->Has("pooler.dense.weight"));
  EXPECT_THAT(checkpoint->Read("pooler.dense.weight"), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CheckpointTest, DropsContactsThatAreNotThere) {
  Tensors tensors = Weights(TinyEsm());
  ASSERT_THAT(Resolve(TinyEsm(), tensors).status(), IsOk());
  EXPECT_TRUE(spec_.has_contacts());
  std::erase_if(tensors, [](const TestTensor& t) { return t.name.starts_with("contact_head."); });
  ASSERT_THAT(Resolve(TinyEsm(), tensors).status(), IsOk());
  EXPECT_FALSE(spec_.has_contacts());
  EXPECT_EQ(spec_.contact_end_id, -1);
}

TEST_F(CheckpointTest, KeepsAPoolerThatIsThere) {
  const auto checkpoint = Resolve(TinyBert(), Weights(TinyBert()));
  ASSERT_THAT(checkpoint.status(), IsOk());
  EXPECT_EQ(spec_.pooler.size(), 1u);
  EXPECT_TRUE(checkpoint->Has("pooler.dense.weight"));
}

TEST_F(CheckpointTest, RefusesHalfAPooler) {
  ExpectRefused(
      TinyBert(),
      [](Tensors& tensors) {
        std::erase_if(tensors, [](const TestTensor& t) { return t.name == "pooler.dense.bias"; });
      },
      HasSubstr("\"pooler.dense.bias\" is missing"));
}

TEST_F(CheckpointTest, UsesAFinalNormWhereTheFileHasOne) {
  Tensors tensors = Weights(TinyTorchEncoder());
  ASSERT_THAT(Resolve(TinyTorchEncoder(), tensors), IsOk());
  EXPECT_EQ(spec_.final_norm.weight, "norm.weight");
  std::erase_if(tensors, [](const TestTensor& t) { return t.name.starts_with("norm."); });
  ASSERT_THAT(Resolve(TinyTorchEncoder(), tensors), IsOk());
  EXPECT_EQ(spec_.final_norm, TensorNames{});
}

TEST_F(CheckpointTest, RefusesAFolderWhoseVectorsNeedTheMissingPooler) {
  Tensors tensors = Weights(TinyBert());
  std::erase_if(tensors, [](const TestTensor& t) { return t.name.starts_with("pooler."); });
  auto file = SafetensorsFile::Open(folder_.Write("model.safetensors", Safetensors(tensors)));
  ASSERT_THAT(file.status(), IsOk());
  spec_ = *SpecFromConfig(TinyBert());
  spec_.default_pooling = Pooling::kPooler;
  EXPECT_THAT(Checkpoint::Resolve(*std::move(file), &spec_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("pooler")));
}

// ---- Shapes and types ---------------------------------------------------------------------------

TEST_F(CheckpointTest, ReadsOnlyTheRowsOfAWordTableThatIdsReach) {
  for (const char* dtype : {"F32", "BF16", "F64"}) {
    Tensors tensors = Weights(TinyTokenEncoder());
    TestTensor& table = *FindTensor(tensors, "embedding.weight");
    std::vector<float> rows(9 * 6);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(i);
    table = FloatTensor("embedding.weight", {9, 6}, rows, dtype);
    const auto checkpoint = Resolve(TinyTokenEncoder(), tensors);
    ASSERT_THAT(checkpoint.status(), IsOk());
    const auto buffer = checkpoint->Read("embedding.weight");
    ASSERT_THAT(buffer.status(), IsOk());
    ASSERT_EQ(buffer->floats().size(), 7u * 6);
    EXPECT_EQ(buffer->floats().back(), 41.0f);
  }
}

TEST_F(CheckpointTest, RefusesTablesThatDisagreeWithTheConfiguration) {
  const auto with_rows = [](const char* name, int64_t rows) {
    return [name, rows](Tensors& tensors) {
      *FindTensor(tensors, name) =
          FloatTensor(name, {rows, 6}, std::vector<float>(static_cast<size_t>(rows) * 6));
    };
  };
  ExpectRefused(TinyBert(), with_rows("embeddings.word_embeddings.weight", 10),
                HasSubstr("expected shape [11, 6] or more rows, got [10, 6]"));
  ExpectRefused(TinyBert(), with_rows("embeddings.token_type_embeddings.weight", 1),
                HasSubstr("expected shape [2, 6], got [1, 6]"));
  ExpectRefused(TinyBert(), with_rows("embeddings.token_type_embeddings.weight", 3),
                HasSubstr("expected shape [2, 6], got [3, 6]"));
  ExpectRefused(TinyBert(), with_rows("embeddings.position_embeddings.weight", 6),
                HasSubstr("expected shape [5, 6], got [6, 6]"));
}

TEST_F(CheckpointTest, RefusesOtherShapesOfTheSameSize) {
  for (std::vector<int64_t> shape : {std::vector<int64_t>{6, 8}, {48}, {8, 6, 1}, {1, 8, 6}}) {
    ExpectRefused(
        TinyBert(),
        [&shape](Tensors& tensors) {
          FindTensor(tensors, "encoder.layer.1.intermediate.dense.weight")->shape = shape;
        },
        AllOf(HasSubstr("\"encoder.layer.1.intermediate.dense.weight\""),
              HasSubstr("expected shape [8, 6], got [")));
  }
}

TEST_F(CheckpointTest, RefusesWeightsThatAreNoFloats) {
  for (const char* dtype : {"I32", "U32"}) {
    ExpectRefused(
        TinyBert(),
        [dtype](Tensors& tensors) {
          FindTensor(tensors, "encoder.layer.0.output.dense.bias")->dtype = dtype;
        },
        AllOf(HasSubstr("\"encoder.layer.0.output.dense.bias\""), HasSubstr(dtype)));
  }
}

TEST_F(CheckpointTest, NamesTheTensorOfAnUnreadableType) {
  ExpectRefused(
      TinyBert(),
      [](Tensors& tensors) {
        TestTensor& bias = *FindTensor(tensors, "encoder.layer.0.output.dense.bias");
        bias = {bias.name, "F8_E4M3", {6}, std::string(6, '\0')};
      },
      AllOf(HasSubstr("\"encoder.layer.0.output.dense.bias\""), HasSubstr("F8_E4M3")));
}

TEST_F(CheckpointTest, ReportsAllFaultsWithTheNearestNames) {
  ExpectRefused(
      TinyBert(),
      [](Tensors& tensors) {
        FindTensor(tensors, "encoder.layer.0.attention.self.query.weight")->name =
            "encoder.layer.0.attention.self.qeury.weight";
        FindTensor(tensors, "encoder.layer.1.output.dense.bias")->shape = {2, 3};
        FindTensor(tensors, "pooler.dense.bias")->dtype = "I32";
      },
      AllOf(HasSubstr("3 faults"),
            HasSubstr("\"encoder.layer.0.attention.self.query.weight\" is missing; the file has "
                      "\"encoder.layer.0.attention.self.qeury.weight\""),
            HasSubstr("expected shape [6], got [2, 3]"), HasSubstr("I32")));
}

TEST_F(CheckpointTest, ReportsMissingNamesUnderThePrefixOfTheOthers) {
  ExpectRefused(
      TinyBert(),
      [](Tensors& tensors) {
        std::erase_if(tensors, [](const TestTensor& t) {
          return t.name == "embeddings.word_embeddings.weight";
        });
        AddPrefix(tensors, "bert.");
      },
      AllOf(HasSubstr("\"bert.embeddings.word_embeddings.weight\" is missing"),
            Not(HasSubstr("faults"))));
}

// Savers keep one name of a tensor that two parts share; an encoder without its word table is not
// filled from anything else that lies in the file.
TEST_F(CheckpointTest, AsksForTheWordTableWhereOnlyATiedCopyIsThere) {
  Tensors tensors = Weights(TinyBert());
  AddPrefix(tensors, "bert.");
  const Tensors without_copy = tensors;
  EXPECT_THAT(Resolve(TinyBert(), without_copy), IsOk());
  TestTensor table = *FindTensor(tensors, "bert.embeddings.word_embeddings.weight");
  FindTensor(tensors, table.name)->name = "cls.predictions.decoder.weight";
  EXPECT_THAT(Resolve(TinyBert(), tensors),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("\"bert.embeddings.word_embeddings.weight\" is missing")));
}

TEST_F(CheckpointTest, RefusesAFileOfAnotherModel) {
  EXPECT_THAT(Resolve(TinyBert(), {FloatTensor("w", {1}, {1})}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("37 faults")));
  EXPECT_THAT(Resolve(TinyBert(), {}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("faults")));
  EXPECT_THAT(Resolve(TinyTokenEncoder(), Weights(TinyBert())),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("faults")));
}

// ---- Lists and reading --------------------------------------------------------------------------

TEST_F(CheckpointTest, ListsWhatIsUsedUnusedAndHarmless) {
  Tensors tensors = Weights(TinyBert());
  const size_t needed = tensors.size();
  AddPrefix(tensors, "bert.");
  tensors.push_back({"bert.embeddings.position_ids", "I64", {1, 5}, std::string(40, '\0')});
  tensors.push_back({"embeddings.token_type_ids", "I64", {1, 5}, std::string(40, '\0')});
  tensors.push_back({"bert.my_embeddings.position_ids", "I64", {1}, std::string(8, '\0')});
  tensors.push_back(FloatTensor("cls.predictions.bias", {11}, std::vector<float>(11)));
  const auto checkpoint = Resolve(TinyBert(), tensors);
  ASSERT_THAT(checkpoint.status(), IsOk());
  EXPECT_EQ(checkpoint->used().size(), needed);
  EXPECT_THAT(checkpoint->harmless(),
              ElementsAre("bert.embeddings.position_ids", "embeddings.token_type_ids"));
  EXPECT_THAT(checkpoint->unused(),
              ElementsAre("bert.my_embeddings.position_ids", "cls.predictions.bias"));
}

TEST_F(CheckpointTest, CountsTheNumbersThatAreRead) {
  const auto checkpoint = Resolve(TinyAttention(), Weights(TinyAttention()));
  ASSERT_THAT(checkpoint.status(), IsOk());
  EXPECT_EQ(checkpoint->parameters(), 18 * 5 + 18 + 6 * 6 + 6);
  EXPECT_THAT(checkpoint->unused(), IsEmpty());
}

TEST_F(CheckpointTest, ReadsIntoMemoryOfTheRightSizeOnly) {
  const auto checkpoint = Resolve(TinyAttention(), Weights(TinyAttention()));
  ASSERT_THAT(checkpoint.status(), IsOk());
  std::vector<float> bias(6);
  EXPECT_THAT(checkpoint->ReadInto("o_proj.bias", bias), IsOk());
  EXPECT_NE(bias, std::vector<float>(6));
  bias.resize(5);
  EXPECT_THAT(checkpoint->ReadInto("o_proj.bias", bias),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("6 elements")));
  EXPECT_THAT(checkpoint->ReadInto("p_proj.bias", bias),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("p_proj.bias")));
}

TEST_F(CheckpointTest, SharesATensorThatTwoPartsName) {
  nlohmann::json config = TinyTokenEncoder();
  EncoderSpec spec = *SpecFromConfig(config);
  spec.logits[0].names = {"embedding.weight", ""};
  Tensors tensors = TinyWeights(spec);
  auto file = SafetensorsFile::Open(folder_.Write("model.safetensors", Safetensors(tensors)));
  ASSERT_THAT(file.status(), IsOk());
  const auto checkpoint = Checkpoint::Resolve(*std::move(file), &spec);
  ASSERT_THAT(checkpoint.status(), IsOk());
  EXPECT_EQ(checkpoint->used().size(), tensors.size());
}

// Names are searched for in a time that the product of tensors and layers does not rule.
// Comparing long names takes time, so the nearest one is not found behind ten thousands that are
// near: they are sorted by name here.
TEST_F(CheckpointTest, LooksForNearNamesAmongTheFirstOnes) {
  nlohmann::json config = TinyTokenEncoder();
  EncoderSpec spec = *SpecFromConfig(config);
  spec.word_embedding.weight = std::string(512, 'x');
  const std::string nearest = "z" + std::string(511, 'x');
  Tensors tensors = {{nearest, "U8", {0}, ""}};
  for (int i = 0; i < 20'000; ++i) {
    tensors.push_back({"n" + std::to_string(1'000'000 + i) + std::string(500, 'x'), "U8", {0}, ""});
  }
  auto file = SafetensorsFile::Open(folder_.Write("model.safetensors", Safetensors(tensors)));
  ASSERT_THAT(file.status(), IsOk());
  EXPECT_EQ(file->tensors().back().name, nearest);
  const auto checkpoint = Checkpoint::Resolve(*std::move(file), &spec);
  EXPECT_THAT(checkpoint, StatusIs(absl::StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("is missing; the file has \"n1000000xxx"),
                                         Not(HasSubstr("\"zxxx")))));
}

TEST_F(CheckpointTest, RefusesHugeFilesOfOtherNamesQuickly) {
  Tensors tensors;
  for (int i = 0; i < 5'000; ++i) {
    tensors.push_back({"wrapper" + std::to_string(i) + ".embedding.weight", "U8", {0}, ""});
  }
  nlohmann::json config = TinyTokenEncoder();
  config["num_layers"] = 200;
  EXPECT_THAT(Resolve(config, tensors).status(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("faults")));
}

}  // namespace
}  // namespace encoderd
