// model_type "new" and "gte": GTE v1.5 and multilingual (Zhang et al. 2024), post-norm blocks with
// rotary positions and a gated FFN, as its own code and GteModel of transformers save it.
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

// How it is run: the same results.
constexpr std::string_view kHarmlessKeys[] = {"unpad_inputs", "use_memory_efficient_attention"};

void NameTensors(EncoderSpec& spec) {
  spec.word_embedding.weight = "embeddings.word_embeddings.weight";
  if (spec.type_vocab_size > 0) {
    spec.type_embedding.weight = "embeddings.token_type_embeddings.weight";
  }
  spec.embedding_norm = WithBias("embeddings.LayerNorm");
  const std::string block = "encoder.layer.{layer}.";
  spec.fused_qkv = WithBias(block + "attention.qkv_proj");
  spec.attention_output = WithBias(block + "attention.o_proj");
  spec.norm1 = WithBias(block + "attn_ln");
  spec.ffn_in.weight = block + "mlp.up_gate_proj.weight";
  spec.ffn_out = WithBias(block + "mlp.down_proj");
  spec.norm2 = WithBias(block + "mlp_ln");
  spec.harmless = {"embeddings.position_ids", "embeddings.rotary_emb.inv_freq"};
}

constexpr NamedValue<bool> kScalings[] = {{"ntk", true}};

// Positions scaled so that the longest wave is as many times longer as texts are than in training:
// the base is `factor` times as large, and each of the d / 2 frequencies that it gives is divided by
// factor ^ (2 / d) (NTK-aware scaling, as the model's own code has it).
void ReadScaling(ConfigReader& config, EncoderSpec& spec) {
  const nlohmann::json* scaling = config.Find("rope_scaling");
  if (scaling == nullptr || scaling->is_null()) return;
  ConfigReader keys = config.Nested(*scaling, config.PathOf("rope_scaling"));
  keys.Choice("type", kScalings);
  keys.Only("mixed_b", nullptr);
  const double factor = keys.Positive("factor");
  if (factor < 1) keys.Fault("factor", "a number from 1");
  keys.Finish();
  spec.rotary_base *= factor;
  spec.rotary_divisor = std::pow(factor, 2 / static_cast<double>(spec.head_dim()));
}

// Sizes, of which each is in every file of the model's own code.
void ReadOwnKeys(ConfigReader& config, EncoderSpec& spec) {
  spec.vocab_size = config.Size("vocab_size");
  spec.type_vocab_size = config.Size("type_vocab_size", std::nullopt, 0);
  spec.max_positions = config.Size("max_position_embeddings");
  spec.num_layers = config.Size("num_hidden_layers");
  spec.hidden_size = config.Size("hidden_size");
  spec.num_heads = config.Size("num_attention_heads");
  config.CheckDivides("num_attention_heads", spec.num_heads, "hidden_size", spec.hidden_size);
  spec.ffn_size = config.Size("intermediate_size");
  spec.norm_eps = config.Positive("layer_norm_eps");
  spec.activation = config.Choice("hidden_act", kTransformersActivations);
  spec.rotary_base = config.Positive("rope_theta");
  ReadScaling(config, spec);
  config.Only("rope_parameters", nullptr);
}

// The same with the defaults of GteConfig.
void ReadLibraryKeys(ConfigReader& config, EncoderSpec& spec) {
  spec.vocab_size = config.Size("vocab_size", 250048);
  spec.type_vocab_size = config.Size("type_vocab_size", 1, 0);
  spec.max_positions = config.Size("max_position_embeddings", 8192);
  ReadBertSizes(config, {}, spec);
  spec.norm_eps = config.Positive("layer_norm_eps", 1e-12);
  spec.activation =
      config.Choice("hidden_act", kTransformersActivations, std::optional(Activation::kGelu));
  spec.rotary_base = ReadRotaryBase(config, "rope_theta", 160000);
}

// Its own code and the library's classes differ by the prefix.
constexpr HeadLayer kGteWords[] = {{.name = "lm_head.dense", .activation = Activation::kGelu},
                                   {.name = "lm_head.norm", .norm = true},
                                   {.name = "lm_head.decoder", .out = HeadWidth::kVocab}};
constexpr HeadLayer kNewLabels[] = {{.name = "new.pooler.dense", .activation = Activation::kTanh},
                                    {.name = "classifier", .out = HeadWidth::kLabels}};
constexpr HeadLayer kGteLabels[] = {{.name = "gte.pooler.dense", .activation = Activation::kTanh},
                                    {.name = "classifier", .out = HeadWidth::kLabels}};
constexpr Head kNewHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kGteWords},
                              {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
                              {"ForSequenceClassification", HeadRows::kSequences, kNewLabels}};
constexpr Head kGteHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kGteWords},
                              {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
                              {"ForSequenceClassification", HeadRows::kSequences, kGteLabels}};

}  // namespace

EncoderSpec GteSpec(ConfigReader& config) {
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  if (spec.family == "new") {
    ReadOwnKeys(config, spec);
  } else {
    ReadLibraryKeys(config, spec);
  }
  spec.qkv = QkvLayout::kFused;
  spec.score_scale = spec.usual_score_scale();
  spec.rotary_width = spec.head_dim();
  spec.gate = Gate::kSecond;
  NameTensors(spec);
  AddTanhPooler(WithBias("pooler.dense"), spec);
  config.Only("position_embedding_type", "rope");
  config.Only("layer_norm_type", "layer_norm", ConfigReader::Changes::kTensors);
  config.Only("logn_attention_scale", false);
  config.Only("logn_attention_clip1", false);
  config.Only("pack_qkv", true, ConfigReader::Changes::kTensors);
  ReadTransformersKeys(config);
  config.Ignore(kOwnCodeKeys);
  config.Ignore(kHarmlessKeys);
  if (spec.family == "new") {
    ReadHead(config, "new.", kNewHeads, spec);
  } else {
    ReadHead(config, "gte.", kGteHeads, spec);
  }
  return spec;
}

}  // namespace encoderd
