// Goal:   BERT and the families that changed a part of it become the specs that their library computes.
// Method: the spec of every family field by field, each switch, and configurations as old and new
//         versions of the library save them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "absl/status/status_matchers.h"
#include "engine/model/families.h"
#include "tests/engine/model/family_configs.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace encoderd
