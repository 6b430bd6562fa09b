// Goal:   one report has every fault of a folder, and none that only follows from another.
// Method: a tiny model broken in several files at once; a fault in config.json beside files that
//         are right by what is left of it, and beside files that are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/model_folder.h"
#include "engine/model/spec_json.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFirst[] = "model-00001-of-00002.safetensors";
constexpr char kSecond[] = "model-00002-of-00002.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";

class FolderFaultsTest : public ::testing::Test {
 protected:
  void Write(const json& config, const std::vector<TestTensor>& tensors) {
    folder_.Write("config.json", config.dump());
    folder_.Write("model.safetensors", Safetensors(tensors));
  }

  // The refusal without the folder's path.
  std::string Refusal() {
    const auto opened = OpenModelFolder(folder_.path());
    EXPECT_FALSE(opened.ok());
    std::string text(opened.status().message());
    for (size_t at; (at = text.find(folder_.path())) != std::string::npos;) {
      text.replace(at, folder_.path().size(), "DIR");
    }
    return text;
  }

  // What is said of a folder with `changes` to the configuration of a good one.
  std::string RefusalWith(const json& config, const json& changes) {
    json changed = config;
    for (const auto& [key, value] : changes.items()) changed[key] = value;
    Write(changed, TinyWeights(*SpecFromConfig(config)));
    return Refusal();
  }

  // The same where, besides, a table has another shape and a matrix is missing.
  std::string RefusalOfBrokenWith(const json& config, const json& changes) {
    json changed = config;
    for (const auto& [key, value] : changes.items()) changed[key] = value;
    std::vector<TestTensor> tensors = TinyWeights(*SpecFromConfig(config));
    FindTensor(tensors, "embeddings.word_embeddings.weight")->shape = {6, 11};
    FindTensor(tensors, "encoder.layer.0.output.dense.weight")->name = "elsewhere";
    Write(changed, tensors);
    return Refusal();
  }

  TempFolder folder_;
};

constexpr char kMissing[] = "tensor \"encoder.layer.0.output.dense.weight\" is missing";
constexpr char kShape[] =
    "tensor \"embeddings.word_embeddings.weight\": expected shape [11, 6] or more rows, got [6, "
    "11]";

TEST_F(FolderFaultsTest, HasThoseOfEveryFile) {
  json config = TinyBert();
  config["hidden_act"] = "maxout";
  folder_.Write("config.json", config.dump());
  folder_.Write("modules.json", R"([{"type": "mine.Transformer", "path": ""}])");
  std::vector<TestTensor> first = TinyWeights(*SpecFromConfig(TinyBert()));
  FindTensor(first, "embeddings.word_embeddings.weight")->shape = {6, 11};
  FindTensor(first, "encoder.layer.0.output.dense.weight")->name =
      "encoder.layer.0.output.dense.wieght";
  // The second file, which is lost, had block 1.
  json weight_map;
  for (const TestTensor& tensor : first) {
    const bool second = tensor.name.starts_with("encoder.layer.1.");
    weight_map[tensor.name] = second ? kSecond : kFirst;
  }
  std::erase_if(
      first, [](const TestTensor& tensor) { return tensor.name.starts_with("encoder.layer.1."); });
  folder_.Write(kFirst, Safetensors(first));
  folder_.Write(kIndex, json({{"weight_map", weight_map}}).dump());
  EXPECT_EQ(Refusal(),
            "DIR/modules.json: module \"mine.Transformer\" is not supported\n"
            "DIR: config.json: hidden_act is \"maxout\"; expected one of \"gelu\", \"gelu_new\", "
            "\"gelu_pytorch_tanh\", \"relu\", \"silu\", \"swish\"\n"
            "DIR/model.safetensors.index.json: files that weight_map names are missing: "
            "model-00002-of-00002.safetensors\n"
            "DIR/model.safetensors.index.json: 2 faults:\n"
            "  tensor \"embeddings.word_embeddings.weight\": expected shape [11, 6] or more rows, "
            "got [6, 11]\n"
            "  tensor \"encoder.layer.0.output.dense.weight\" is missing; the file has "
            "\"encoder.layer.0.output.dense.wieght\"");
}

