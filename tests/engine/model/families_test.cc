// Goal:   each config.json becomes the spec that its library computes, or is refused by key and
//         value; nothing that changes the maths is ignored.
// Method: the spec of every family field by field, each key missing and wrong, and configurations
//         as old and new versions of the library save them.
#include "engine/model/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status_matchers.h"
#include "absl/strings/string_view.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Matcher;
using ::testing::Not;

EncoderSpec SpecOf(const json& config) {
  auto spec = SpecFromConfig(config);
  EXPECT_THAT(spec.status(), IsOk());
  return spec.ok() ? *spec : EncoderSpec{};
}

json With(json config, const json& changes) {
  config.update(changes);
  return config;
}

json Without(json config, const char* key) {
  config.erase(key);
  return config;
}

void ExpectRefused(const json& config, const Matcher<absl::string_view>& message) {
  EXPECT_THAT(SpecFromConfig(config).status(), StatusIs(absl::StatusCode::kInvalidArgument,
                                                        AllOf(HasSubstr("config.json"), message)));
}

// ---- Any family ---------------------------------------------------------------------------------

TEST(FamiliesTest, NamesModelTypesThatItDoesNotHave) {
  const auto helpful =
      AllOf(HasSubstr("\"bert\""), HasSubstr("\"token_encoder\""), HasSubstr("\"custom\""));
  ExpectRefused(With(TinyBert(), {{"model_type", "no_family"}}),
                AllOf(HasSubstr("\"no_family\""), helpful));
  ExpectRefused(With(TinyBert(), {{"model_type", "BERT"}}), HasSubstr("\"BERT\""));
  ExpectRefused(With(TinyBert(), {{"model_type", 7}}), HasSubstr("model_type is 7"));
  ExpectRefused({{"architectures", {"BertModel"}}},
                AllOf(HasSubstr("model_type is missing"), helpful));
  ExpectRefused(json::array(), HasSubstr("expected an object"));
}

TEST(FamiliesTest, RefusesUnknownKeysOfEveryFamily) {
  for (const json& config : TinyModels()) {
    ExpectRefused(With(config, {{"sliding_window", 128}}), HasSubstr("sliding_window is 128"));
  }
}

TEST(FamiliesTest, RefusesSizesThatAreMissingOrImpossible) {
  for (const json& config : {TinyTokenEncoder(), TinySharedProjection(), TinyAttention()}) {
    for (const auto& [key, value] : config.items()) {
      if (key == "model_type") continue;
      ExpectRefused(With(config, {{key, 0}}), HasSubstr(key + " is 0"));
      ExpectRefused(With(config, {{key, "6"}}), HasSubstr(key + " is \"6\""));
      ExpectRefused(With(config, {{key, 1e18}}), HasSubstr(key));
      if (key != "num_layers")
        ExpectRefused(Without(config, key.c_str()), HasSubstr(key + " is missing"));
    }
  }
}

TEST(FamiliesTest, RefusesHeadsThatDoNotDivideTheWidth) {
  ExpectRefused(With(TinyAttention(), {{"num_heads", 4}}),
                HasSubstr("num_heads is 4; expected a divisor of embed_dim, which is 6"));
  ExpectRefused(With(TinySharedProjection(), {{"heads", 4}}), HasSubstr("embed_size, which is 6"));
  ExpectRefused(With(TinyTokenEncoder(), {{"num_heads", 4}}), HasSubstr("hidden_size, which is 6"));
  ExpectRefused(With(TinyTorchEncoder(), {{"nhead", 4}}), HasSubstr("d_model, which is 6"));
  ExpectRefused(With(TinyBert(), {{"num_attention_heads", 4}}),
                HasSubstr("hidden_size, which is 6"));
}

TEST(FamiliesTest, RefusesWidthsThatOverflowWhenMultiplied) {
  ExpectRefused(With(TinySharedProjection(),
                     {{"embed_size", 268435455}, {"forward_expansion", 268435456}, {"heads", 1}}),
                HasSubstr("ffn_size is"));
  ExpectRefused(With(TinyTokenEncoder(), {{"hidden_size", 268435456}}), HasSubstr("ffn_size is"));
}

TEST(FamiliesTest, ReportsAllFaultsOfAFileAtOnce) {
  ExpectRefused(
      With(TinyBert(), {{"position_embedding_type", "relative_key"},
                        {"is_decoder", true},
                        {"rope_scaling", {{"type", "linear"}}},
                        {"hidden_act", "gelu_10x"},
                        {"hidden_size", -6},
                        {"alibi", true}}),
      AllOf(HasSubstr("6 faults"), HasSubstr("\n  position_embedding_type is \"relative_key\""),
            HasSubstr("\n  is_decoder is true"),
            HasSubstr("\n  rope_scaling is {\"type\":\"linear\"}"),
            HasSubstr("\n  hidden_act is \"gelu_10x\""), HasSubstr("\n  hidden_size is -6"),
            HasSubstr("\n  alibi is true")));
}

// ---- fused_qkv_attention ------------------------------------------------------------------------

TEST(FusedQkvAttentionTest, IsAttentionAloneWithoutTheKeysOfAStack) {
  const EncoderSpec spec = SpecOf(With(TinyAttention(), {{"dropout", 0.1}}));
  EXPECT_EQ(spec.family, "fused_qkv_attention");
  EXPECT_EQ(spec.input, InputKind::kVectors);
  EXPECT_EQ(spec.input_dim, 5);
  EXPECT_EQ(spec.hidden_size, 6);
  EXPECT_EQ(spec.num_layers, 1);
  EXPECT_EQ(spec.ffn_size, 0);
  EXPECT_FALSE(spec.residual);
  EXPECT_EQ(spec.norm, NormPlacement::kNone);
  EXPECT_EQ(spec.qkv, QkvLayout::kFusedByHead);
  EXPECT_EQ(spec.score_scale, 1 / std::sqrt(3.0));
  EXPECT_EQ(spec.fused_qkv, (TensorNames{"qkv_proj.weight", "qkv_proj.bias"}));
  EXPECT_EQ(spec.attention_output, (TensorNames{"o_proj.weight", "o_proj.bias"}));
  EXPECT_EQ(spec.positions, PositionKind::kNone);
  EXPECT_TRUE(spec.logits.empty());
}

TEST(FusedQkvAttentionTest, IsAStackOfPostNormBlocks) {
  const EncoderSpec spec = SpecOf(TinyAttentionStack());
  EXPECT_EQ(spec.num_layers, 2);
  EXPECT_EQ(spec.ffn_size, 9);
  EXPECT_TRUE(spec.residual);
  EXPECT_EQ(spec.norm, NormPlacement::kPost);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.activation, Activation::kRelu);
  EXPECT_EQ(spec.positions, PositionKind::kSinusoidal);
  EXPECT_EQ(spec.max_positions, 8);
  ASSERT_EQ(spec.input_steps.size(), 1u);
  EXPECT_EQ(spec.input_steps[0],
            (Step{.names = {"input_net.1.weight", "input_net.1.bias"}, .out = 6}));
  ASSERT_EQ(spec.logits.size(), 3u);
  EXPECT_EQ(spec.logits[0],
            (Step{.names = {"output_net.0.weight", "output_net.0.bias"}, .out = 6}));
  EXPECT_EQ(spec.logits[1], (Step{.kind = Step::Kind::kNorm,
                                  .names = {"output_net.1.weight", "output_net.1.bias"},
                                  .out = 6,
                                  .activation = Activation::kRelu}));
  EXPECT_EQ(spec.logits[2],
            (Step{.names = {"output_net.4.weight", "output_net.4.bias"}, .out = 4}));
  EXPECT_EQ(spec.fused_qkv.weight, "layers.{layer}.self_attn.qkv_proj.weight");
  EXPECT_EQ(spec.ffn_out.bias, "layers.{layer}.linear_net.3.bias");
}

