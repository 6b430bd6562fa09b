// Goal:   a folder opens as its users saved it, and one that is broken says what and where.
// Method: plain and sentence-transformers folders of a tiny BERT, each broken in one way.
#include "engine/model/model_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/string_view.h"
#include "engine/io/file.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::nlohmann::json;
using ::testing::_;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Matcher;

json Modules(const std::vector<std::pair<std::string, std::string>>& types_and_paths) {
  json modules = json::array();
  for (const auto& [type, path] : types_and_paths) {
    modules.push_back({{"idx", modules.size()}, {"name", ""}, {"path", path}, {"type", type}});
  }
  return modules;
}

constexpr char kTransformer[] = "sentence_transformers.models.Transformer";
constexpr char kPooling[] = "sentence_transformers.models.Pooling";
constexpr char kDense[] = "sentence_transformers.models.Dense";
constexpr char kNormalize[] = "sentence_transformers.models.Normalize";

json PoolingConfig(const char* mode) {
  json config = {{"word_embedding_dimension", 6}};
  for (const char* key : {"pooling_mode_cls_token", "pooling_mode_mean_tokens",
                          "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens"}) {
    config[key] = std::string(key) == mode;
  }
  return config;
}

class ModelFolderTest : public ::testing::Test {
 protected:
  // A tiny BERT in `sub` of the folder ("" or "x/").
  void WriteBert(const std::string& sub = "") {
    folder_.Write(sub + "config.json", TinyBert().dump());
    folder_.Write(sub + "model.safetensors", Safetensors(TinyWeights(*SpecFromConfig(TinyBert()))));
  }

  void WriteSentenceBert(const json& pooling) {
    WriteBert();
    folder_.Write(
        "modules.json",
        Modules({{kTransformer, ""}, {kPooling, "1_Pooling"}, {kNormalize, "2_Normalize"}}).dump());
    folder_.Write("1_Pooling/config.json", pooling.dump());
  }

  static json DenseConfig(int64_t in, int64_t out, const char* activation) {
    return {{"in_features", in},
            {"out_features", out},
            {"bias", true},
            {"activation_function", activation}};
  }

  static std::string DenseWeights(int64_t out, int64_t in, const std::vector<float>& bias) {
    return Safetensors({FloatTensor("linear.weight", {out, in},
                                    std::vector<float>(static_cast<size_t>(out * in), 0.5f)),
                        FloatTensor("linear.bias", {out}, bias)});
  }

  // A sentence BERT with vectors of 6 → 4, or → 4 → 3 numbers.
  void WriteDense(bool second) {
    WriteSentenceBert(PoolingConfig("pooling_mode_mean_tokens"));
    std::vector<std::pair<std::string, std::string>> modules = {
        {kTransformer, ""}, {kPooling, "1_Pooling"}, {kDense, "2_Dense"}};
    folder_.Write("2_Dense/config.json",
                  DenseConfig(6, 4, "torch.nn.modules.activation.Tanh").dump());
    folder_.Write("2_Dense/model.safetensors", DenseWeights(4, 6, {1, 2, 3, 4}));
    if (second) {
      json config = DenseConfig(4, 3, "torch.nn.modules.linear.Identity");
      config["bias"] = false;
      folder_.Write("3_Dense/config.json", config.dump());
      folder_.Write(
          "3_Dense/model.safetensors",
          Safetensors({FloatTensor("linear.weight", {3, 4}, std::vector<float>(12, 0.25f))}));
      modules.push_back(
          {"sentence_transformers.sentence_transformer.modules.dense.Dense", "3_Dense"});
    }
    modules.push_back({kNormalize, "4_Normalize"});
    folder_.Write("modules.json", Modules(modules).dump());
  }

  void ExpectRefused(const Matcher<absl::string_view>& message) {
    const auto opened = OpenModelFolder(folder_.path());
    EXPECT_FALSE(opened.ok());
    EXPECT_THAT(std::string(opened.status().message()), HasSubstr(folder_.path()));
    EXPECT_THAT(opened, StatusIs(_, message));
  }

  TempFolder folder_;
};

// ---- Plain folders ------------------------------------------------------------------------------

TEST_F(ModelFolderTest, OpensAPlainFolder) {
  WriteBert();
  const auto opened = OpenModelFolder(folder_.path() + "/");
  ASSERT_THAT(opened.status(), IsOk());
  EXPECT_EQ(opened->spec, *SpecFromConfig(TinyBert()));
  EXPECT_EQ(opened->weights_sha256, *FileSha256(*File::Open(folder_.Path("model.safetensors"))));
  EXPECT_EQ(opened->tokenizer_sha256, "");
  EXPECT_TRUE(opened->checkpoint.Has("embeddings.LayerNorm.weight"));
}