// ---- Values in doubt ----------------------------------------------------------------------------

TEST_F(FolderFaultsTest, AWrongValueHidesNoTensorThatDoesNotDependOnIt) {
  for (const json& changes : {json{{"hidden_act", "maxout"}},
                              {{"layer_norm_eps", -1}},
                              {{"is_decoder", true}},
                              {{"max_position_embeddings", "5"}},
                              {{"num_hidden_layers", 2.5}},
                              {{"intermediate_size", 0}}}) {
    EXPECT_THAT(RefusalOfBrokenWith(TinyBert(), changes),
                AllOf(HasSubstr(changes.items().begin().key() + " is "), HasSubstr(kMissing),
                      HasSubstr(kShape)))
        << changes;
  }
}

TEST_F(FolderFaultsTest, AWrongSizeLeavesOpenTheShapesThatItDecides) {
  for (const auto& [changes, text] :
       {std::pair<json, const char*>{{{"hidden_size", "6"}}, "hidden_size is \"6\""},
        {{{"vocab_size", 0}}, "vocab_size is 0"},
        {{{"num_attention_heads", 4}}, "num_attention_heads is 4"},
        // Its own contradiction, in which any value may be the wrong one.
        {{{"layer_norm_eps", 1e-60}}, "norm_eps is 1e-60"}}) {
    EXPECT_THAT(RefusalOfBrokenWith(TinyBert(), changes),
                AllOf(HasSubstr(text), HasSubstr(kMissing), Not(HasSubstr("expected shape"))))
        << changes;
  }
}

TEST_F(FolderFaultsTest, NothingFollowsFromAWrongValue) {
  const auto one = [](const char* text) {
    return AllOf(HasSubstr(text), Not(HasSubstr("tensor")));
  };
  for (const json& config : TinyModels()) {
    for (const auto& [key, value] : config.items()) {
      if (key == "model_type") continue;
      for (const json& wrong : {json("no such value"), json{{"a", 1}}}) {
        EXPECT_THAT(RefusalWith(config, {{key, wrong}}), one(key.c_str())) << config;
      }
    }
  }
  for (const char* key : {"hidden_size", "vocab_size", "type_vocab_size", "num_attention_heads",
                          "num_hidden_layers", "intermediate_size", "max_position_embeddings"}) {
    for (const json& config : {TinyBert(), TinyRoberta(), TinyElectra(), TinyAlbert()}) {
      EXPECT_THAT(RefusalWith(config, {{key, 0}}), one(key)) << config;
    }
  }
  json one_width = TinyElectra();
  one_width["embedding_size"] = one_width["hidden_size"];
  EXPECT_THAT(RefusalWith(one_width, {{"embedding_size", "x"}}), one("embedding_size"));
  EXPECT_THAT(RefusalWith(TinyAlbert(), {{"num_hidden_groups", 3}}), one("num_hidden_groups"));
  EXPECT_THAT(RefusalWith(TinyBert(), {{"num_hidden_layers", 100000}}), one("num_layers"));
  EXPECT_THAT(RefusalWith(TinyRoberta(), {{"pad_token_id", 11}, {"max_position_embeddings", 17}}),
              one("position_padding_id is 11"));
  EXPECT_THAT(RefusalWith(TinyAttentionStack(), {{"num_classes", "x"}}), one("num_classes"));
  EXPECT_THAT(RefusalWith(TinyAttentionStack(), {{"output_net", 1}}), one("output_net"));
  EXPECT_THAT(RefusalWith(TinyAttentionStack(), {{"input_net", 1}}), one("input_net"));
}