TEST(FusedQkvAttentionTest, LeavesOutWhatTheStackDoesNotHave) {
  const EncoderSpec spec = SpecOf({{"model_type", "fused_qkv_attention"},
                                   {"input_dim", 6},
                                   {"embed_dim", 6},
                                   {"num_heads", 2},
                                   {"num_layers", 1},
                                   {"ffn_dim", 9},
                                   {"input_net", false}});
  EXPECT_EQ(spec.num_layers, 1);
  EXPECT_TRUE(spec.residual);
  EXPECT_EQ(spec.positions, PositionKind::kNone);
  EXPECT_EQ(spec.max_positions, 0);
  EXPECT_TRUE(spec.input_steps.empty());
  EXPECT_TRUE(spec.logits.empty());
}

TEST(FusedQkvAttentionTest, RefusesHalfAStack) {
  ExpectRefused(Without(TinyAttentionStack(), "num_layers"), HasSubstr("num_layers is missing"));
  ExpectRefused(Without(TinyAttentionStack(), "ffn_dim"), HasSubstr("ffn_dim is missing"));
  ExpectRefused(Without(TinyAttentionStack(), "num_classes"), HasSubstr("num_classes is missing"));
  ExpectRefused(Without(TinyAttentionStack(), "output_net"), HasSubstr("num_classes is 4"));
  ExpectRefused(Without(TinyAttentionStack(), "input_net"), HasSubstr("input_dim is 5"));
  ExpectRefused(With(TinyAttention(), {{"max_len", 8}}), HasSubstr("num_layers is missing"));
  ExpectRefused(Without(Without(TinyAttentionStack(), "input_net"), "input_dim"),
                HasSubstr("input_dim is missing"));
}

// ---- shared_projection_encoder, token_encoder ---------------------------------------------------

TEST(SharedProjectionEncoderTest, ScalesByTheEmbedSize) {
  const EncoderSpec spec = SpecOf(TinySharedProjection());
  EXPECT_EQ(spec.score_scale, 1 / std::sqrt(6.0));
  EXPECT_EQ(spec.qkv, QkvLayout::kSharedByHeads);
  EXPECT_EQ(spec.input, InputKind::kVectors);
  EXPECT_EQ(spec.input_dim, 6);
  EXPECT_EQ(spec.ffn_size, 12);
  EXPECT_EQ(spec.norm, NormPlacement::kPost);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.activation, Activation::kRelu);
  EXPECT_EQ(spec.query, (TensorNames{"layers.{layer}.attention.queries.weight", ""}));
  EXPECT_EQ(spec.attention_output.bias, "layers.{layer}.attention.fc_out.bias");
}

TEST(TokenEncoderTest, ScalesByTheHeadAndGivesLogits) {
  const EncoderSpec spec = SpecOf(TinyTokenEncoder());
  EXPECT_EQ(spec.score_scale, 1 / std::sqrt(3.0));
  EXPECT_EQ(spec.input, InputKind::kTokenIds);
  EXPECT_EQ(spec.vocab_size, 7);
  EXPECT_EQ(spec.positions, PositionKind::kNone);
  EXPECT_EQ(spec.ffn_size, 24);
  EXPECT_EQ(spec.norm, NormPlacement::kPost);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.activation, Activation::kRelu);
  EXPECT_EQ(spec.query.bias, "transformer_blocks.{layer}.self_attn.query.bias");
  ASSERT_EQ(spec.logits.size(), 1u);
  EXPECT_EQ(spec.logits[0], (Step{.names = {"fc.weight", "fc.bias"}, .out = 7}));
}

// ---- torch_transformer_encoder ------------------------------------------------------------------

TEST(TorchTransformerEncoderTest, HasTheDefaultsOfTorch) {
  const EncoderSpec spec = SpecOf({{"model_type", "torch_transformer_encoder"},
                                   {"d_model", 512},
                                   {"nhead", 8},
                                   {"num_layers", 6},
                                   {"batch_first", true}});
  EXPECT_EQ(spec.ffn_size, 2048);
  EXPECT_EQ(spec.activation, Activation::kRelu);
  EXPECT_EQ(spec.norm, NormPlacement::kPost);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_EQ(spec.qkv, QkvLayout::kFused);
  EXPECT_EQ(spec.score_scale, 0.125);
  EXPECT_EQ(spec.final_norm, (TensorNames{"norm.weight", "norm.bias"}));
  EXPECT_TRUE(spec.final_norm_optional);
}

TEST(TorchTransformerEncoderTest, ReadsItsSwitches) {
  const EncoderSpec spec =
      SpecOf(With(TinyTorchEncoder(),
                  {{"activation", "gelu"}, {"norm_first", true}, {"layer_norm_eps", 1e-6}}));
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_EQ(spec.norm, NormPlacement::kPre);
  EXPECT_EQ(spec.norm_eps, 1e-6);
  ExpectRefused(With(TinyTorchEncoder(), {{"activation", "silu"}}), HasSubstr("\"silu\""));
  ExpectRefused(With(TinyTorchEncoder(), {{"bias", false}}), HasSubstr("bias is false"));
  ExpectRefused(With(TinyTorchEncoder(), {{"layer_norm_eps", 0}}),
                HasSubstr("layer_norm_eps is 0"));
}

// ---- bert ---------------------------------------------------------------------------------------

TEST(BertTest, HasTheDefaultsOfTheLibrary) {
  const EncoderSpec spec = SpecOf({{"model_type", "bert"}});
  EXPECT_EQ(spec.vocab_size, 30522);
  EXPECT_EQ(spec.type_vocab_size, 2);
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_EQ(spec.num_layers, 12);
  EXPECT_EQ(spec.hidden_size, 768);
  EXPECT_EQ(spec.num_heads, 12);
  EXPECT_EQ(spec.ffn_size, 3072);
  EXPECT_EQ(spec.norm_eps, 1e-12);
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_EQ(spec.score_scale, 0.125);
  EXPECT_EQ(spec.norm, NormPlacement::kPost);
  EXPECT_EQ(spec.positions, PositionKind::kLearned);
  EXPECT_EQ(spec.qkv, QkvLayout::kSeparate);
  EXPECT_TRUE(spec.pooler_optional);
  ASSERT_EQ(spec.pooler.size(), 1u);
  EXPECT_EQ(spec.pooler[0].activation, Activation::kTanh);
}

TEST(BertTest, TellsTheFormsOfGeluApart) {
  for (const auto& [name, activation] : {std::pair{"gelu", Activation::kGelu},
                                         {"gelu_new", Activation::kGeluTanh},
                                         {"gelu_pytorch_tanh", Activation::kGeluTanh},
                                         {"relu", Activation::kRelu},
                                         {"silu", Activation::kSilu},
                                         {"swish", Activation::kSilu}}) {
    EXPECT_EQ(SpecOf(With(TinyBert(), {{"hidden_act", name}})).activation, activation) << name;
  }
  ExpectRefused(With(TinyBert(), {{"hidden_act", "gelu_10x"}}),
                AllOf(HasSubstr("hidden_act is \"gelu_10x\""), HasSubstr("\"gelu_new\"")));
  ExpectRefused(With(TinyBert(), {{"hidden_act", nullptr}}), HasSubstr("hidden_act is null"));
}