TEST_F(ModelFolderTest, GivesTheDigestOfTheTokenizer) {
  WriteBert();
  folder_.Write("vocab.txt", "abc");
  EXPECT_EQ(OpenModelFolder(folder_.path())->tokenizer_sha256,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  folder_.Write("tokenizer.json", "");
  EXPECT_EQ(OpenModelFolder(folder_.path())->tokenizer_sha256,
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST_F(ModelFolderTest, SaysWhatIsMissing) {
  EXPECT_THAT(OpenModelFolder(folder_.Path("absent")),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(folder_.Path("absent"))));
  ExpectRefused(HasSubstr("config.json is missing"));
  folder_.Write("config.json", TinyBert().dump());
  ExpectRefused(HasSubstr("model.safetensors is missing"));
  folder_.Write("pytorch_model.bin", "x");
  ExpectRefused(HasSubstr("found pytorch_model.bin; save the weights as safetensors"));
}

TEST_F(ModelFolderTest, RefusesAFileInPlaceOfTheFolder) {
  EXPECT_THAT(OpenModelFolder(folder_.Write("f", "")), StatusIs(_, HasSubstr("is not a folder")));
}

TEST_F(ModelFolderTest, NamesTheFileThatIsBroken) {
  WriteBert();
  folder_.Write("config.json", "{\"model_type\": \"bert\", \"model_type\": \"bert\"}");
  ExpectRefused(AllOf(HasSubstr(folder_.Path("config.json")), HasSubstr("there twice")));
  folder_.Write("config.json", R"({"model_type": "no_family"})");
  ExpectRefused(AllOf(HasSubstr("config.json"), HasSubstr("\"no_family\"")));
  folder_.Write("config.json", TinyTokenEncoder().dump());
  ExpectRefused(AllOf(HasSubstr(folder_.Path("model.safetensors")), HasSubstr("is missing")));
  WriteBert();
  std::filesystem::resize_file(folder_.Path("model.safetensors"), 100);
  ExpectRefused(AllOf(HasSubstr(folder_.Path("model.safetensors")), HasSubstr("found 100")));
}

TEST_F(ModelFolderTest, RefusesConfigurationsOfAbsurdSizes) {
  WriteBert();
  std::filesystem::resize_file(folder_.Path("config.json"), uint64_t{1} << 33);
  ExpectRefused(AllOf(HasSubstr("config.json has 8589934592 bytes"), HasSubstr("16777216")));
}

// ---- sentence-transformers folders --------------------------------------------------------------

TEST_F(ModelFolderTest, TakesPoolingAndNormalizationFromTheModules) {
  for (const auto& [mode, pooling] : {std::pair{"pooling_mode_cls_token", Pooling::kCls},
                                      {"pooling_mode_mean_tokens", Pooling::kMean},
                                      {"pooling_mode_max_tokens", Pooling::kMax}}) {
    WriteSentenceBert(PoolingConfig(mode));  // without a folder 2_Normalize, as most are
    const auto opened = OpenModelFolder(folder_.path());
    ASSERT_THAT(opened.status(), IsOk());
    EXPECT_EQ(opened->spec.default_pooling, pooling);
    EXPECT_TRUE(opened->spec.default_normalize);
  }
}

TEST_F(ModelFolderTest, PoolsTheVectorsOfEveryFamilyAsTheModulesSay) {
  for (const json& config : TinyModels()) {
    for (const auto& [mode, pooling] : {std::pair{"pooling_mode_cls_token", Pooling::kCls},
                                        {"pooling_mode_mean_tokens", Pooling::kMean},
                                        {"pooling_mode_max_tokens", Pooling::kMax}}) {
      WriteSentenceBert(PoolingConfig(mode));
      folder_.Write("config.json", config.dump());
      folder_.Write("model.safetensors", Safetensors(TinyWeights(*SpecFromConfig(config))));
      json pooling_config = PoolingConfig(mode);
      pooling_config["word_embedding_dimension"] = SpecFromConfig(config)->hidden_size;
      folder_.Write("1_Pooling/config.json", pooling_config.dump());
      const auto opened = OpenModelFolder(folder_.path());
      ASSERT_THAT(opened.status(), IsOk());
      EXPECT_EQ(opened->spec.default_pooling, pooling);
      EXPECT_TRUE(opened->spec.default_normalize);
    }
  }
}

// Many such folders keep the name of the class that their encoder was trained as.
TEST_F(ModelFolderTest, LoadsTheEncoderAloneWhateverItsClass) {
  WriteSentenceBert(PoolingConfig("pooling_mode_mean_tokens"));
  json config = TinyBert();
  config["architectures"] = {"BertForMaskedLM"};
  folder_.Write("config.json", config.dump());
  const auto opened = OpenModelFolder(folder_.path());
  ASSERT_THAT(opened.status(), IsOk());
  EXPECT_FALSE(opened->spec.has_logits());
}

TEST_F(ModelFolderTest, NormalizesOnlyWhenTheModulesSaySo) {
  WriteSentenceBert(PoolingConfig("pooling_mode_cls_token"));
  folder_.Write("modules.json", Modules({{kTransformer, ""}, {kPooling, "1_Pooling"}}).dump());
  const auto opened = OpenModelFolder(folder_.path());
  ASSERT_THAT(opened.status(), IsOk());
  EXPECT_FALSE(opened->spec.default_normalize);
}

TEST_F(ModelFolderTest, FindsTheEncoderInAFolderOfItsOwn) {
  WriteBert("0_Transformer/");
  folder_.Write("0_Transformer/vocab.txt", "abc");
  folder_.Write("modules.json",
                Modules({{kTransformer, "0_Transformer"}, {kPooling, "1_Pooling"}}).dump());
  folder_.Write("1_Pooling/config.json", PoolingConfig("pooling_mode_mean_tokens").dump());
  const auto opened = OpenModelFolder(folder_.path());
  ASSERT_THAT(opened.status(), IsOk());
  EXPECT_FALSE(opened->tokenizer_sha256.empty());
}

TEST_F(ModelFolderTest, ReadsTheFormatOfNewerVersions) {
  WriteBert();
  folder_.Write(
      "modules.json",
      Modules({{"sentence_transformers.base.modules.transformer.Transformer", ""},
               {"sentence_transformers.sentence_transformer.modules.pooling.Pooling", "1_Pooling"},
               {"sentence_transformers.base.modules.normalize.Normalize", "2_Normalize"}})
          .dump());
  folder_.Write("1_Pooling/config.json",
                R"({"embedding_dimension": 6, "pooling_mode": "cls", "include_prompt": true})");
  folder_.Write("2_Normalize/config.json", R"({"module_input_name": "sentence_embedding",
                                               "module_output_name": "sentence_embedding"})");
  folder_.Write("sentence_bert_config.json",
                R"({"transformer_task": "feature-extraction", "max_seq_length": 4,
                    "module_output_name": "token_embeddings"})");
  const auto opened = OpenModelFolder(folder_.path());
  ASSERT_THAT(opened.status(), IsOk());
  EXPECT_EQ(opened->spec.default_pooling, Pooling::kCls);
  EXPECT_TRUE(opened->spec.default_normalize);

  folder_.Write("2_Normalize/config.json", R"({"module_input_name": "token_embeddings"})");
  ExpectRefused(HasSubstr("module_input_name is \"token_embeddings\""));
  folder_.Write("2_Normalize/config.json", "{}");
  folder_.Write("sentence_bert_config.json", R"({"transformer_task": "text-generation"})");
  ExpectRefused(HasSubstr("transformer_task is \"text-generation\""));
}

