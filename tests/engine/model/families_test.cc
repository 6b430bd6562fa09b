// Goal:   each config.json becomes the spec that its library computes, or is refused by key and value;
//         nothing that changes the maths is ignored. Here: what holds for any family.
// Method: each key missing and wrong; the first published configuration of every later family.
#include "engine/model/families.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/status/status_matchers.h"
#include "tests/engine/model/family_configs.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

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