TEST(BertTest, RefusesEverySwitchThatChangesTheMaths) {
  for (const json& change :
       {json{{"position_embedding_type", "relative_key_query"}}, json{{"is_decoder", true}},
        json{{"add_cross_attention", true}}, json{{"is_encoder_decoder", true}},
        json{{"pruned_heads", {{"0", {1}}}}}, json{{"rope_scaling", {{"factor", 2}}}},
        json{{"quantization_config", {{"bits", 8}}}}, json{{"auto_map", {{"AutoModel", "x.Y"}}}},
        json{{"embedding_size", 128}}, json{{"hidden_activation", "silu"}}}) {
    const std::string key = change.begin().key();
    ExpectRefused(With(TinyBert(), change), HasSubstr(key + " is " + change[key].dump()));
  }
}

TEST(BertTest, AcceptsTheSameSwitchesWhenTheyAreOff) {
  const EncoderSpec spec = SpecOf(With(TinyBert(), {{"position_embedding_type", "absolute"},
                                                    {"is_decoder", false},
                                                    {"add_cross_attention", false},
                                                    {"pruned_heads", json::object()},
                                                    {"rope_scaling", nullptr}}));
  EXPECT_EQ(spec, SpecOf(TinyBert()));
}

// What PretrainedConfig of six versions wrote beside the keys that count.
TEST(BertTest, LoadsConfigurationsOfAllVersions) {
  const EncoderSpec expected = SpecOf(TinyBert());
  for (const char* extras :
       {// 2.3, what later versions call otherwise
        R"({"architectures": ["BertModel"], "eos_token_ids": 0, "is_decoder": false,
               "output_past": true, "pruned_heads": {}, "use_bfloat16": false})",
        // 2.11, everything
        R"({"architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
               "bos_token_id": 0, "do_sample": false, "eos_token_id": 0,
               "finetuning_task": null, "hidden_dropout_prob": 0.1, "id2label": {"0": "LABEL_0"},
               "initializer_range": 0.02, "is_decoder": false, "label2id": {"LABEL_0": 0},
               "layer_norm_eps": 1e-12, "length_penalty": 1.0, "max_length": 20, "num_beams": 1,
               "num_labels": 2, "num_return_sequences": 1, "output_attentions": false,
               "output_hidden_states": false, "output_past": true, "pad_token_id": 0,
               "pruned_heads": {}, "repetition_penalty": 1.0, "temperature": 1.0, "top_k": 50,
               "top_p": 1.0, "torchscript": false, "use_bfloat16": false,
               "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
               "pooler_num_fc_layers": 3, "pooler_size_per_head": 128,
               "pooler_type": "first_token_transform"})",
        // 4.8, as a sentence encoder has it
        R"({"_name_or_path": "x", "architectures": ["BertModel"],
               "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": false,
               "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "initializer_range": 0.02,
               "layer_norm_eps": 1e-12, "pad_token_id": 0,
               "position_embedding_type": "absolute", "transformers_version": "4.8.2",
               "use_cache": true})",
        // 4.57
        R"({"architectures": ["BertModel"], "attention_probs_dropout_prob": 0.1,
               "classifier_dropout": null, "dtype": "float32", "hidden_dropout_prob": 0.1,
               "initializer_range": 0.02, "layer_norm_eps": 1e-12, "pad_token_id": 0,
               "position_embedding_type": "absolute", "problem_type": null,
               "torch_dtype": "float32", "transformers_version": "4.57.1", "use_cache": true})",
        // 5
        R"({"add_cross_attention": false, "bos_token_id": null, "classifier_dropout": null,
               "eos_token_id": null, "is_decoder": false, "tie_word_embeddings": true,
               "transformers_version": "5.24.0", "dtype": "float32"})"}) {
    EXPECT_EQ(SpecOf(With(TinyBert(), json::parse(extras))), expected);
  }
}

// ---- roberta, xlm-roberta, camembert ------------------------------------------------------------

TEST(RobertaTest, HasTheDefaultsOfItsThreeClasses) {
  EncoderSpec expected = SpecOf({{"model_type", "bert"}});
  expected.max_positions = 510;
  expected.position_padding_id = 1;
  for (const auto& [name, vocab] :
       {std::pair{"roberta", 50265}, {"xlm-roberta", 30522}, {"camembert", 30522}}) {
    expected.family = name;
    expected.vocab_size = vocab;
    EXPECT_EQ(SpecOf({{"model_type", name}}), expected);
  }
}

TEST(RobertaTest, TakesSequencesAsLongAsTheRowsBehindThePadding) {
  for (const auto& [padding, longest] : {std::pair{0, 6}, {1, 5}, {5, 1}}) {
    const EncoderSpec spec = SpecOf(With(TinyRoberta(), {{"pad_token_id", padding}}));
    EXPECT_EQ(spec.position_padding_id, padding);
    EXPECT_EQ(spec.max_positions, longest);
    EXPECT_EQ(spec.position_rows(), 7);
  }
  ExpectRefused(With(TinyRoberta(), {{"pad_token_id", 6}}),
                HasSubstr("max_position_embeddings is 7; expected an integer from 8 to"));
}

TEST(RobertaTest, RefusesPaddingThatIsNoToken) {
  ExpectRefused(With(TinyRoberta(), {{"pad_token_id", nullptr}}),
                HasSubstr("pad_token_id is null"));
  ExpectRefused(With(TinyRoberta(), {{"pad_token_id", -1}}), HasSubstr("pad_token_id is -1"));
  ExpectRefused(With(TinyRoberta(), {{"pad_token_id", 11}, {"max_position_embeddings", 20}}),
                HasSubstr("position_padding_id is 11; expected -1 to 10"));
}

TEST(RobertaTest, RefusesTheSwitchesThatBertRefuses) {
  ExpectRefused(With(TinyRoberta(), {{"position_embedding_type", "relative_key"},
                                     {"is_decoder", true},
                                     {"hidden_act", "mish"}}),
                AllOf(HasSubstr("3 faults"), HasSubstr("relative_key"), HasSubstr("is_decoder"),
                      HasSubstr("mish")));
}

// ---- distilbert ---------------------------------------------------------------------------------

TEST(DistilBertTest, HasTheDefaultsOfTheLibrary) {
  const EncoderSpec spec = SpecOf({{"model_type", "distilbert"}});
  EXPECT_EQ(spec.vocab_size, 30522);
  EXPECT_EQ(spec.type_vocab_size, 0);
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_EQ(spec.position_padding_id, -1);
  EXPECT_EQ(spec.num_layers, 6);
  EXPECT_EQ(spec.hidden_size, 768);
  EXPECT_EQ(spec.num_heads, 12);
  EXPECT_EQ(spec.ffn_size, 3072);
  EXPECT_EQ(spec.norm_eps, 1e-12);
  EXPECT_EQ(spec.score_scale, 0.125);
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_EQ(spec.positions, PositionKind::kLearned);
  EXPECT_EQ(spec.norm, NormPlacement::kPost);
  EXPECT_TRUE(spec.pooler.empty());
}

TEST(DistilBertTest, TakesItsTableFromTheFileHoweverItBegan) {
  const EncoderSpec spec = SpecOf(With(TinyDistilBert(), {{"sinusoidal_pos_embds", true}}));
  EXPECT_EQ(spec, SpecOf(TinyDistilBert()));
  EXPECT_EQ(spec.positions, PositionKind::kLearned);
}