TEST_F(FolderFaultsTest, NothingFollowsFromAMisspeltKey) {
  json config = TinyBert();
  config["num_layers"] = config["num_hidden_layers"];
  config["hiden_size"] = config["hidden_size"];
  config.erase("num_hidden_layers");
  config.erase("hidden_size");
  Write(config, TinyWeights(*SpecFromConfig(TinyBert())));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("num_layers is 2; this key is not known"),
                               HasSubstr("hiden_size is 6; this key is not known, and may change "
                                         "what the model computes; the nearest that is known is "
                                         "hidden_size"),
                               Not(HasSubstr("tensor"))));
}

TEST_F(FolderFaultsTest, NothingFollowsFromSwitchesThatNeedOtherTensors) {
  std::vector<TestTensor> tensors = TinyWeights(*SpecFromConfig(TinyTorchEncoder()));
  std::erase_if(tensors, [](const TestTensor& tensor) { return tensor.name.ends_with("bias"); });
  json config = TinyTorchEncoder();
  config["bias"] = false;
  Write(config, tensors);
  EXPECT_EQ(Refusal(), "DIR: config.json: bias is false; expected true; nothing else is supported");
}

TEST_F(FolderFaultsTest, NothingFollowsFromLabelsThatCannotBeCounted) {
  json config = TinyBert();
  config["architectures"] = {"BertForSequenceClassification"};
  config["id2label"] = {{"0", "no"}, {"1", "perhaps"}, {"2", "yes"}};
  for (const json& changes : {json{{"id2label", {{"0", "no"}, {"2", "yes"}}}},
                              {{"id2label", 3}},
                              {{"num_labels", 4}},
                              {{"id2label", nullptr}, {"num_labels", "x"}},
                              {{"id2label", nullptr}, {"num_labels", 100000}}}) {
    EXPECT_THAT(RefusalWith(config, changes), Not(HasSubstr("tensor"))) << changes;
  }
}

TEST_F(FolderFaultsTest, HasTheContradictionsOfAConfigurationBesideItsOtherFaults) {
  EXPECT_THAT(RefusalWith(TinyBert(), {{"hidden_act", "maxout"},
                                       {"num_attention_heads", 4},
                                       {"layer_norm_eps", 1e-60}}),
              AllOf(HasSubstr("3 faults"), HasSubstr("hidden_act is \"maxout\""),
                    HasSubstr("num_attention_heads is 4"), HasSubstr("norm_eps is 1e-60")));
}

TEST_F(FolderFaultsTest, JudgesTheTensorsOfACustomSpec) {
  json custom = SpecToJson(*SpecFromConfig(TinyBert()));
  for (const json& changes :
       {json{{"activation", "maxout"}}, {{"residual", 1}}, {{"default_normalize", 1}}}) {
    EXPECT_THAT(
        RefusalOfBrokenWith(custom, changes),
        AllOf(HasSubstr(changes.items().begin().key()), HasSubstr(kMissing), HasSubstr(kShape)));
  }
  for (const json& changes : {json{{"hidden_size", "6"}},
                              {{"qkv", "other"}},
                              {{"input", 1}},
                              {{"norm", 1}},
                              {{"ffn_size", -1}},
                              {{"num_heads", 0}},
                              {{"key", 1}},
                              {{"pooler", 1}},
                              {{"vocab_size", 0}}}) {
    EXPECT_THAT(RefusalWith(custom, changes), Not(HasSubstr("tensor \""))) << changes;
  }
}

// ---- Files that cannot be read ------------------------------------------------------------------

