// model_type "esm": EsmModel as Hugging Face saves it, with the rotary positions of ESM-2: a
// pre-norm encoder of proteins (Lin et al. 2022).
#include <string>
#include <string_view>

#include "engine/model/config_reader.h"
#include "engine/model/families.h"
#include "engine/model/families/bert.h"
#include "engine/model/families/transformers_keys.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

// The letters of the vocabulary, for people.
constexpr std::string_view kHarmlessKeys[] = {"vocab_list"};

// A switch may also be null, which is off.
bool IsOn(ConfigReader& config, std::string_view key) {
  const nlohmann::json* value = config.Find(key);
  return value != nullptr && !value->is_null() && config.Bool(key, false);
}

void NameTensors(EncoderSpec& spec) {
  spec.word_embedding.weight = "embeddings.word_embeddings.weight";
  NameBertBlocks(spec);
  spec.norm1 = WithBias("encoder.layer.{layer}.attention.LayerNorm");
  spec.norm2 = WithBias("encoder.layer.{layer}.LayerNorm");
  spec.final_norm = WithBias("encoder.emb_layer_norm_after");
  // Saved with the weights, once or for each block, and perhaps rounded as they were in training.
  spec.rotary_frequencies.weight = "rotary_embeddings.inv_freq";
  spec.aliases = {
      {"rotary_embeddings.inv_freq", "encoder.layer.0.attention.self.rotary_embeddings.inv_freq"},
      // What save_pretrained of transformers 5 makes of the names.
      {"rotary_embeddings.inv_freq", "encoder.layer.*.attention.self.rotary_embeddings.inv_freq"},
      {"LayerNorm.weight", "LayerNorm.gamma"},
      {"LayerNorm.bias", "LayerNorm.beta"}};
  spec.harmless = {
      "attention.self.rotary_embeddings.inv_freq",  // the same in every block
      "embeddings.position_ids",
      "embeddings.position_embeddings.weight",  // of the other kind of positions: never read
  };
}

void ReadSizes(ConfigReader& config, EncoderSpec& spec) {
  spec.vocab_size = config.Size("vocab_size");
  spec.max_positions = config.Size("max_position_embeddings", 1026);
  ReadBertSizes(config, {}, spec);
  spec.norm_eps = config.Positive("layer_norm_eps", 1e-12);
  spec.score_scale = spec.usual_score_scale();
  spec.rotary_width = spec.head_dim();
  spec.rotary_base = config.Positive("rope_theta", 10000);
}

}  // namespace

EncoderSpec EsmSpec(ConfigReader& config) {
  EncoderSpec spec;
  spec.family = config.Text("model_type");
  spec.input = InputKind::kTokenIds;
  ReadSizes(config, spec);
  spec.norm = NormPlacement::kPre;
  spec.qkv = QkvLayout::kSeparate;
  spec.activation = Activation::kGelu;
  config.Only("hidden_act", "gelu");  // the class has no other, whatever the key says
  // Without the key the class has a table of positions, as ESM-1b.
  if (config.Text("position_embedding_type", "absolute") != "rotary") {
    config.Fault("position_embedding_type", "\"rotary\"; nothing else is supported");
  }
  NameTensors(spec);
  if (IsOn(config, "emb_layer_norm_before")) {
    spec.embedding_norm = WithBias("embeddings.layer_norm");
  }
  spec.final_norm_in_hidden_states = true;
  spec.token_dropout = IsOn(config, "token_dropout");
  if (spec.token_dropout) spec.mask_token_id = config.Size("mask_token_id", std::nullopt, 0);
  AddTanhPooler(WithBias("pooler.dense"), spec);
  spec.contact = WithBias("contact_head.regression");
  spec.contact_end_id = 2;  // the class has no other, whatever eos_token_id says
  config.Only("is_folding_model", false);
  config.Only("esmfold_config", nullptr);
  ReadTransformersKeys(config);
  RefuseRotationKeys(config);
  RefuseOwnCode(config);
  config.Ignore(kHarmlessKeys);
  ReadHead(config, "esm.", kLmHeadHeads, spec);
  return spec;
}

}  // namespace encoderd