TEST(DistilBertTest, ReadsItsKeysAndRefusesOthers) {
  EXPECT_EQ(SpecOf(With(TinyDistilBert(), {{"activation", "relu"}})).activation, Activation::kRelu);
  ExpectRefused(With(TinyDistilBert(), {{"activation", "mish"}}), HasSubstr("\"mish\""));
  ExpectRefused(With(TinyDistilBert(), {{"n_heads", 4}}),
                HasSubstr("n_heads is 4; expected a divisor of dim, which is 6"));
  ExpectRefused(With(TinyDistilBert(), {{"is_decoder", true}}), HasSubstr("is_decoder is true"));
  ExpectRefused(With(TinyDistilBert(), {{"layer_norm_eps", 1e-5}}), HasSubstr("layer_norm_eps"));
}

// ---- mpnet --------------------------------------------------------------------------------------

TEST(MpnetTest, HasTheDefaultsOfTheLibrary) {
  EncoderSpec expected = SpecOf({{"model_type", "roberta"}});
  expected.family = "mpnet";
  expected.vocab_size = 30527;
  expected.type_vocab_size = 0;
  expected.type_embedding = {};
  expected.position_bias = PositionBiasKind::kBuckets;
  expected.bias_buckets = 32;
  expected.bias_max_distance = 128;
  expected.relative_bias.weight = "encoder.relative_attention_bias.weight";
  const std::string block = "encoder.layer.{layer}.attention.";
  expected.query = {block + "attn.q.weight", block + "attn.q.bias"};
  expected.key = {block + "attn.k.weight", block + "attn.k.bias"};
  expected.value = {block + "attn.v.weight", block + "attn.v.bias"};
  expected.attention_output = {block + "attn.o.weight", block + "attn.o.bias"};
  expected.norm1 = {block + "LayerNorm.weight", block + "LayerNorm.bias"};
  EXPECT_EQ(SpecOf({{"model_type", "mpnet"}}), expected);
}

// The library computes with its own numbers whatever these keys say.
TEST(MpnetTest, HasOneTablesWorthOfBucketsAndOnePadding) {
  ExpectRefused(With(TinyMpnet(), {{"relative_attention_num_buckets", 64}}),
                HasSubstr("relative_attention_num_buckets is 64; expected 32"));
  EXPECT_EQ(SpecOf(With(TinyMpnet(), {{"pad_token_id", 3}})).position_padding_id, 1);
  ExpectRefused(With(TinyMpnet(), {{"max_position_embeddings", 2}}),
                HasSubstr("max_position_embeddings is 2; expected an integer from 3 to"));
}

// ---- deberta-v2 ---------------------------------------------------------------------------------

TEST(DebertaV2Test, HasTheDefaultsOfTheLibrary) {
  const EncoderSpec spec = SpecOf({{"model_type", "deberta-v2"}});
  EXPECT_EQ(spec.vocab_size, 128100);
  EXPECT_EQ(spec.type_vocab_size, 0);
  EXPECT_EQ(spec.positions, PositionKind::kLearned);
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_EQ(spec.num_layers, 24);
  EXPECT_EQ(spec.hidden_size, 1536);
  EXPECT_EQ(spec.num_heads, 24);
  EXPECT_EQ(spec.ffn_size, 6144);
  EXPECT_EQ(spec.norm_eps, 1e-7);
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_EQ(spec.position_bias, PositionBiasKind::kNone);
  EXPECT_EQ(spec.score_scale, 0.125);
  EXPECT_TRUE(spec.pooler.empty());
}

TEST(DebertaV2Test, ReadsItsTableOfRelativePositions) {
  const EncoderSpec spec = SpecOf(TinyDebertaV2());
  EXPECT_EQ(spec.position_bias, PositionBiasKind::kDisentangled);
  EXPECT_EQ(spec.bias_buckets, 8);
  EXPECT_EQ(spec.bias_max_distance, 5) << "max_position_embeddings";
  EXPECT_EQ(spec.relative_embedding.weight, "encoder.rel_embeddings.weight");
  EXPECT_EQ(spec.relative_embedding_norm.bias, "encoder.LayerNorm.bias");
  EXPECT_EQ(spec.position_key, TensorNames()) << "shared";
  EXPECT_EQ(spec.position_query, TensorNames()) << "shared";
  EXPECT_EQ(spec.score_scale, 1 / std::sqrt(3.0 * static_cast<double>(spec.head_dim())));
  EXPECT_EQ(spec.positions, PositionKind::kNone);
  EXPECT_EQ(spec.max_positions, 0) << "no table ends a sequence";

  const EncoderSpec other = SpecOf(With(TinyDebertaV2(), {{"position_buckets", -1},
                                                          {"max_relative_positions", 7},
                                                          {"norm_rel_ebd", "none"},
                                                          {"share_att_key", false}}));
  EXPECT_EQ(other.bias_buckets, 0);
  EXPECT_EQ(other.relative_rows(), 14);
  EXPECT_EQ(other.relative_embedding_norm, TensorNames());
  const std::string block = "encoder.layer.{layer}.attention.self.";
  EXPECT_EQ(other.position_key.weight, block + "pos_key_proj.weight");
  EXPECT_EQ(other.position_query.bias, block + "pos_query_proj.bias");
}

TEST(DebertaV2Test, ReadsTheProductsAsAListOrAText) {
  for (const json& both : {json{"c2p", "p2c"}, json("p2c|c2p"), json(" C2P | p2c")}) {
    EXPECT_EQ(SpecOf(With(TinyDebertaV2(), {{"pos_att_type", both}})), SpecOf(TinyDebertaV2()));
  }
  const json own = {{"pos_att_type", "p2c"}, {"share_att_key", false}};
  const EncoderSpec one = SpecOf(With(TinyDebertaV2(), own));
  EXPECT_FALSE(one.content_to_position);
  EXPECT_TRUE(one.position_to_content);
  EXPECT_EQ(one.position_key, TensorNames());
  EXPECT_EQ(one.score_scale, 1 / std::sqrt(2.0 * static_cast<double>(one.head_dim())));
  for (const json& unknown : {json("p2c|p2p"), json{"c2p", 7}, json(true)}) {
    ExpectRefused(With(TinyDebertaV2(), {{"pos_att_type", unknown}}),
                  HasSubstr("pos_att_type is " + unknown.dump()));
  }
}

// The class divides by the number of products that it does not make, and never reads the rest.
TEST(DebertaV2Test, WithoutRelativeAttentionIsBertWithSmallerScores) {
  const EncoderSpec spec = SpecOf(With(TinyDebertaV2(), {{"relative_attention", false},
                                                         {"position_buckets", 3},
                                                         {"position_biased_input", true},
                                                         {"type_vocab_size", 2}}));
  EXPECT_EQ(spec.position_bias, PositionBiasKind::kNone);
  EXPECT_EQ(spec.score_scale, SpecOf(TinyDebertaV2()).score_scale);
  EXPECT_EQ(spec.positions, PositionKind::kLearned);
  EXPECT_EQ(spec.type_embedding.weight, "embeddings.token_type_embeddings.weight");
  const EncoderSpec no_products = SpecOf(With(TinyDebertaV2(), {{"pos_att_type", nullptr}}));
  EXPECT_EQ(no_products.position_bias, PositionBiasKind::kNone);
}

TEST(DebertaV2Test, MapsNarrowTablesInFrontOfTheirNorm) {
  const EncoderSpec spec = SpecOf(With(TinyDebertaV2(), {{"embedding_size", 4}}));
  EXPECT_EQ(spec.word_width, 4);
  EXPECT_EQ(spec.embedding_norm, TensorNames());
  ASSERT_EQ(spec.embedding_steps.size(), 2u);
  EXPECT_EQ(spec.embedding_steps[0].names, (TensorNames{"embeddings.embed_proj.weight", ""}));
  EXPECT_EQ(spec.embedding_steps[1].names, WithBias("embeddings.LayerNorm"));
}