TEST_F(FolderFaultsTest, NothingFollowsFromAFileThatCannotBeRead) {
  const std::vector<TestTensor> all = TinyWeights(*SpecFromConfig(TinyBert()));
  json weight_map;
  for (const TestTensor& tensor : all) weight_map[tensor.name] = kSecond;
  weight_map[all[0].name] = kFirst;
  folder_.Write("config.json", TinyBert().dump());
  folder_.Write(kIndex, json({{"weight_map", weight_map}}).dump());
  folder_.Write(kFirst, Safetensors({all[0]}));
  folder_.Write(kSecond, "no safetensors");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(kSecond), Not(HasSubstr("tensor \""))));
  std::filesystem::remove(folder_.Path(kFirst));
  std::filesystem::remove(folder_.Path(kSecond));
  EXPECT_EQ(Refusal(), std::string("DIR/") + kIndex +
                           ": files that weight_map names are missing: " + kFirst + ", " + kSecond);
}

TEST_F(FolderFaultsTest, TellsOnceOfATensorThatIsNotWhereTheIndexPlacesIt) {
  std::vector<TestTensor> tensors = TinyWeights(*SpecFromConfig(TinyBert()));
  json weight_map;
  for (const TestTensor& tensor : tensors) weight_map[tensor.name] = kFirst;
  const std::string lost = tensors.back().name;
  tensors.pop_back();
  folder_.Write("config.json", TinyBert().dump());
  folder_.Write(kIndex, json({{"weight_map", weight_map}}).dump());
  folder_.Write(kFirst, Safetensors(tensors));
  EXPECT_EQ(Refusal(), std::string("DIR/") + kIndex + ": weight_map places tensor \"" + lost +
                           "\" in " + kFirst + "; it is in none of the files");
}

TEST_F(FolderFaultsTest, NothingFollowsFromADenseModuleThatCannotBeRead) {
  Write(TinyBert(), TinyWeights(*SpecFromConfig(TinyBert())));
  json modules = json::array();
  for (const auto& [type, path] : {std::pair{"Transformer", ""},
                                   {"Pooling", "1_Pooling"},
                                   {"Dense", "2_Dense"},
                                   {"Dense", "3_Dense"}}) {
    modules.push_back(
        {{"type", std::string("sentence_transformers.models.") + type}, {"path", path}});
  }
  folder_.Write("modules.json", modules.dump());
  folder_.Write("1_Pooling/config.json", "{}");
  json dense = {{"in_features", 6},
                {"out_features", 4},
                {"bias", false},
                {"activation_function", "torch.nn.modules.linear.Identity"}};
  const auto weights = [](int64_t out, int64_t in) {
    return Safetensors({FloatTensor("linear.weight", {out, in},
                                    std::vector<float>(static_cast<size_t>(out * in), 1))});
  };
  folder_.Write("2_Dense/model.safetensors", weights(4, 6));
  folder_.Write("3_Dense/model.safetensors", weights(2, 4));
  json second = dense;
  second.update({{"in_features", 4}, {"out_features", 2}});
  folder_.Write("3_Dense/config.json", second.dump());

  dense["out_features"] = 0;
  folder_.Write("2_Dense/config.json", dense.dump());
  EXPECT_EQ(Refusal(),
            "DIR/2_Dense/config.json: out_features is 0; expected an integer from 1 to "
            "268435456");
  dense["out_features"] = 4;
  folder_.Write("2_Dense/config.json", dense.dump());
  EXPECT_TRUE(OpenModelFolder(folder_.path()).ok());
  std::filesystem::remove(folder_.Path("2_Dense/model.safetensors"));
  EXPECT_EQ(Refusal(),
            "DIR/2_Dense: model.safetensors is missing, and so is "
            "model.safetensors.index.json");
}

TEST_F(FolderFaultsTest, NothingFollowsFromModulesThatCannotBeRead) {
  Write(TinyBert(), TinyWeights(*SpecFromConfig(TinyBert())));
  folder_.Write("modules.json", "{");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("DIR/modules.json"), Not(HasSubstr("\n"))));
  std::filesystem::remove(folder_.Path("config.json"));
  std::filesystem::remove(folder_.Path("model.safetensors"));
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("DIR/modules.json"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace encoderd
