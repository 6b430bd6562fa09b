// model_type "nomic_bert": NomicBERT (Nussbaum et al. 2024), post-norm blocks with rotary positions
// and a gated FFN, by the keys of the first checkpoints or by those of NomicBertConfig in
// transformers. Both save the same tensors.
#include <algorithm>
#include <cmath>
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

// Of the first checkpoints: dropout, kernels, heads.
constexpr std::string_view kFirstHarmlessKeys[] = {
    "attn_pdrop",
    "embd_pdrop",
    "resid_pdrop",
    "dense_seq_output",
    "fused_bias_fc",
    "use_xentropy",
    "use_flash_attn",
    "fused_dropout_add_ln",
    "summary_activation",
    "summary_type",
    "summary_use_proj",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "reorder_and_upcast_attn",
    "pad_vocab_size_multiple"};  // the table has the rows that it adds

constexpr NamedValue<Activation> kGatedActivations[] = {{"swiglu", Activation::kSilu},
                                                        {"geglu", Activation::kGelu}};

void NameTensors(EncoderSpec& spec) {
  spec.word_embedding.weight = "embeddings.word_embeddings.weight";
  if (spec.type_vocab_size > 0) {
    spec.type_embedding.weight = "embeddings.token_type_embeddings.weight";
  }
  spec.embedding_norm = WithBias("emb_ln");
  const std::string block = "encoder.layers.{layer}.";
  spec.fused_qkv.weight = block + "attn.Wqkv.weight";
  spec.attention_output.weight = block + "attn.out_proj.weight";
  spec.norm1 = WithBias(block + "norm1");
  spec.ffn_in.weight = block + "mlp.fc11.weight";
  spec.ffn_gate.weight = block + "mlp.fc12.weight";
  spec.ffn_out.weight = block + "mlp.fc2.weight";
  spec.norm2 = WithBias(block + "norm2");
  spec.harmless = {"attn.rotary_emb.inv_freq"};
}

// Every key of the first checkpoints is in every one of them.
void ReadFirstKeys(ConfigReader& config, EncoderSpec& spec) {
  spec.type_vocab_size = config.Size("type_vocab_size", std::nullopt, 0);
  spec.max_positions = config.Size("n_positions");
  spec.num_layers = config.Size("n_layer");
  spec.hidden_size = config.Size("n_embd");
  spec.num_heads = config.Size("n_head");
  config.CheckDivides("n_head", spec.num_heads, "n_embd", spec.hidden_size);
  spec.ffn_size = config.Size("n_inner");
  spec.norm_eps = config.Positive("layer_norm_epsilon");
  spec.activation = config.Choice("activation_function", kGatedActivations);
  NameTensors(spec);
  if (config.Bool("qkv_proj_bias")) {
    spec.fused_qkv.bias = "encoder.layers.{layer}.attn.Wqkv.bias";
    spec.attention_output.bias = "encoder.layers.{layer}.attn.out_proj.bias";
  }
  if (config.Bool("mlp_fc1_bias")) {
    spec.ffn_in.bias = "encoder.layers.{layer}.mlp.fc11.bias";
    spec.ffn_gate.bias = "encoder.layers.{layer}.mlp.fc12.bias";
  }
  if (config.Bool("mlp_fc2_bias")) spec.ffn_out.bias = "encoder.layers.{layer}.mlp.fc2.bias";
  spec.rotary_base = config.Positive("rotary_emb_base");
  const double width =
      config.Positive("rotary_emb_fraction") * static_cast<double>(spec.head_dim());
  spec.rotary_width = std::llround(width);
  if (static_cast<double>(spec.rotary_width) != width) {
    config.Fault("rotary_emb_fraction", "a whole number of a head's values");
  }
  // Scaling begins behind the trained positions: up to there it changes nothing.
  const nlohmann::json* scaling = config.Find("rotary_scaling_factor");
  const int64_t trained = config.Size("max_trained_positions", 2048);
  if (scaling != nullptr && !scaling->is_null()) {
    spec.max_positions = std::min(spec.max_positions, trained);
  }
}

void RefuseFirstSwitches(ConfigReader& config) {
  using enum ConfigReader::Changes;
  for (const char* key : {"rotary_emb_interleaved", "prenorm", "causal",
                          "scale_attn_by_inverse_layer_idx", "expert_choice_router"}) {
    config.Only(key, false);
  }
  for (const char* key : {"parallel_block", "parallel_block_tied_norm", "use_rms_norm"}) {
    config.Only(key, false, kTensors);
  }
  config.Only("scale_attn_weights", true);
  config.Only("rotary_emb_scale_base", nullptr);
  // Mixtures of experts.
  config.Only("moe_every_n_layers", 0, kTensors);
  config.Only("num_experts", 0, kTensors);
  config.Only("num_shared_experts", 0, kTensors);
  config.Ignore(kFirstHarmlessKeys);
}

void ReadLibraryKeys(ConfigReader& config, EncoderSpec& spec) {
  spec.type_vocab_size = config.Size("type_vocab_size", 2);
  spec.max_positions = config.Size("max_position_embeddings", 2048);
  ReadBertSizes(config, {}, spec);
  spec.norm_eps = config.Positive("layer_norm_eps", 1e-12);
  spec.activation =
      config.Choice("hidden_act", kTransformersActivations, std::optional(Activation::kSilu));
  NameTensors(spec);
  if (config.InDoubt("hidden_size") || config.InDoubt("num_attention_heads")) {
    config.Ignore({{"head_dim"}});
  } else {
    config.Only("head_dim", spec.head_dim(), ConfigReader::Changes::kTensors);
  }
  spec.rotary_width = spec.head_dim();
  spec.rotary_base = ReadRotaryBase(config, "rope_theta", 1000);
}

constexpr HeadLayer kNomicWords[] = {
    {.name = "cls.predictions.transform.dense", .activation = kModelsOwn},
    {.name = "cls.predictions.transform.layer_norm", .norm = true},
    {.name = "cls.predictions.decoder", .out = HeadWidth::kVocab, .bias = "cls.predictions.bias"}};
constexpr HeadLayer kNomicLabels[] = {
    {.name = "nomic_bert.pooler.dense", .activation = Activation::kTanh},
    {.name = "classifier", .out = HeadWidth::kLabels}};
constexpr Head kHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kNomicWords},
                           {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
                           {"ForSequenceClassification", HeadRows::kSequences, kNomicLabels}};

}  // namespace

EncoderSpec NomicBertSpec(ConfigReader& config) {
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  spec.vocab_size = config.Size("vocab_size", 30528);
  spec.qkv = QkvLayout::kFused;
  spec.gate = Gate::kSeparate;
  if (config.Find("n_embd") != nullptr) {
    ReadFirstKeys(config, spec);
    RefuseFirstSwitches(config);
    RefuseRotationKeys(config);
  } else {
    ReadLibraryKeys(config, spec);
  }
  spec.score_scale = spec.usual_score_scale();
  AddTanhPooler(WithBias("pooler.dense"), spec);
  ReadTransformersKeys(config);
  config.Ignore(kOwnCodeKeys);
  ReadHead(config, "nomic_bert.", kHeads, spec);
  return spec;
}

}  // namespace encoderd
