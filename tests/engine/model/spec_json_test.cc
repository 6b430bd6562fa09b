// Goal:   a spec survives JSON in every field, and JSON that is not a spec is refused by path.
// Method: a spec whose every field differs from its default, there and back; the families' specs;
//         the example of the README; one broken text for each rule.
#include "engine/model/spec_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/status/status_matchers.h"
#include "engine/io/file.h"
#include "engine/io/json.h"
#include "engine/model/families.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::IsOkAndHolds;
using ::absl_testing::StatusIs;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Reads a spec as it is, whether or not an encoder can be so.
absl::StatusOr<EncoderSpec> SpecFromJson(const json& config) {
  Faults faults;
  ConfigReader reader(config, "", &faults);
  EncoderSpec spec = CustomSpec(reader);
  reader.Finish();
  if (!faults.empty()) return faults.ToStatus("config.json");
  return spec;
}

// No field has its default, so that one which is left out on either way is missed.
EncoderSpec FullSpec() {
  EncoderSpec spec;
  spec.family = "mine";
  spec.input = InputKind::kVectors;
  spec.vocab_size = 1;
  spec.type_vocab_size = 2;
  spec.input_dim = 3;
  spec.positions = PositionKind::kSinusoidal;
  spec.max_positions = 4;
  spec.position_padding_id = 12;
  spec.word_width = 13;
  spec.token_dropout = true;
  spec.mask_token_id = 15;
  spec.gate = Gate::kSeparate;
  spec.first_norm1 = false;
  spec.rotary_width = 16;
  spec.rotary_base = 17;
  spec.rotary_base_local = 18;
  spec.rotary_divisor = 1.25;
  spec.ffn_gate = {"gg", "hh"};
  spec.rotary_frequencies = {"ii", ""};
  spec.embedding_steps = {{.names = {"ee", "ff"}, .out = 14, .activation = Activation::kRelu}};
  spec.input_steps = {{.kind = Step::Kind::kNorm,
                       .names = {"a.weight", "a.bias"},
                       .out = 5,
                       .activation = Activation::kSilu},
                      {.names = {"b.weight", ""}, .out = 6, .activation = Activation::kGeluTanh}};
  spec.word_embedding = {"c", ""};
  spec.position_embedding = {"d", ""};
  spec.type_embedding = {"e", ""};
  spec.embedding_norm = {"f", "g"};
  spec.num_layers = 7;
  spec.layer_groups = 5;
  spec.hidden_size = 8;
  spec.num_heads = 2;
  spec.ffn_size = 9;
  spec.residual = false;
  spec.norm = NormPlacement::kPre;
  spec.norm_eps = 1e-12;
  spec.qkv = QkvLayout::kSharedByHeads;
  spec.score_scale = 1 / 3.0;
  spec.position_bias = PositionBiasKind::kBuckets;
  spec.bias_buckets = 18;
  spec.bias_max_distance = 19;
  spec.relative_bias = {"ii", ""};
  spec.relative_embedding = {"jj", ""};
  spec.relative_embedding_norm = {"kk", "ll"};
  spec.position_key = {"mm", "nn"};
  spec.position_query = {"oo", "pp"};
  spec.content_to_position = false;
  spec.position_to_content = false;
  spec.local_window = 16;
  spec.global_every = 17;
  spec.activation = Activation::kTanh;
  spec.query = {"h", "i"};
  spec.key = {"j", "k"};
  spec.value = {"l", "m"};
  spec.fused_qkv = {"n", "o"};
  spec.attention_output = {"p", "q"};
  spec.norm1 = {"r", "s"};
  spec.ffn_in = {"t", "u"};
  spec.ffn_out = {"v", "w"};
  spec.norm2 = {"x", "y"};
  spec.final_norm = {"z", "aa"};
  spec.final_norm_optional = true;
  spec.final_norm_in_hidden_states = true;
  spec.logits = {{.names = {"bb", ""}, .out = 10, .activation = Activation::kRelu}};
  spec.classifier = {{.names = {"gg", "hh"}, .out = 15, .activation = Activation::kTanh}};
  spec.classifier_pooling = Pooling::kMean;
  spec.labels = {"no", "yes"};
  spec.ties = {{"bb", "c"}};
  spec.pooler = {{.names = {"cc", "dd"}, .out = 11, .activation = Activation::kGelu}};
  spec.pooler_optional = true;
  spec.contact = {"jj", "kk"};
  spec.contact_end_id = 20;
  spec.default_pooling = Pooling::kPooler;
  spec.default_normalize = true;
  spec.aliases = {{"weight", "gamma"}, {"bias", "beta"}};
  spec.harmless = {"position_ids"};
  return spec;
}

TEST(SpecJsonTest, KeepsEveryField) {
  const EncoderSpec spec = FullSpec();
  EXPECT_THAT(SpecFromJson(SpecToJson(spec)), IsOkAndHolds(spec));
  // The same as text: numbers keep every bit.
  const auto parsed = ParseJson(SpecToJson(spec).dump(), "spec");
  ASSERT_THAT(parsed.status(), IsOk());
  EXPECT_THAT(SpecFromJson(*parsed), IsOkAndHolds(spec));
}

