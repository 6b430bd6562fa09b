// model_type "albert": AlbertModel as Hugging Face saves it: narrow tables, a mapping to the width
// of the blocks, and groups of blocks that share their tensors (Lan et al. 2019).
#include <string>
#include <string_view>

#include "engine/model/bert.h"
#include "engine/model/families.h"
#include "engine/model/heads.h"
#include "engine/status_macros.h"

namespace encoderd {
namespace {

// Dropout of a head for tasks.
constexpr std::string_view kHarmlessKeys[] = {"classifier_dropout_prob"};

void NameBlocks(EncoderSpec& spec) {
  const auto both = [](const std::string& name) {
    const std::string block = "encoder.albert_layer_groups.{layer}.albert_layers.0.";
    return TensorNames{block + name + ".weight", block + name + ".bias"};
  };
  spec.query = both("attention.query");
  spec.key = both("attention.key");
  spec.value = both("attention.value");
  spec.attention_output = both("attention.dense");
  spec.norm1 = both("attention.LayerNorm");
  spec.ffn_in = both("ffn");
  spec.ffn_out = both("ffn_output");
  spec.norm2 = both("full_layer_layer_norm");
}

}  // namespace

absl::StatusOr<EncoderSpec> AlbertSpec(const nlohmann::json& json) {
  Faults faults;
  ConfigReader config(json, "", &faults);
  EncoderSpec spec = ReadBertKeys(config, {.vocab_size = 30000,
                                           .hidden_size = 4096,
                                           .num_heads = 64,
                                           .ffn_size = 16384,
                                           .activation = Activation::kGeluTanh});
  NameBertEmbeddings(spec);
  NameBlocks(spec);
  AddTanhPooler({"pooler.weight", "pooler.bias"}, spec);
  spec.word_width = config.Size("embedding_size", 128);
  // Also where it changes no width.
  spec.embedding_steps = {{.names = {"encoder.embedding_hidden_mapping_in.weight",
                                     "encoder.embedding_hidden_mapping_in.bias"},
                           .out = spec.hidden_size}};
  spec.layer_groups = config.Size("num_hidden_groups", 1);
  config.CheckDivides("num_hidden_groups", spec.layer_groups, "num_hidden_layers", spec.num_layers);
  config.Only("inner_group_num", 1);
  // Experiments of the first release, which the library does not have.
  config.Only("down_scale_factor", 1);
  config.Only("gap_size", 0);
  config.Only("net_structure_type", 0);
  config.Only("num_memory_blocks", 0);
  config.Only("layers_to_keep", nlohmann::json::array());
  config.Ignore(kHarmlessKeys);
  ReadHead(config, spec);
  config.Finish();
  RETURN_IF_ERROR(faults.ToStatus("config.json"));
  return spec;
}

}  // namespace encoderd
