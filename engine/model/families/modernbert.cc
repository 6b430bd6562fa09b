// model_type "modernbert": ModernBertModel as Hugging Face saves it: pre-norm blocks with rotary
// positions and a gated FFN, of which most look no further than a window (Warner et al. 2024).
#include <algorithm>
#include <string>
#include <string_view>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"
#include "engine/model/families/bert.h"
#include "engine/model/families/rotary_keys.h"
#include "engine/model/families/transformers_keys.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

using ::nlohmann::json;

constexpr std::string_view kHarmlessKeys[] = {
    // Dropout and training.
    "attention_dropout", "embedding_dropout", "mlp_dropout", "initializer_cutoff_factor",
    // How it is run: the same results.
    "deterministic_flash_attn", "reference_compile", "repad_logits_with_grad",
    // Of the heads, in so far as heads.h does not read them.
    "classifier_activation", "classifier_bias", "decoder_bias", "sparse_prediction",
    "sparse_pred_ignore_index",
    // In the files of the first checkpoints, and never read by the class.
    "layer_norm_eps", "position_embedding_type"};

constexpr NamedValue<Pooling> kClassifierPoolings[] = {{"cls", Pooling::kCls},
                                                       {"mean", Pooling::kMean}};

void NameTensors(ConfigReader& config, EncoderSpec& spec) {
  const bool norm_bias = config.Bool("norm_bias", false);
  const bool attention_bias = config.Bool("attention_bias", false);
  const bool mlp_bias = config.Bool("mlp_bias", false);
  spec.word_embedding.weight = "embeddings.tok_embeddings.weight";
  spec.embedding_norm = WithBias("embeddings.norm", norm_bias);
  const std::string block = "layers.{layer}.";
  if (spec.num_layers > 1) spec.norm1 = WithBias(block + "attn_norm", norm_bias);
  spec.fused_qkv = WithBias(block + "attn.Wqkv", attention_bias);
  spec.attention_output = WithBias(block + "attn.Wo", attention_bias);
  spec.norm2 = WithBias(block + "mlp_norm", norm_bias);
  spec.ffn_in = WithBias(block + "mlp.Wi", mlp_bias);
  spec.ffn_out = WithBias(block + "mlp.Wo", mlp_bias);
  spec.final_norm = WithBias("final_norm", norm_bias);
}

// From a list with the kind of each block: n where those at multiples of n, and no others, see all.
int64_t GlobalEvery(ConfigReader& config, const json& kinds, int64_t num_layers) {
  constexpr std::string_view kGlobal = "full_attention", kLocal = "sliding_attention";
  const auto is_global = [&](int64_t layer) {
    return kinds[static_cast<size_t>(layer)] == kGlobal;
  };
  int64_t every = num_layers;
  bool fits = kinds.is_array() && static_cast<int64_t>(kinds.size()) == num_layers;
  for (int64_t layer = 1; fits && layer < every; ++layer) {
    if (is_global(layer)) every = layer;
  }
  for (int64_t layer = 0; fits && layer < num_layers; ++layer) {
    const bool global = layer % every == 0;
    fits = kinds[static_cast<size_t>(layer)] == (global ? kGlobal : kLocal);
  }
  if (!fits && !config.InDoubt("num_hidden_layers")) {
    config.Fault("layer_types", absl::StrCat("a list of ", num_layers,
                                             " with \"full_attention\" at 0 and every so many "
                                             "blocks, \"sliding_attention\" in between"));
  }
  return fits ? every : 1;
}

// Which blocks are local, and how far they see.
void ReadWindow(ConfigReader& config, EncoderSpec& spec) {
  const int64_t every = config.Size("global_attn_every_n_layers", 3);
  const json* kinds = config.Find("layer_types");
  spec.global_every =
      kinds == nullptr || kinds->is_null() ? every : GlobalEvery(config, *kinds, spec.num_layers);
  // The width of the whole window, the token itself left out.
  const int64_t width = config.Size("local_attention", 128, 2);
  spec.local_window = spec.global_every > 1 ? width / 2 : 0;
}

// Each kind of blocks has a rotation of its own.
void ReadRotation(ConfigReader& config, EncoderSpec& spec) {
  config.Only("rope_scaling", nullptr);
  const json* both = config.Find("rope_parameters");
  const bool given = both != nullptr && !both->is_null();
  const json none = json::object();
  ConfigReader kinds = config.Nested(given ? *both : none, "rope_parameters");
  spec.rotary_width = spec.head_dim();
  spec.rotary_base = ReadRotaryBase(config, "global_rope_theta", 160000, kinds, "full_attention");
  // Null: local blocks turn as the global ones.
  const json* local = config.Find("local_rope_theta");
  const bool as_global = local != nullptr && local->is_null();
  spec.rotary_base_local =
      as_global ? ReadRotaryBase(config, "", spec.rotary_base, kinds, "sliding_attention")
                : ReadRotaryBase(config, "local_rope_theta", 10000, kinds, "sliding_attention");
  kinds.Finish();
}

// One transformation in front of every head.
constexpr HeadLayer kModernDense = {
    .name = "head.dense", .activation_key = "classifier_activation", .bias_key = "classifier_bias"};
constexpr HeadLayer kModernNorm = {.name = "head.norm", .norm = true, .bias_key = "norm_bias"};
constexpr HeadLayer kModernWords[] = {kModernDense,
                                      kModernNorm,
                                      {.name = "decoder",
                                       .out = HeadWidth::kVocab,
                                       .bias_key = "decoder_bias",
                                       .bias_by_default = true}};
constexpr HeadLayer kModernLabels[] = {
    kModernDense, kModernNorm, {.name = "classifier", .out = HeadWidth::kLabels}};
constexpr Head kHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kModernWords},
                           {"ForTokenClassification", HeadRows::kTokens, kModernLabels},
                           {"ForSequenceClassification", HeadRows::kSequences, kModernLabels}};

}  // namespace

EncoderSpec ModernBertSpec(ConfigReader& config) {
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  spec.vocab_size = config.Size("vocab_size", 50368);
  spec.max_positions = config.Size("max_position_embeddings", 8192);
  ReadBertSizes(config, {.num_layers = 22, .ffn_size = 1152}, spec);
  spec.norm = NormPlacement::kPre;
  spec.norm_eps = config.Positive("norm_eps", 1e-5);
  spec.first_norm1 = false;
  spec.final_norm_in_hidden_states = true;
  spec.qkv = QkvLayout::kFused;
  spec.score_scale = spec.usual_score_scale();
  spec.activation = config.Choice("hidden_activation", kTransformersActivations,
                                  std::optional(Activation::kGelu));
  spec.gate = Gate::kFirst;
  ReadWindow(config, spec);
  ReadRotation(config, spec);
  NameTensors(config, spec);
  ReadTransformersKeys(config);
  RefuseOwnCode(config);
  config.Ignore(kHarmlessKeys);
  ReadHead(config, "model.", kHeads, spec);
  const Pooling pooling =
      config.Choice("classifier_pooling", kClassifierPoolings, std::optional(Pooling::kCls));
  if (!spec.classifier.empty()) spec.classifier_pooling = pooling;
  return spec;
}

}  // namespace encoderd