// So that a new field leaves the text of a spec alone which does not use it: the numerics id of a
// model hangs on that text.
TEST(SpecJsonTest, LeavesOutWhatAnAbsentKeyMeans) {
  const json written = SpecToJson(SpecFromConfig(TinyBert()).value());
  for (const char* key : {"word_width", "position_padding_id", "layer_groups", "input_dim",
                          "local_window", "global_every", "position_bias", "content_to_position",
                          "default_pooling", "final_norm_optional"}) {
    EXPECT_FALSE(written.contains(key)) << key;
  }
  for (const char* key : {"residual", "norm", "norm_eps", "activation", "max_positions"}) {
    EXPECT_TRUE(written.contains(key)) << key;
  }
}

TEST(SpecJsonTest, KeepsEveryEnumerator) {
  EncoderSpec spec = FullSpec();
  for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kGelu,
                                Activation::kGeluTanh, Activation::kSilu, Activation::kTanh}) {
    spec.activation = activation;
    EXPECT_THAT(SpecFromJson(SpecToJson(spec)), IsOkAndHolds(spec));
  }
  for (const auto qkv : {QkvLayout::kSeparate, QkvLayout::kFused, QkvLayout::kFusedByHead,
                         QkvLayout::kSharedByHeads}) {
    spec.qkv = qkv;
    EXPECT_THAT(SpecFromJson(SpecToJson(spec)), IsOkAndHolds(spec));
  }
  for (const auto pooling : {Pooling::kCls, Pooling::kMean, Pooling::kMax, Pooling::kPooler}) {
    spec.default_pooling = pooling;
    EXPECT_THAT(SpecFromJson(SpecToJson(spec)), IsOkAndHolds(spec));
  }
  for (const auto positions :
       {PositionKind::kNone, PositionKind::kLearned, PositionKind::kSinusoidal}) {
    spec.positions = positions;
    EXPECT_THAT(SpecFromJson(SpecToJson(spec)), IsOkAndHolds(spec));
  }
  for (const auto bias : {PositionBiasKind::kNone, PositionBiasKind::kBuckets,
                          PositionBiasKind::kAlibi, PositionBiasKind::kDisentangled}) {
    spec.position_bias = bias;
    EXPECT_THAT(SpecFromJson(SpecToJson(spec)), IsOkAndHolds(spec));
  }
  for (const auto norm : {NormPlacement::kNone, NormPlacement::kPost, NormPlacement::kPre}) {
    spec.norm = norm;
    EXPECT_THAT(SpecFromJson(SpecToJson(spec)), IsOkAndHolds(spec));
  }
}

TEST(SpecJsonTest, WritesEveryFamilyAsACustomModel) {
  for (const json& config : TinyModels()) {
    auto spec = SpecFromConfig(config);
    ASSERT_THAT(spec.status(), IsOk());
    EXPECT_THAT(SpecFromConfig(SpecToJson(*spec)), IsOkAndHolds(*spec)) << config;
  }
}

// Everything that must be there, and nothing else.
json Minimal() {
  return json::parse(R"({
    "model_type": "custom", "input": "vectors", "input_dim": 4, "positions": "none",
    "num_layers": 1, "hidden_size": 4, "num_heads": 2, "ffn_size": 0, "residual": false,
    "norm": "none", "norm_eps": 1e-5, "qkv": "fused", "score_scale": 0.5, "activation": "none",
    "fused_qkv": {"weight": "in.weight"}, "attention_output": {"weight": "out.weight"}})");
}

TEST(SpecJsonTest, FillsInWhatLeavesTheMathsAlone) {
  const auto spec = SpecFromConfig(Minimal());
  ASSERT_THAT(spec.status(), IsOk());
  EXPECT_EQ(spec->family, "custom");
  EXPECT_EQ(spec->fused_qkv, (TensorNames{"in.weight", ""}));
  EXPECT_EQ(spec->default_pooling, Pooling::kMean);
  EXPECT_TRUE(spec->aliases.empty());
}

TEST(SpecJsonTest, WantsEveryKeyThatTheMathsHangOn) {
  for (const char* key :
       {"input", "positions", "num_layers", "hidden_size", "num_heads", "ffn_size", "residual",
        "norm", "norm_eps", "qkv", "score_scale", "activation"}) {
    json config = Minimal();
    config.erase(key);
    EXPECT_THAT(SpecFromJson(config), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr(std::string(key) + " is missing")));
  }
}

