// bert.h — what BERT shares with the families that descend from it: keys of config.json and names
// of tensors.
#pragma once

#include <cstdint>

#include "engine/model/config_reader.h"
#include "engine/model/spec.h"

namespace encoderd {

// What the configuration classes of these families disagree about.
struct BertDefaults {
  int64_t vocab_size = 30522;
  int64_t num_layers = 12;
  int64_t hidden_size = 768;
  int64_t num_heads = 12;
  int64_t ffn_size = 3072;
  Activation activation = Activation::kGelu;
  int64_t padding_id = -1;  // RoBERTa's rule: positions start behind this row
  const char* position_embedding_type = "absolute";
  bool own_code = false;  // it is the code in its own repository that auto_map names
};

// Numbers of blocks and heads, and the widths of both halves of a block.
void ReadBertSizes(ConfigReader& config, const BertDefaults& defaults, EncoderSpec& spec);

// Post-norm blocks over words, learned positions and token types, in the sizes that the keys of
// BertConfig give; no names yet. Refuses the switches and ignores the keys of transformers_keys.h.
EncoderSpec ReadBertKeys(ConfigReader& config, const BertDefaults& defaults);

// "embeddings.….": the three tables and the norm.
void NameBertEmbeddings(EncoderSpec& spec);
// "encoder.layer.{layer}.….".
void NameBertBlocks(EncoderSpec& spec);
// A linear layer and tanh on the first token, which a file may lack.
void AddTanhPooler(const TensorNames& names, EncoderSpec& spec);
// The head of a BertFor… or JinaBertFor… (heads.h).
void ReadBertHead(ConfigReader& config, EncoderSpec& spec);

// A "bert" whose positions are slopes on distances.
EncoderSpec JinaBertSpec(ConfigReader& config);

}  // namespace encoderd
