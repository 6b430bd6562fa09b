// Goal:   what ValidateSpec lets through can be built; what cannot is refused by the field's name.
// Method: valid specs of all families, each broken in one field.
#include "engine/model/validate_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>

#include "absl/status/status_matchers.h"
#include "engine/model/families.h"
#include "tests/engine/model/tiny_models.h"

namespace encoderd {
namespace {

using ::absl_testing::IsOk;
using ::absl_testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Breaks the spec of `config` and expects a fault that says `message`.
void ExpectFault(const nlohmann::json& config, const std::string& message,
                 const std::function<void(EncoderSpec&)>& damage) {
  auto spec = SpecFromConfig(config);
  ASSERT_THAT(spec.status(), IsOk());
  damage(*spec);
  EXPECT_THAT(ValidateSpec(*spec), StatusIs(absl::StatusCode::kInvalidArgument,
                                            AllOf(HasSubstr("config.json"), HasSubstr(message))));
}

using Spec = EncoderSpec;
constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

TEST(ValidateSpecTest, AcceptsEveryFamily) {
  for (const nlohmann::json& config : TinyModels()) {
    EXPECT_THAT(SpecFromConfig(config), IsOk()) << config;
  }
}

TEST(ValidateSpecTest, RefusesImpossibleSizes) {
  const auto bert = TinyBert();
  ExpectFault(bert, "num_heads is 0", [](Spec& s) { s.num_heads = 0; });
  ExpectFault(bert, "num_heads is -3", [](Spec& s) { s.num_heads = -3; });
  ExpectFault(bert, "num_heads is 4; expected a divisor of hidden_size, which is 6",
              [](Spec& s) { s.num_heads = 4; });
  ExpectFault(bert, "hidden_size is 0", [](Spec& s) { s.hidden_size = 0; });
  ExpectFault(bert, "num_layers is 0", [](Spec& s) { s.num_layers = 0; });
  ExpectFault(bert, "num_layers is 5000", [](Spec& s) { s.num_layers = 5000; });
  ExpectFault(bert, "vocab_size is 0", [](Spec& s) { s.vocab_size = 0; });
  ExpectFault(bert, "ffn_size is -1", [](Spec& s) { s.ffn_size = -1; });
  for (auto field : {&Spec::vocab_size, &Spec::type_vocab_size, &Spec::max_positions,
                     &Spec::hidden_size, &Spec::ffn_size, &Spec::num_layers}) {
    ExpectFault(bert, std::to_string(kHuge), [field](Spec& s) { s.*field = kHuge; });
  }
  ExpectFault(TinyAttention(), "input_dim is 0", [](Spec& s) { s.input_dim = 0; });
}

TEST(ValidateSpecTest, RefusesNumbersThatCannotScale) {
  for (double value : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                       std::numeric_limits<double>::infinity()}) {
    ExpectFault(TinyBert(), "score_scale is", [value](Spec& s) { s.score_scale = value; });
    ExpectFault(TinyBert(), "norm_eps is", [value](Spec& s) { s.norm_eps = value; });
  }
}

TEST(ValidateSpecTest, RefusesInputsThatDoNotFit) {
  ExpectFault(TinyBert(), "input_dim is 6", [](Spec& s) { s.input_dim = 6; });
  ExpectFault(TinyAttention(), "vocab_size is 3", [](Spec& s) { s.vocab_size = 3; });
  ExpectFault(TinyBert(), "word_embedding.weight is missing",
              [](Spec& s) { s.word_embedding = {}; });
  ExpectFault(TinyAttention(), "word_embedding.weight is \"w\"",
              [](Spec& s) { s.word_embedding.weight = "w"; });
  ExpectFault(TinyBert(), "position_embedding.weight is",
              [](Spec& s) { s.positions = PositionKind::kNone; });
  ExpectFault(TinyBert(), "max_positions is 0", [](Spec& s) { s.max_positions = 0; });
  ExpectFault(TinyRoberta(), "position_padding_id is -2; expected -1 to 10",
              [](Spec& s) { s.position_padding_id = -2; });
  ExpectFault(TinyRoberta(), "position_padding_id is 11",
              [](Spec& s) { s.position_padding_id = 11; });
  ExpectFault(TinyTokenEncoder(), "position_padding_id is 1; expected -1 in a model without",
              [](Spec& s) { s.position_padding_id = 1; });
  ExpectFault(TinyBert(), "type_embedding.weight is", [](Spec& s) { s.type_vocab_size = 0; });
  for (auto steps : {&Spec::input_steps, &Spec::embedding_steps}) {
    ExpectFault(TinyBert(), "input_steps and embedding_steps end with width 7",
                [steps](Spec& s) { s.*steps = {{.names = {"w", ""}, .out = 7}}; });
  }
  ExpectFault(TinyBert(), "word_width, input_steps and embedding_steps end with width 4",
              [](Spec& s) { s.word_width = 4; });
  ExpectFault(TinyElectra(), "embedding_steps[0].out is 0",
              [](Spec& s) { s.embedding_steps[0].out = 0; });
  ExpectFault(TinyAttentionStack(), "word_width is 5; expected 0 to 0",
              [](Spec& s) { s.word_width = 5; });
}

TEST(ValidateSpecTest, RefusesBlocksThatCannotBeChained) {
  ExpectFault(TinySharedProjection(), "residual is true, but the input's width is 5",
              [](Spec& s) { s.input_dim = 5; });
  ExpectFault(TinySharedProjection(), "\"shared_by_heads\", but the input's width is 5",
              [](Spec& s) { s.input_dim = 5; });
  ExpectFault(TinyAttention(), "layer_groups is 1, but the input's width is 5",
              [](Spec& s) { s.layer_groups = 1; });
  ExpectFault(TinyAlbert(), "layer_groups is 3; expected 0 or a divisor of num_layers, which is 4",
              [](Spec& s) { s.layer_groups = 3; });
  ExpectFault(TinyAlbert(), "layer_groups is -1", [](Spec& s) { s.layer_groups = -1; });
  ExpectFault(TinyMpnet(), "relative_bias.weight is missing",
              [](Spec& s) { s.relative_bias = {}; });
  ExpectFault(TinyMpnet(), "bias_buckets is 2; expected 4", [](Spec& s) { s.bias_buckets = 2; });
  ExpectFault(TinyMpnet(), "bias_buckets is 33; expected an even",
              [](Spec& s) { s.bias_buckets = 33; });
  ExpectFault(TinyMpnet(), "bias_max_distance is 8; expected 9",
              [](Spec& s) { s.bias_max_distance = 8; });
  ExpectFault(TinyMpnet(), "relative_bias.weight is \"encoder.relative",
              [](Spec& s) { s.position_bias = PositionBiasKind::kAlibi; });
  ExpectFault(TinyBert(), "bias_max_distance is 128; expected 0 to 0",
              [](Spec& s) { s.bias_max_distance = 128; });
  ExpectFault(TinyBert(), "content_to_position or position_to_content is false; expected both",
              [](Spec& s) { s.content_to_position = false; });
  ExpectFault(TinyBert(), "position_key.weight is \"k\", but is used only when",
              [](Spec& s) { s.position_key = {"k", ""}; });
  ExpectFault(TinyDebertaV2(), "relative_embedding.weight is missing",
              [](Spec& s) { s.relative_embedding = {}; });
  ExpectFault(TinyDebertaV2(), "relative_embedding.weight is \"encoder.rel",
              [](Spec& s) { s.position_bias = PositionBiasKind::kAlibi; });
  ExpectFault(TinyDebertaV2(), "bias_buckets is 6; expected a multiple of 4",
              [](Spec& s) { s.bias_buckets = 6; });
  ExpectFault(TinyDebertaV2(), "bias_max_distance is 3; expected 4",
              [](Spec& s) { s.bias_max_distance = 3; });
  ExpectFault(TinyDebertaV2(), "bias_max_distance is 0; expected 1", [](Spec& s) {
    s.bias_buckets = 0;
    s.bias_max_distance = 0;
  });
  ExpectFault(TinyDebertaV2(), "both false; expected either", [](Spec& s) {
    s.content_to_position = false;
    s.position_to_content = false;
  });
  ExpectFault(TinyDebertaV2(), "position_key.weight is \"k.{layer}\", but content_to_position",
              [](Spec& s) {
                s.content_to_position = false;
                s.position_key = {"k.{layer}", ""};
              });
  ExpectFault(TinyDebertaV2(), "position_query.weight is \"q.{layer}\", but position_to_content",
              [](Spec& s) {
                s.position_to_content = false;
                s.position_query = {"q.{layer}", ""};
              });
  ExpectFault(TinyDebertaV2(), "position_query names \"q\" in all",
              [](Spec& s) { s.position_query = {"q", ""}; });
  ExpectFault(TinyDebertaV2(), "rotary_width is 2; expected 0 where",
              [](Spec& s) { s.rotary_width = 2; });
  ExpectFault(TinyDebertaV2(), "qkv is of another layout; expected \"separate\"",
              [](Spec& s) { s.qkv = QkvLayout::kSharedByHeads; });
  ExpectFault(TinyBert(), "local_window is 3 and global_every 1; expected",
              [](Spec& s) { s.local_window = 3; });
  ExpectFault(TinyBert(), "local_window is 0 and global_every 2; expected",
              [](Spec& s) { s.global_every = 2; });
  ExpectFault(TinyBert(), "local_window is -1", [](Spec& s) { s.local_window = -1; });
  ExpectFault(TinyBert(), "global_every is 0", [](Spec& s) { s.global_every = 0; });
  ExpectFault(TinyBert(), "residual is false", [](Spec& s) { s.residual = false; });
  ExpectFault(TinyBert(), "norm1.weight is", [](Spec& s) { s.norm = NormPlacement::kNone; });
  ExpectFault(TinyBert(), "norm2.weight is missing", [](Spec& s) { s.norm2 = {}; });
  ExpectFault(TinyBert(), "ffn_in.weight is", [](Spec& s) { s.ffn_size = 0; });
  ExpectFault(TinyBert(), "ffn_out.weight is missing", [](Spec& s) { s.ffn_out = {}; });
  ExpectFault(TinyBert(), "query.weight is missing", [](Spec& s) { s.query = {}; });
  ExpectFault(TinyBert(), "fused_qkv.weight is missing",
              [](Spec& s) { s.qkv = QkvLayout::kFused; });
  ExpectFault(TinyTorchEncoder(), "key.weight is missing",
              [](Spec& s) { s.qkv = QkvLayout::kSeparate; });
  ExpectFault(TinyBert(), "attention_output.weight is missing",
              [](Spec& s) { s.attention_output = {}; });
  ExpectFault(TinyBert(), "key.bias is \"b\" without a weight", [](Spec& s) { s.key = {"", "b"}; });
}

TEST(ValidateSpecTest, RefusesAFinalNormInHiddenStatesWithoutOne) {
  ExpectFault(TinyBert(), "final_norm_in_hidden_states is true; expected a name",
              [](Spec& s) { s.final_norm_in_hidden_states = true; });
}

TEST(ValidateSpecTest, RefusesRotationsThatDoNotFitAHead) {
  for (const int64_t width : {int64_t{-2}, int64_t{1}, int64_t{4}}) {
    ExpectFault(
        TinyBert(),
        "rotary_width is " + std::to_string(width) + "; expected an even number from 0 to 2",
        [width](Spec& s) { s.rotary_width = width; });
  }
  ExpectFault(TinyBert(), "rotary_base_local is -1", [](Spec& s) { s.rotary_base_local = -1; });
  ExpectFault(TinyModernBert(), "rotary_frequencies.weight is \"f\"; expected none where blocks",
              [](Spec& s) { s.rotary_frequencies = {"f", ""}; });
  ExpectFault(TinyBert(), "rotary_divisor is 0", [](Spec& s) { s.rotary_divisor = 0; });
  ExpectFault(TinyBert(), "rotary_base is 0", [](Spec& s) { s.rotary_base = 0; });
  ExpectFault(TinyTokenEncoder(), "max_positions is 0", [](Spec& s) { s.rotary_width = 2; });
  ExpectFault(TinyBert(), "rotary_frequencies.weight is \"f\"",
              [](Spec& s) { s.rotary_frequencies = {"f", ""}; });
}

TEST(ValidateSpecTest, RefusesGatesAndDropoutWithoutWhatTheyActOn) {
  ExpectFault(TinyAttention(), "gate is not \"none\"; expected ffn_size above 0",
              [](Spec& s) { s.gate = Gate::kFirst; });
  ExpectFault(TinyBert(), "ffn_gate.weight is missing", [](Spec& s) { s.gate = Gate::kSeparate; });
  ExpectFault(TinyBert(), "ffn_gate.weight is \"{layer}\"",
              [](Spec& s) { s.ffn_gate.weight = "{layer}"; });
  ExpectFault(TinyBert(), "first_norm1 is false; expected norm \"pre\"",
              [](Spec& s) { s.first_norm1 = false; });
  ExpectFault(TinyAttention(), "token_dropout is true; expected input \"token_ids\"",
              [](Spec& s) { s.token_dropout = true; });
  ExpectFault(TinyBert(), "mask_token_id is 11; expected 0 to 10", [](Spec& s) {
    s.token_dropout = true;
    s.mask_token_id = 11;
  });
  ExpectFault(TinyBert(), "mask_token_id is 1; expected 0 to 0",
              [](Spec& s) { s.mask_token_id = 1; });
}

TEST(ValidateSpecTest, RefusesNamesThatDoNotTellBlocksApart) {
  ExpectFault(TinyBert(), "query names \"q\" in all 2 layers",
              [](Spec& s) { s.query.weight = "q"; });
  ExpectFault(TinyAlbert(), "query names \"q\" in all 2 groups",
              [](Spec& s) { s.query.weight = "q"; });
  ExpectFault(TinyBert(), "norm2 names \"b\" in all 2 layers", [](Spec& s) { s.norm2.bias = "b"; });
  ExpectFault(TinyBert(), "outside the blocks",
              [](Spec& s) { s.word_embedding.weight = "{layer}.w"; });
  ExpectFault(TinyBert(), "outside the blocks",
              [](Spec& s) { s.pooler[0].names.bias = "{layer}.b"; });
}

TEST(ValidateSpecTest, RefusesStepsThatDoNotFitTogether) {
  ExpectFault(TinyAttentionStack(), "logits[1].out is 5; expected the width that a norm is given",
              [](Spec& s) { s.logits[1].out = 5; });
  ExpectFault(TinyAttentionStack(), "logits[2].out is 0", [](Spec& s) { s.logits[2].out = 0; });
  ExpectFault(TinyAttentionStack(), "logits[0].names.weight is missing",
              [](Spec& s) { s.logits[0].names = {}; });
  ExpectFault(TinyTokenEncoder(), "default_pooling is \"pooler\"",
              [](Spec& s) { s.default_pooling = Pooling::kPooler; });
}

TEST(ValidateSpecTest, RefusesLogitsThatDoNotFitTogether) {
  const auto words = TinyTokenEncoder();
  ExpectFault(words, "expected one of them", [](Spec& s) { s.classifier = s.logits; });
  ExpectFault(words, "labels has 2 entries", [](Spec& s) { s.labels = {"a", "b"}; });
  ExpectFault(TinyBert(), "labels has 1 entries", [](Spec& s) { s.labels = {"a"}; });
  ExpectFault(words, "classifier_pooling", [](Spec& s) { s.classifier_pooling = Pooling::kMax; });
  ExpectFault(words, "two different names", [](Spec& s) { s.ties = {{"a", "a"}}; });
  ExpectFault(words, "two different names", [](Spec& s) { s.ties = {{"", "a"}}; });
}

TEST(ValidateSpecTest, RefusesContactsThatDoNotFitTogether) {
  const auto words = TinyTokenEncoder();
  ExpectFault(words, "contact.bias is \"b\" without a weight",
              [](Spec& s) { s.contact.bias = "b"; });
  ExpectFault(words, "contact names \"{layer}\"", [](Spec& s) { s.contact.weight = "{layer}"; });
  ExpectFault(words, "contact_end_id is 2; expected -1 to -1",
              [](Spec& s) { s.contact_end_id = 2; });
  ExpectFault(words, "contact_end_id is -2", [](Spec& s) {
    s.contact = WithBias("contact");
    s.contact_end_id = -2;
  });
  ExpectFault(TinyAttentionStack(), "contact_end_id is 2", [](Spec& s) {
    s.contact = WithBias("contact");
    s.contact_end_id = 2;
  });
}

TEST(ValidateSpecTest, LimitsNamesAndLists) {
  ExpectFault(TinyTokenEncoder(), "512",
              [](Spec& s) { s.query.weight = "{layer}" + std::string(506, 'x'); });
  ExpectFault(TinyTokenEncoder(), "512",
              [](Spec& s) { s.final_norm.weight = std::string(513, 'x'); });
  ExpectFault(TinyBert(), "64", [](Spec& s) { s.aliases.resize(65, {"x", "y"}); });
  ExpectFault(TinyBert(), "64", [](Spec& s) { s.harmless.resize(65, "x"); });
  ExpectFault(TinyTokenEncoder(), "64", [](Spec& s) { s.logits.resize(65, s.logits[0]); });
}

TEST(ValidateSpecTest, RefusesHabitsThatFitEveryName) {
  ExpectFault(TinyBert(), "aliases", [](Spec& s) { s.aliases.push_back({"", "x"}); });
  ExpectFault(TinyBert(), "aliases", [](Spec& s) { s.aliases.push_back({"x", "x"}); });
  ExpectFault(TinyBert(), "harmless", [](Spec& s) { s.harmless.push_back(""); });
  ExpectFault(TinyTokenEncoder(), "final_norm_optional",
              [](Spec& s) { s.final_norm_optional = true; });
}

}  // namespace
}  // namespace encoderd