TEST(SpecJsonTest, NamesThePathOfEveryFault) {
  json config = Minimal();
  config["hidden_size"] = -4;
  config["norm"] = "sandwich";
  config["colour"] = "red";
  config["norm1"] = {{"bias", "b"}};
  config["logits"] = {{{"kind", "linear"}, {"names", {{"weight", "w"}}}, {"out", 3}},
                      {{"kind", "conv"}, {"names", {{"weight", 7}, {"w", 1}}}, {"out", 2.5}}};
  config["aliases"] = {{{"from", "x"}}};
  config["harmless"] = {1};
  EXPECT_THAT(SpecFromJson(config).status(),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("hidden_size is -4"), HasSubstr("norm is \"sandwich\""),
                             HasSubstr("colour is \"red\""), HasSubstr("norm1.weight is missing"),
                             HasSubstr("logits[1].kind is \"conv\""),
                             HasSubstr("logits[1].names.weight is 7"),
                             HasSubstr("logits[1].names.w is 1"), HasSubstr("logits[1].out is 2.5"),
                             HasSubstr("aliases[0].to is missing"), HasSubstr("harmless is [1]"))));
}

TEST(SpecJsonTest, RefusesListsAndObjectsOfOtherKinds) {
  for (const auto& [key, value] : {std::pair<const char*, json>{"logits", 1},
                                   {"logits", json::object()},
                                   {"logits", json::array({1})},
                                   {"aliases", "x"},
                                   {"harmless", "x"},
                                   {"norm1", "x"},
                                   {"norm1", nullptr}}) {
    json config = Minimal();
    config[key] = value;
    EXPECT_THAT(SpecFromJson(config), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(key)));
  }
}

// ---- The founding models, written by hand -------------------------------------------------------

// Each must be the very spec that its family makes, but for its name.
void ExpectSameSpec(const json& custom, const json& config) {
  const auto by_hand = SpecFromConfig(custom);
  ASSERT_THAT(by_hand.status(), IsOk());
  auto by_family = SpecFromConfig(config);
  ASSERT_THAT(by_family.status(), IsOk());
  by_family->family = "custom";
  EXPECT_EQ(*by_hand, *by_family) << SpecToJson(*by_hand) << "\n" << SpecToJson(*by_family);
}

TEST(CustomSpecTest, DescribesFusedQkvAttention) {
  ExpectSameSpec(json::parse(R"({
    "model_type": "custom", "input": "vectors", "input_dim": 5, "positions": "none",
    "num_layers": 1, "hidden_size": 6, "num_heads": 2, "ffn_size": 0, "residual": false,
    "norm": "none", "norm_eps": 1e-5, "qkv": "fused_by_head", "score_scale": 0.5773502691896258,
    "activation": "relu",
    "fused_qkv": {"weight": "qkv_proj.weight", "bias": "qkv_proj.bias"},
    "attention_output": {"weight": "o_proj.weight", "bias": "o_proj.bias"}})"),
                 TinyAttention());
}

TEST(CustomSpecTest, DescribesTheSharedProjectionEncoder) {
  ExpectSameSpec(json::parse(R"({
    "model_type": "custom", "input": "vectors", "input_dim": 6, "positions": "none",
    "num_layers": 2, "hidden_size": 6, "num_heads": 3, "ffn_size": 12, "residual": true,
    "norm": "post", "norm_eps": 1e-5, "qkv": "shared_by_heads", "score_scale": 0.4082482904638631,
    "activation": "relu",
    "query": {"weight": "layers.{layer}.attention.queries.weight"},
    "key": {"weight": "layers.{layer}.attention.keys.weight"},
    "value": {"weight": "layers.{layer}.attention.values.weight"},
    "attention_output": {"weight": "layers.{layer}.attention.fc_out.weight",
                         "bias": "layers.{layer}.attention.fc_out.bias"},
    "norm1": {"weight": "layers.{layer}.norm1.weight", "bias": "layers.{layer}.norm1.bias"},
    "ffn_in": {"weight": "layers.{layer}.feed_forward.0.weight",
               "bias": "layers.{layer}.feed_forward.0.bias"},
    "ffn_out": {"weight": "layers.{layer}.feed_forward.2.weight",
                "bias": "layers.{layer}.feed_forward.2.bias"},
    "norm2": {"weight": "layers.{layer}.norm2.weight", "bias": "layers.{layer}.norm2.bias"}})"),
                 TinySharedProjection());
}

// The example of the README is the third one, so that it cannot go stale.
TEST(CustomSpecTest, DescribesTheTokenEncoderAsInTheReadme) {
  const auto readme =
      ReadTextFile(ENCODERD_SOURCE_DIR "/engine/model/README.md", uint64_t{1} << 20);
  ASSERT_THAT(readme.status(), IsOk());
  const size_t key = readme->find("\"model_type\": \"custom\"");
  ASSERT_NE(key, std::string::npos);
  const size_t begin = readme->rfind("```json\n", key) + 8;
  const auto example = ParseJson(readme->substr(begin, readme->find("```", key) - begin), "README");
  ASSERT_THAT(example.status(), IsOk());
  ExpectSameSpec(*example, {{"model_type", "token_encoder"},
                            {"input_size", 1000},
                            {"hidden_size", 64},
                            {"num_heads", 4},
                            {"num_layers", 2}});
}

}  // namespace
}  // namespace encoderd
