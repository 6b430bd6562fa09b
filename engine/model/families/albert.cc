// model_type "albert": AlbertModel as Hugging Face saves it: narrow tables, a mapping to the width
// of the blocks, and groups of blocks that share their tensors (Lan et al. 2019).
#include <string>
#include <string_view>

#include "engine/model/families.h"
#include "engine/model/families/bert.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

// Dropout of a head for tasks.
constexpr std::string_view kHarmlessKeys[] = {"classifier_dropout_prob"};

void NameBlocks(EncoderSpec& spec) {
  const std::string block = "encoder.albert_layer_groups.{layer}.albert_layers.0.";
  spec.query = WithBias(block + "attention.query");
  spec.key = WithBias(block + "attention.key");
  spec.value = WithBias(block + "attention.value");
  spec.attention_output = WithBias(block + "attention.dense");
  spec.norm1 = WithBias(block + "attention.LayerNorm");
  spec.ffn_in = WithBias(block + "ffn");
  spec.ffn_out = WithBias(block + "ffn_output");
  spec.norm2 = WithBias(block + "full_layer_layer_norm");
}

// Its vocabulary is read from vectors as narrow as the word table's.
constexpr HeadLayer kAlbertWords[] = {
    {.name = "predictions.dense", .out = HeadWidth::kWord, .activation = kModelsOwn},
    {.name = "predictions.LayerNorm", .norm = true},
    {.name = "predictions.decoder", .out = HeadWidth::kVocab, .bias = "predictions.bias"}};
constexpr HeadLayer kAlbertLabels[] = {{.name = "albert.pooler", .activation = Activation::kTanh},
                                       {.name = "classifier", .out = HeadWidth::kLabels}};
constexpr Head kHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kAlbertWords},
                           {"ForPreTraining", HeadRows::kTokens, kAlbertWords},
                           {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
                           {"ForSequenceClassification", HeadRows::kSequences, kAlbertLabels}};

}  // namespace

EncoderSpec AlbertSpec(ConfigReader& config) {
  EncoderSpec spec = ReadBertKeys(config, {.vocab_size = 30000,
                                           .hidden_size = 4096,
                                           .num_heads = 64,
                                           .ffn_size = 16384,
                                           .activation = Activation::kGeluTanh});
  NameBertEmbeddings(spec);
  NameBlocks(spec);
  AddTanhPooler(WithBias("pooler"), spec);
  spec.word_width = config.Size("embedding_size", 128);
  // Also where it changes no width.
  spec.embedding_steps = {
      {.names = WithBias("encoder.embedding_hidden_mapping_in"), .out = spec.hidden_size}};
  spec.layer_groups = config.Size("num_hidden_groups", 1);
  config.CheckDivides("num_hidden_groups", spec.layer_groups, "num_hidden_layers", spec.num_layers);
  config.Only("inner_group_num", 1, ConfigReader::Changes::kTensors);
  // Experiments of the first release, which the library does not have.
  config.Only("down_scale_factor", 1);
  config.Only("gap_size", 0);
  config.Only("net_structure_type", 0);
  config.Only("num_memory_blocks", 0);
  config.Only("layers_to_keep", nlohmann::json::array());
  config.Ignore(kHarmlessKeys);
  ReadHead(config, "albert.", kHeads, spec);
  return spec;
}

}  // namespace encoderd