TEST(DebertaV2Test, RefusesWhatItDoesNotCompute) {
  ExpectRefused(With(TinyDebertaV2(), {{"conv_kernel_size", 3}}),
                HasSubstr("conv_kernel_size is 3; expected 0"));
  ExpectRefused(With(TinyDebertaV2(), {{"attention_head_size", 64}}),
                HasSubstr("attention_head_size is 64"));
  ExpectRefused(With(TinyDebertaV2(), {{"norm_rel_ebd", "batch_norm"}}),
                HasSubstr("norm_rel_ebd is \"batch_norm\""));
  ExpectRefused(With(TinyDebertaV2(), {{"position_buckets", 3}}),
                HasSubstr("position_buckets is 3; expected an even number"));
  ExpectRefused(With(TinyDebertaV2(), {{"position_buckets", 8}}),
                HasSubstr("position_buckets is 8; expected at most 6"));
  ExpectRefused(With(TinyDebertaV2(), {{"pooler_hidden_size", 7}}),
                HasSubstr("pooler_hidden_size is 7"));
  ExpectRefused(With(TinyDebertaV2(), {{"position_embedding_type", "absolute"}}),
                HasSubstr("position_embedding_type"));
}

// ---- electra ------------------------------------------------------------------------------------

TEST(ElectraTest, HasTheDefaultsOfTheLibrary) {
  const EncoderSpec spec = SpecOf({{"model_type", "electra"}});
  EXPECT_EQ(spec.vocab_size, 30522);
  EXPECT_EQ(spec.type_vocab_size, 2);
  EXPECT_EQ(spec.word_width, 128);
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_EQ(spec.num_layers, 12);
  EXPECT_EQ(spec.hidden_size, 256);
  EXPECT_EQ(spec.num_heads, 4);
  EXPECT_EQ(spec.ffn_size, 1024);
  EXPECT_EQ(spec.norm_eps, 1e-12);
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_TRUE(spec.pooler.empty());
  ASSERT_EQ(spec.embedding_steps.size(), 1u);
  EXPECT_EQ(spec.embedding_steps[0],
            (Step{.names = {"embeddings_project.weight", "embeddings_project.bias"}, .out = 256}));
}

TEST(ElectraTest, ProjectsOnlyWhereTheWidthsDiffer) {
  const EncoderSpec spec = SpecOf(With(TinyElectra(), {{"embedding_size", 6}}));
  EXPECT_TRUE(spec.embedding_steps.empty());
  EXPECT_EQ(spec.input_size(), 6);
  ExpectRefused(With(TinyElectra(), {{"embedding_size", 0}}), HasSubstr("embedding_size is 0"));
}

// ---- albert -------------------------------------------------------------------------------------

TEST(AlbertTest, HasTheDefaultsOfTheLibrary) {
  const EncoderSpec spec = SpecOf({{"model_type", "albert"}});
  EXPECT_EQ(spec.vocab_size, 30000);
  EXPECT_EQ(spec.type_vocab_size, 2);
  EXPECT_EQ(spec.word_width, 128);
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_EQ(spec.num_layers, 12);
  EXPECT_EQ(spec.layer_groups, 1);
  EXPECT_EQ(spec.hidden_size, 4096);
  EXPECT_EQ(spec.num_heads, 64);
  EXPECT_EQ(spec.ffn_size, 16384);
  EXPECT_EQ(spec.norm_eps, 1e-12);
  EXPECT_EQ(spec.activation, Activation::kGeluTanh);
  ASSERT_EQ(spec.pooler.size(), 1u);
  EXPECT_EQ(spec.pooler[0].names, (TensorNames{"pooler.weight", "pooler.bias"}));
  EXPECT_TRUE(spec.pooler_optional);
}

TEST(AlbertTest, MapsAlsoWhereTheWidthsAreEqual) {
  EXPECT_EQ(SpecOf(With(TinyAlbert(), {{"embedding_size", 6}})).embedding_steps.size(), 1u);
}

TEST(AlbertTest, RefusesGroupsThatItCannotShareAmongItsBlocks) {
  ExpectRefused(With(TinyAlbert(), {{"num_hidden_groups", 3}}),
                HasSubstr("num_hidden_groups is 3; expected a divisor of num_hidden_layers"));
  ExpectRefused(With(TinyAlbert(), {{"num_hidden_groups", 0}}),
                HasSubstr("num_hidden_groups is 0"));
  ExpectRefused(With(TinyAlbert(), {{"inner_group_num", 2}}), HasSubstr("inner_group_num is 2"));
}

// What albert-base-v1 and v2 say beside the keys that count.
TEST(AlbertTest, AcceptsTheKeysOfTheFirstReleaseWhenTheyAreOff) {
  const json off = {
      {"inner_group_num", 1},          {"down_scale_factor", 1}, {"gap_size", 0},
      {"net_structure_type", 0},       {"num_memory_blocks", 0}, {"layers_to_keep", json::array()},
      {"classifier_dropout_prob", 0.1}};
  EXPECT_EQ(SpecOf(With(TinyAlbert(), off)), SpecOf(TinyAlbert()));
  for (const char* key : {"down_scale_factor", "gap_size", "net_structure_type",
                          "num_memory_blocks", "layers_to_keep"}) {
    ExpectRefused(With(TinyAlbert(), {{key, 7}}), HasSubstr(std::string(key) + " is 7"));
  }
}

// ---- modernbert ---------------------------------------------------------------------------------

TEST(ModernBertTest, HasTheDefaultsOfTheLibrary) {
  const EncoderSpec spec = SpecOf({{"model_type", "modernbert"}});
  EXPECT_EQ(spec.vocab_size, 50368);
  EXPECT_EQ(spec.max_positions, 8192);
  EXPECT_EQ(spec.num_layers, 22);
  EXPECT_EQ(spec.hidden_size, 768);
  EXPECT_EQ(spec.num_heads, 12);
  EXPECT_EQ(spec.ffn_size, 1152);
  EXPECT_EQ(spec.norm, NormPlacement::kPre);
  EXPECT_EQ(spec.norm_eps, 1e-5);
  EXPECT_FALSE(spec.first_norm1);
  EXPECT_TRUE(spec.final_norm_in_hidden_states);
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_EQ(spec.gate, Gate::kFirst);
  EXPECT_EQ(spec.local_window, 64);
  EXPECT_EQ(spec.global_every, 3);
  EXPECT_EQ(spec.rotary_width, 64);
  EXPECT_EQ(spec.rotary_base, 160000);
  EXPECT_EQ(spec.rotary_base_local, 10000);
  EXPECT_EQ(spec.fused_qkv, (TensorNames{"layers.{layer}.attn.Wqkv.weight", ""}));
  EXPECT_EQ(spec.norm1, (TensorNames{"layers.{layer}.attn_norm.weight", ""}));
  EXPECT_EQ(spec.ffn_in, (TensorNames{"layers.{layer}.mlp.Wi.weight", ""}));
  EXPECT_EQ(spec.final_norm, (TensorNames{"final_norm.weight", ""}));
}