TEST_F(ModelFolderTest, RefusesPoolingThatIsNotServed) {
  for (const auto& [pooling, message] :
       {std::pair<json, const char*>{PoolingConfig("pooling_mode_mean_sqrt_len_tokens"),
                                     "pooling_mode_mean_sqrt_len_tokens is true"},
        {{{"pooling_mode_lasttoken", true}}, "pooling_mode_lasttoken is true"},
        {{{"pooling_mode_weightedmean_tokens", true}}, "pooling_mode_weightedmean_tokens is true"},
        {{{"pooling_mode_cls_token", true}, {"pooling_mode_max_tokens", true}}, "more than one"},
        {{{"pooling_mode", "lasttoken"}}, "pooling_mode is \"lasttoken\""},
        {{{"pooling_mode", {"cls", "max"}}}, "pooling_mode is [\"cls\",\"max\"]"},
        {{{"include_prompt", false}}, "include_prompt is false"},
        {{{"word_embedding_dimension", 7}}, "pools vectors of 7 numbers"},
        {{{"layer_weights", 1}}, "layer_weights is 1"},
        {json::array(), "expected an object"}}) {
    WriteSentenceBert(pooling);
    ExpectRefused(HasSubstr(message));
  }
}

TEST_F(ModelFolderTest, RefusesModulesThatAreNotServed) {
  WriteSentenceBert(PoolingConfig("pooling_mode_mean_tokens"));
  for (const auto& modules :
       {Modules({{kTransformer, ""}, {kPooling, "1_Pooling"}, {kNormalize, ""}, {kDense, "3"}}),
        Modules({{kTransformer, ""}, {kPooling, "1_Pooling"}, {kNormalize, ""}, {kNormalize, ""}}),
        Modules({{kTransformer, ""}, {kPooling, "1_Pooling"}, {kTransformer, ""}}),
        Modules({{kTransformer, ""},
                 {kPooling, "1_Pooling"},
                 {"sentence_transformers.models.LayerNorm", "2_LayerNorm"}}),
        Modules({{kPooling, "1_Pooling"}, {kTransformer, ""}}), Modules({{kTransformer, ""}}),
        Modules({{"sentence_transformers.models.CLIPModel", ""}}), Modules({})}) {
    folder_.Write("modules.json", modules.dump());
    ExpectRefused(AllOf(HasSubstr("modules.json"), HasSubstr("expected Transformer, Pooling")));
  }
  folder_.Write("modules.json",
                Modules({{"my_code.Transformer", ""}, {kPooling, "1_Pooling"}}).dump());
  ExpectRefused(HasSubstr("\"my_code.Transformer\" is not supported"));
  folder_.Write("modules.json", "{}");
  ExpectRefused(HasSubstr("expected a list"));
  folder_.Write("modules.json", "[1, {}]");
  ExpectRefused(AllOf(HasSubstr("[0]: expected an object"), HasSubstr("[1].type is missing")));
}

