// Goal:   the families with rotary positions or slopes and with gates become the specs that their code
//         computes.
// Method: the spec of every family field by field, each switch, and the keys of old and new files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status_matchers.h"
#include "engine/model/families.h"
#include "tests/engine/model/family_configs.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

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

}  // namespace
}  // namespace encoderd