TEST(ModernBertTest, ReadsItsBiases) {
  const EncoderSpec spec =
      SpecOf(With(TinyModernBert(), {{"norm_bias", true}, {"mlp_bias", true}}));
  EXPECT_EQ(spec.embedding_norm.bias, "embeddings.norm.bias");
  EXPECT_EQ(spec.norm2.bias, "layers.{layer}.mlp_norm.bias");
  EXPECT_EQ(spec.ffn_out.bias, "layers.{layer}.mlp.Wo.bias");
  EXPECT_EQ(spec.attention_output.bias, "");
  EXPECT_EQ(SpecOf(With(TinyModernBert(), {{"attention_bias", true}})).attention_output.bias,
            "layers.{layer}.attn.Wo.bias");
}

TEST(ModernBertTest, ReadsTheBasesOfOldAndNewFiles) {
  const auto bases = [](const json& changes) {
    const EncoderSpec spec = SpecOf(With(TinyModernBert(), changes));
    return std::pair(spec.rotary_base, spec.rotary_base_local);
  };
  EXPECT_EQ(bases({{"global_rope_theta", 7}, {"local_rope_theta", 5}}), std::pair(7.0, 5.0));
  EXPECT_EQ(bases({{"global_rope_theta", 7}, {"local_rope_theta", nullptr}}), std::pair(7.0, 7.0));
  const json both = {{"full_attention", {{"rope_theta", 7}, {"rope_type", "default"}}},
                     {"sliding_attention", {{"rope_theta", 5}}}};
  EXPECT_EQ(bases({{"rope_parameters", both}}), std::pair(7.0, 5.0));
  EXPECT_EQ(bases({{"rope_parameters", both}, {"global_rope_theta", 9}}), std::pair(7.0, 5.0));
  EXPECT_EQ(bases({{"rope_parameters", {{"sliding_attention", nullptr}}}}),
            std::pair(160000.0, 10000.0));
}

TEST(ModernBertTest, ReadsWhichBlocksAreLocal) {
  const auto every = [](std::vector<std::string> kinds) {
    const EncoderSpec spec = SpecOf(With(TinyModernBert(), {{"layer_types", kinds}}));
    EXPECT_EQ(spec.local_window, spec.global_every > 1 ? 1 : 0);
    return spec.global_every;
  };
  const std::string full = "full_attention", local = "sliding_attention";
  EXPECT_EQ(every({full, full, full, full}), 1);
  EXPECT_EQ(every({full, local, full, local}), 2);
  EXPECT_EQ(every({full, local, local, full}), 3);
  EXPECT_EQ(every({full, local, local, local}), 4);
  EXPECT_EQ(SpecOf(With(TinyModernBert(), {{"global_attn_every_n_layers", 1}})).local_window, 0);
  for (const std::vector<std::string>& kinds : {std::vector{full, local, full, full},
                                                {local, local, local, local},
                                                {full, local, full},
                                                {full, local, full, "chunked_attention"}}) {
    ExpectRefused(With(TinyModernBert(), {{"layer_types", kinds}}), HasSubstr("layer_types is ["));
  }
}

TEST(ModernBertTest, RefusesWhatChangesTheMaths) {
  ExpectRefused(With(TinyModernBert(), {{"rope_scaling", {{"type", "yarn"}}}}),
                HasSubstr("rope_scaling is"));
  ExpectRefused(With(TinyModernBert(),
                     {{"rope_parameters", {{"full_attention", {{"rope_type", "linear"}}}}}}),
                HasSubstr("rope_parameters.full_attention.rope_type is \"linear\""));
  ExpectRefused(With(TinyModernBert(), {{"rope_parameters", {{"rope_theta", 7}}}}),
                HasSubstr("rope_parameters.rope_theta is 7"));
  ExpectRefused(With(TinyModernBert(), {{"local_attention", 1}}),
                HasSubstr("local_attention is 1"));
}

// ---- esm ----------------------------------------------------------------------------------------

TEST(EsmTest, HasTheDefaultsOfTheLibrary) {
  const EncoderSpec spec =
      SpecOf({{"model_type", "esm"}, {"vocab_size", 33}, {"position_embedding_type", "rotary"}});
  EXPECT_EQ(spec.vocab_size, 33);
  EXPECT_EQ(spec.max_positions, 1026);
  EXPECT_EQ(spec.num_layers, 12);
  EXPECT_EQ(spec.hidden_size, 768);
  EXPECT_EQ(spec.num_heads, 12);
  EXPECT_EQ(spec.ffn_size, 3072);
  EXPECT_EQ(spec.norm, NormPlacement::kPre);
  EXPECT_EQ(spec.norm_eps, 1e-12);
  EXPECT_EQ(spec.positions, PositionKind::kNone);
  EXPECT_EQ(spec.rotary_width, 64);
  EXPECT_EQ(spec.rotary_base, 10000);
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_FALSE(spec.token_dropout);
  EXPECT_TRUE(spec.embedding_norm.weight.empty());
  EXPECT_EQ(spec.contact, WithBias("contact_head.regression"));
  EXPECT_EQ(spec.contact_end_id, 2);
  EXPECT_EQ(spec.norm1.weight, "encoder.layer.{layer}.attention.LayerNorm.weight");
  EXPECT_EQ(spec.norm2.bias, "encoder.layer.{layer}.LayerNorm.bias");
  EXPECT_EQ(spec.final_norm.weight, "encoder.emb_layer_norm_after.weight");
  EXPECT_TRUE(spec.final_norm_in_hidden_states);
}

TEST(EsmTest, ReadsItsSwitches) {
  const EncoderSpec spec =
      SpecOf(With(TinyEsm(), {{"emb_layer_norm_before", true}, {"rope_theta", 500}}));
  EXPECT_EQ(spec.embedding_norm.weight, "embeddings.layer_norm.weight");
  EXPECT_EQ(spec.rotary_base, 500);
  EXPECT_TRUE(spec.token_dropout);
  EXPECT_EQ(spec.mask_token_id, 4);
  EXPECT_EQ(SpecOf(With(TinyEsm(), {{"emb_layer_norm_before", nullptr},
                                    {"token_dropout", nullptr},
                                    {"esmfold_config", nullptr},
                                    {"vocab_list", {"<cls>", "L"}}}))
                .token_dropout,
            false);
}

TEST(EsmTest, RefusesWhatIsNotEsm2) {
  ExpectRefused(With(TinyEsm(), {{"position_embedding_type", "absolute"}}),
                HasSubstr("position_embedding_type is \"absolute\"; expected \"rotary\""));
  ExpectRefused(Without(TinyEsm(), "position_embedding_type"),
                HasSubstr("position_embedding_type is missing; expected \"rotary\""));
  ExpectRefused(Without(TinyEsm(), "mask_token_id"), HasSubstr("mask_token_id is missing"));
  ExpectRefused(Without(TinyEsm(), "vocab_size"), HasSubstr("vocab_size is missing"));
  ExpectRefused(With(TinyEsm(), {{"mask_token_id", 11}}), HasSubstr("mask_token_id is 11"));
  ExpectRefused(With(TinyEsm(), {{"is_folding_model", true}}),
                HasSubstr("is_folding_model is true"));
  ExpectRefused(With(TinyEsm(), {{"hidden_act", "relu"}}), HasSubstr("hidden_act is \"relu\""));
  ExpectRefused(With(TinyEsm(), {{"rope_scaling", {{"type", "linear"}}}}),
                HasSubstr("rope_scaling is"));
  // Heads of 3 have no pairs.
  ExpectRefused(With(TinyEsm(), {{"num_attention_heads", 2}}), HasSubstr("rotary_width is 3"));
}

// ---- nomic_bert ---------------------------------------------------------------------------------