// ---- Dense modules ------------------------------------------------------------------------------

TEST_F(ModelFolderTest, ProjectsVectorsThroughDenseModulesInTheirOrder) {
  WriteDense(/*second=*/true);
  const auto opened = OpenModelFolder(folder_.path());
  ASSERT_THAT(opened.status(), IsOk());
  const std::vector<Step>& steps = opened->spec.projection;
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].out, 4);
  EXPECT_EQ(steps[0].activation, Activation::kTanh);
  EXPECT_EQ(steps[1].out, 3);
  EXPECT_EQ(steps[1].names.bias, "");
  EXPECT_EQ(steps[1].activation, Activation::kNone);
  EXPECT_TRUE(opened->spec.default_normalize);
  std::vector<float> bias(4);
  ASSERT_THAT(opened->checkpoint.ReadInto(steps[0].names.bias, bias), IsOk());
  EXPECT_THAT(bias, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(opened->checkpoint.unused(), IsEmpty());
  // The digest is of all weights.
  const std::string before = opened->weights_sha256;
  folder_.Write("2_Dense/model.safetensors", DenseWeights(4, 6, {1, 2, 3, 5}));
  EXPECT_NE(OpenModelFolder(folder_.path())->weights_sha256, before);
}

TEST_F(ModelFolderTest, FindsDenseWeightsBesideAnEncoderWithAPrefix) {
  WriteDense(/*second=*/false);
  std::vector<TestTensor> tensors = TinyWeights(*SpecFromConfig(TinyBert()));
  AddPrefix(tensors, "bert.");
  folder_.Write("model.safetensors", Safetensors(tensors));
  EXPECT_THAT(OpenModelFolder(folder_.path()), IsOk());
}

