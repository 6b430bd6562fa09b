// Goal:   the encoders that people write themselves in PyTorch become the specs that they compute.
// Method: the spec of every family field by field, and each switch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "absl/status/status_matchers.h"
#include "engine/model/families.h"
#include "tests/engine/model/family_configs.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::testing::HasSubstr;

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

}  // namespace
}  // namespace encoderd