TEST(NomicBertTest, ReadsTheKeysOfTheFirstCheckpoints) {
  const EncoderSpec spec = SpecOf(With(TinyNomicBert(), {{"use_flash_attn", true},
                                                         {"auto_map", {{"AutoModel", "there"}}},
                                                         {"pad_vocab_size_multiple", 64}}));
  EXPECT_EQ(spec.max_positions, 5);
  EXPECT_EQ(spec.norm, NormPlacement::kPost);
  EXPECT_EQ(spec.norm_eps, 1e-12);
  EXPECT_EQ(spec.qkv, QkvLayout::kFused);
  EXPECT_EQ(spec.activation, Activation::kSilu);
  EXPECT_EQ(spec.gate, Gate::kSeparate);
  EXPECT_EQ(spec.ffn_in, (TensorNames{"encoder.layers.{layer}.mlp.fc11.weight", ""}));
  EXPECT_EQ(spec.ffn_gate, (TensorNames{"encoder.layers.{layer}.mlp.fc12.weight", ""}));
  EXPECT_EQ(spec.rotary_width, 2);
  EXPECT_EQ(spec.rotary_base, 1000);
  EXPECT_EQ(spec.fused_qkv.bias, "");
  const EncoderSpec biased = SpecOf(With(TinyNomicBert(), {{"activation_function", "geglu"},
                                                           {"n_head", 1},
                                                           {"rotary_emb_fraction", 2.0 / 3},
                                                           {"qkv_proj_bias", true},
                                                           {"mlp_fc1_bias", true},
                                                           {"mlp_fc2_bias", true}}));
  EXPECT_EQ(biased.activation, Activation::kGelu);
  EXPECT_EQ(biased.rotary_width, 4);
  EXPECT_EQ(biased.fused_qkv.bias, "encoder.layers.{layer}.attn.Wqkv.bias");
  EXPECT_EQ(biased.attention_output.bias, "encoder.layers.{layer}.attn.out_proj.bias");
  EXPECT_EQ(biased.ffn_gate.bias, "encoder.layers.{layer}.mlp.fc12.bias");
  EXPECT_EQ(biased.ffn_out.bias, "encoder.layers.{layer}.mlp.fc2.bias");
}

TEST(NomicBertTest, ReadsTheKeysOfTheLibrary) {
  const EncoderSpec spec = SpecOf({{"model_type", "nomic_bert"},
                                   {"head_dim", 64},
                                   {"rope_parameters", {{"rope_type", "default"}}}});
  EXPECT_EQ(spec.vocab_size, 30528);
  EXPECT_EQ(spec.type_vocab_size, 2);
  EXPECT_EQ(spec.max_positions, 2048);
  EXPECT_EQ(spec.ffn_size, 3072);
  EXPECT_EQ(spec.norm_eps, 1e-12);
  EXPECT_EQ(spec.activation, Activation::kSilu);
  EXPECT_EQ(spec.rotary_width, 64);
  EXPECT_EQ(spec.rotary_base, 1000);
  EXPECT_EQ(
      SpecOf({{"model_type", "nomic_bert"}, {"rope_parameters", {{"rope_theta", 7}}}}).rotary_base,
      7);
}

TEST(NomicBertTest, EndsAtTheTrainedPositionsWhereThoseBeyondAreScaled) {
  const json scaled = With(TinyNomicBert(), {{"n_positions", 8192}, {"rotary_scaling_factor", 2}});
  EXPECT_EQ(SpecOf(scaled).max_positions, 2048);
  EXPECT_EQ(SpecOf(With(scaled, {{"max_trained_positions", 100}})).max_positions, 100);
  EXPECT_EQ(SpecOf(With(scaled, {{"rotary_scaling_factor", nullptr}})).max_positions, 8192);
}

TEST(NomicBertTest, RefusesWhatChangesTheMaths) {
  for (const char* key : {"rotary_emb_interleaved", "prenorm", "parallel_block", "use_rms_norm",
                          "causal", "scale_attn_by_inverse_layer_idx"}) {
    ExpectRefused(With(TinyNomicBert(), {{key, true}}), HasSubstr(std::string(key) + " is true"));
  }
  for (const char* key : {"rotary_emb_scale_base", "moe_every_n_layers", "num_experts"}) {
    ExpectRefused(With(TinyNomicBert(), {{key, 8}}), HasSubstr(std::string(key) + " is 8"));
  }
  ExpectRefused(With(TinyNomicBert(), {{"scale_attn_weights", false}}),
                HasSubstr("scale_attn_weights is false"));
  ExpectRefused(With(TinyNomicBert(), {{"activation_function", "gelu"}}),
                HasSubstr("activation_function is \"gelu\""));
  ExpectRefused(With(TinyNomicBert(), {{"rotary_emb_fraction", 0}}),
                HasSubstr("rotary_emb_fraction is 0"));
  ExpectRefused(With(TinyNomicBert(), {{"rotary_emb_fraction", 0.7}}),
                HasSubstr("rotary_emb_fraction is 0.7; expected a whole number"));
  ExpectRefused({{"model_type", "nomic_bert"}, {"head_dim", 32}}, HasSubstr("head_dim is 32"));
  ExpectRefused(
      {{"model_type", "nomic_bert"}, {"rope_parameters", {{"rope_type", "yarn"}, {"factor", 4}}}},
      AllOf(HasSubstr("rope_parameters.rope_type is \"yarn\""),
            HasSubstr("rope_parameters.factor is 4")));
}

// ---- new, gte -----------------------------------------------------------------------------------

TEST(GteTest, ReadsTheKeysOfItsOwnCode) {
  const EncoderSpec spec = SpecOf(With(TinyGte(), {{"auto_map", {{"AutoModel", "there"}}},
                                                   {"position_embedding_type", "rope"},
                                                   {"layer_norm_type", "layer_norm"},
                                                   {"logn_attention_scale", false},
                                                   {"logn_attention_clip1", false},
                                                   {"pack_qkv", true},
                                                   {"rope_scaling", nullptr},
                                                   {"unpad_inputs", false},
                                                   {"use_memory_efficient_attention", false}}));
  EXPECT_EQ(spec, SpecOf(TinyGte()));
  EXPECT_EQ(spec.type_vocab_size, 0);
  EXPECT_EQ(spec.norm, NormPlacement::kPost);
  EXPECT_EQ(spec.rotary_base, 500000);
  EXPECT_EQ(spec.rotary_width, 2);
  EXPECT_EQ(spec.gate, Gate::kSecond);
  EXPECT_EQ(spec.ffn_in, (TensorNames{"encoder.layer.{layer}.mlp.up_gate_proj.weight", ""}));
  EXPECT_EQ(spec.ffn_out.bias, "encoder.layer.{layer}.mlp.down_proj.bias");
  EXPECT_EQ(SpecOf(With(TinyGte(), {{"type_vocab_size", 1}})).type_embedding.weight,
            "embeddings.token_type_embeddings.weight");
}

TEST(GteTest, StretchesItsPositionsByTheFactorOfItsOwnCode) {
  const EncoderSpec spec =
      SpecOf(With(TinyGte(), {{"rope_scaling", {{"type", "ntk"}, {"factor", 8.0}}}}));
  EXPECT_EQ(spec.rotary_base, 8 * 500000);
  EXPECT_EQ(spec.rotary_divisor, 8);  // a head has 2 values
  EXPECT_EQ(SpecOf(TinyGte()).rotary_divisor, 1);
}

TEST(GteTest, HasTheDefaultsOfTheLibrary) {
  const EncoderSpec spec = SpecOf({{"model_type", "gte"}});
  EXPECT_EQ(spec.vocab_size, 250048);
  EXPECT_EQ(spec.type_vocab_size, 1);
  EXPECT_EQ(spec.max_positions, 8192);
  EXPECT_EQ(spec.norm_eps, 1e-12);
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_EQ(spec.rotary_base, 160000);
}