TEST_F(ModelFolderTest, RefusesDenseModulesThatAreNotServed) {
  const json good = DenseConfig(6, 4, "torch.nn.modules.activation.Tanh");
  const auto with = [&good](const char* key, const json& value) {
    json changed = good;
    changed[key] = value;
    return changed;
  };
  for (const auto& [config, message] :
       {std::pair<json, const char*>{
            with("activation_function", "torch.nn.modules.activation.Sigmoid"),
            "activation_function is \"torch.nn.modules.activation.Sigmoid\""},
        {with("activation_function", "my_code.Swish"), "activation_function is \"my_code.Swish\""},
        {with("activation_function", nullptr), "activation_function is null"},
        {with("in_features", 5), "in_features is 5"},
        {with("out_features", 0), "out_features is 0"},
        {with("out_features", 7), "expected shape [7, 6], got [4, 6]"},
        {with("bias", "yes"), "bias is \"yes\""},
        {with("module_input_name", "token_embeddings"), "module_input_name is"},
        {with("scale", 2), "scale is 2"},
        {json::array(), "expected an object"}}) {
    WriteDense(/*second=*/false);
    folder_.Write("2_Dense/config.json", config.dump());
    ExpectRefused(HasSubstr(message));
  }
  WriteDense(/*second=*/false);
  std::filesystem::remove(folder_.Path("2_Dense/model.safetensors"));
  folder_.Write("2_Dense/pytorch_model.bin", "x");
  ExpectRefused(AllOf(HasSubstr("2_Dense"), HasSubstr("found pytorch_model.bin")));
  WriteDense(/*second=*/false);
  folder_.Write("2_Dense/model.safetensors", Safetensors({FloatTensor("weight", {1}, {1})}));
  ExpectRefused(HasSubstr("\"2_Dense.linear.weight\" is missing"));
}

// ---- One report ---------------------------------------------------------------------------------

TEST_F(ModelFolderTest, ReportsTheFaultsOfEveryFileAtOnce) {
  json pooling = PoolingConfig("pooling_mode_mean_sqrt_len_tokens");
  WriteSentenceBert(pooling);
  json config = TinyBert();
  config["hidden_act"] = "maxout";
  config["num_attention_heads"] = 4;
  folder_.Write("config.json", config.dump());
  folder_.Write("2_Normalize/config.json", R"({"module_input_name": "token_embeddings"})");
  std::filesystem::resize_file(folder_.Path("model.safetensors"), 100);
  ExpectRefused(AllOf(HasSubstr("pooling_mode_mean_sqrt_len_tokens is true"),
                      HasSubstr("hidden_act is \"maxout\""), HasSubstr("num_attention_heads is 4"),
                      HasSubstr("module_input_name"), HasSubstr("found 100")));
}

TEST_F(ModelFolderTest, ReportsModulesMissingTensorsAndShapesAtOnce) {
  WriteSentenceBert(PoolingConfig("pooling_mode_lasttoken"));
  folder_.Write("1_Pooling/config.json", R"({"pooling_mode_lasttoken": true})");
  std::vector<TestTensor> tensors = TinyWeights(*SpecFromConfig(TinyBert()));
  FindTensor(tensors, "encoder.layer.0.output.dense.bias")->shape = {2, 3};
  FindTensor(tensors, "encoder.layer.1.output.dense.bias")->name =
      "encoder.layer.1.output.dense.bais";
  folder_.Write("model.safetensors", Safetensors(tensors));
  ExpectRefused(AllOf(HasSubstr("pooling_mode_lasttoken is true"), HasSubstr("got [2, 3]"),
                      HasSubstr("the file has \"encoder.layer.1.output.dense.bais\"")));
}

TEST_F(ModelFolderTest, StrictRefusesUnusedTensorsAmongAllOtherFaults) {
  WriteBert();
  std::vector<TestTensor> tensors = TinyWeights(*SpecFromConfig(TinyBert()));
  tensors.push_back({"embeddings.position_ids", "I64", {1}, std::string(8, '\0')});
  folder_.Write("model.safetensors", Safetensors(tensors));
  EXPECT_THAT(OpenModelFolder(folder_.path(), /*strict=*/true), IsOk());
  tensors.push_back(FloatTensor("spare", {1}, {1}));
  FindTensor(tensors, "encoder.layer.0.output.dense.bias")->shape = {2, 3};
  folder_.Write("model.safetensors", Safetensors(tensors));
  EXPECT_THAT(OpenModelFolder(folder_.path(), /*strict=*/true),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("2 faults"), HasSubstr("\"spare\" is not used"),
                             HasSubstr("got [2, 3]"))));
}

TEST_F(ModelFolderTest, RefusesPathsThatLeaveTheFolder) {
  WriteSentenceBert(PoolingConfig("pooling_mode_mean_tokens"));
  for (const char* path : {"/etc", "..", "../x", "a/../../x", "1_Pooling/../.."}) {
    folder_.Write("modules.json", Modules({{kTransformer, ""}, {kPooling, path}}).dump());
    ExpectRefused(HasSubstr("expected a path inside the folder"));
    folder_.Write("modules.json", Modules({{kTransformer, path}, {kPooling, "1_Pooling"}}).dump());
    ExpectRefused(HasSubstr("expected a path inside the folder"));
  }
}

}  // namespace
}  // namespace encoderd