TEST(GteTest, RefusesWhatChangesTheMaths) {
  const json library = {{"model_type", "gte"}};
  const json ntk = {{"type", "ntk"}, {"factor", 2.0}};
  ExpectRefused(With(library, {{"rope_scaling", ntk}}), HasSubstr("rope_scaling is {"));
  ExpectRefused(With(TinyGte(), {{"rope_scaling", With(ntk, {{"type", "linear"}})}}),
                HasSubstr("rope_scaling.type is \"linear\"; expected one of \"ntk\""));
  ExpectRefused(With(TinyGte(), {{"rope_scaling", With(ntk, {{"mixed_b", 0.5}})}}),
                HasSubstr("rope_scaling.mixed_b is 0.5"));
  ExpectRefused(With(TinyGte(), {{"rope_scaling", With(ntk, {{"factor", 0.5}})}}),
                HasSubstr("rope_scaling.factor is 0.5; expected a number from 1"));
  ExpectRefused(With(TinyGte(), {{"position_embedding_type", "absolute"}}),
                HasSubstr("position_embedding_type is \"absolute\""));
  ExpectRefused(With(TinyGte(), {{"layer_norm_type", "rms_norm"}}),
                HasSubstr("layer_norm_type is \"rms_norm\""));
  ExpectRefused(With(TinyGte(), {{"logn_attention_scale", true}}),
                HasSubstr("logn_attention_scale is true"));
  ExpectRefused(With(TinyGte(), {{"pack_qkv", false}}), HasSubstr("pack_qkv is false"));
  ExpectRefused(Without(TinyGte(), "rope_theta"), HasSubstr("rope_theta is missing"));
}

// ---- JinaBERT -----------------------------------------------------------------------------------

TEST(JinaBertTest, HasSlopesAndAGateInPlaceOfPositions) {
  const EncoderSpec spec = SpecOf(TinyJinaBert());
  EXPECT_EQ(spec.family, "bert");
  EXPECT_EQ(spec.positions, PositionKind::kNone);
  EXPECT_EQ(spec.position_embedding.weight, "");
  EXPECT_EQ(spec.position_bias, PositionBiasKind::kAlibi);
  EXPECT_EQ(spec.max_positions, 5);
  EXPECT_EQ(spec.gate, Gate::kFirst);
  EXPECT_EQ(spec.activation, Activation::kGelu);
  EXPECT_EQ(spec.ffn_in.weight, "encoder.layer.{layer}.mlp.gated_layers.weight");
  EXPECT_EQ(spec.ffn_in.bias, "");
  EXPECT_EQ(spec.ffn_out.bias, "encoder.layer.{layer}.mlp.wo.bias");
  EXPECT_EQ(spec.norm2.weight, "encoder.layer.{layer}.mlp.layernorm.weight");
}

TEST(JinaBertTest, ReadsWhichGateThereIs) {
  const EncoderSpec relu =
      SpecOf(With(TinyJinaBert(), {{"feed_forward_type", "reglu"}, {"hidden_act", "gelu"}}));
  EXPECT_EQ(relu.activation, Activation::kRelu);
  EXPECT_EQ(relu.gate, Gate::kFirst);
  const EncoderSpec none = SpecOf(Without(TinyJinaBert(), "feed_forward_type"));
  EXPECT_EQ(none.gate, Gate::kNone);
  EXPECT_EQ(none.ffn_in.weight, "encoder.layer.{layer}.intermediate.dense.weight");
}

TEST(JinaBertTest, RefusesWhatChangesTheMaths) {
  ExpectRefused(With(TinyJinaBert(), {{"feed_forward_type", "swiglu"}}),
                HasSubstr("feed_forward_type is \"swiglu\""));
  ExpectRefused(With(TinyJinaBert(), {{"emb_pooler", "cls"}}), HasSubstr("emb_pooler is \"cls\""));
  ExpectRefused(With(TinyBert(), {{"feed_forward_type", "geglu"}}),
                HasSubstr("feed_forward_type is \"geglu\""));
}

TEST(JinaBertTest, NamesItsOwnCodeAsBertMayNot) {
  const json code = {{"auto_map", {{"AutoModel", "code--modeling_bert.JinaBertModel"}}}};
  EXPECT_THAT(SpecFromConfig(With(TinyJinaBert(), code)).status(), IsOk());
  ExpectRefused(With(TinyBert(), code), HasSubstr("auto_map is"));
}

// ---- The first checkpoint of each of these families ---------------------------------------------

// As their config.json files are published.
TEST(PublishedConfigurationsTest, Load) {
  EXPECT_EQ(SpecOf(json::parse(R"({
    "architectures": ["RobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1,
    "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
    "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "roberta",
    "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
    "type_vocab_size": 1, "vocab_size": 50265})"))
                .max_positions,
            512);
  EXPECT_EQ(SpecOf(json::parse(R"({
    "architectures": ["XLMRobertaForMaskedLM"], "attention_probs_dropout_prob": 0.1,
    "bos_token_id": 0, "eos_token_id": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
    "layer_norm_eps": 1e-05, "max_position_embeddings": 514, "model_type": "xlm-roberta",
    "num_attention_heads": 12, "num_hidden_layers": 12, "output_past": true, "pad_token_id": 1,
    "position_embedding_type": "absolute", "transformers_version": "4.17.0.dev0",
    "type_vocab_size": 1, "use_cache": true, "vocab_size": 250002})"))
                .vocab_size,
            250002);
  EXPECT_EQ(SpecOf(json::parse(R"({
    "activation": "gelu", "architectures": ["DistilBertForMaskedLM"], "attention_dropout": 0.1,
    "dim": 768, "dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02,
    "max_position_embeddings": 512, "model_type": "distilbert", "n_heads": 12, "n_layers": 6,
    "pad_token_id": 0, "qa_dropout": 0.1, "seq_classif_dropout": 0.2,
    "sinusoidal_pos_embds": false, "tie_weights_": true, "transformers_version": "4.10.0.dev0",
    "vocab_size": 30522})"))
                .num_layers,
            6);
  EXPECT_EQ(SpecOf(json::parse(R"({
    "architectures": ["ElectraForPreTraining"], "attention_probs_dropout_prob": 0.1,
    "embedding_size": 128, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 256,
    "initializer_range": 0.02, "intermediate_size": 1024, "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512, "model_type": "electra", "num_attention_heads": 4,
    "num_hidden_layers": 12, "pad_token_id": 0, "position_embedding_type": "absolute",
    "summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_type": "first",
    "summary_use_proj": true, "transformers_version": "4.9.0.dev0", "type_vocab_size": 2,
    "use_cache": true, "vocab_size": 30522})"))
                .word_width,
            128);
  EXPECT_EQ(SpecOf(json::parse(R"({
    "architectures": ["AlbertForMaskedLM"], "attention_probs_dropout_prob": 0,
    "bos_token_id": 2, "classifier_dropout_prob": 0.1, "down_scale_factor": 1,
    "embedding_size": 128, "eos_token_id": 3, "gap_size": 0, "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0, "hidden_size": 768, "initializer_range": 0.02,
    "inner_group_num": 1, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512, "model_type": "albert", "net_structure_type": 0,
    "num_attention_heads": 12, "num_hidden_groups": 1, "num_hidden_layers": 12,
    "num_memory_blocks": 0, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30000})"))
                .num_groups(),
            1);
}

}  // namespace
}  // namespace encoderd
