// model_type "mpnet": MPNetModel as Hugging Face saves it, with the defaults of MPNetConfig: BERT
// without token types, with RoBERTa's positions and T5's relative bias in every block.
#include <string>

#include "engine/model/families.h"
#include "engine/model/families/bert.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

void NameTensors(EncoderSpec& spec) {
  NameBertEmbeddings(spec);
  spec.type_embedding = {};
  NameBertBlocks(spec);
  const std::string attention = "encoder.layer.{layer}.attention.";
  spec.query = WithBias(attention + "attn.q");
  spec.key = WithBias(attention + "attn.k");
  spec.value = WithBias(attention + "attn.v");
  spec.attention_output = WithBias(attention + "attn.o");
  spec.norm1 = WithBias(attention + "LayerNorm");
  spec.relative_bias.weight = "encoder.relative_attention_bias.weight";
  AddTanhPooler(WithBias("pooler.dense"), spec);
}

}  // namespace

EncoderSpec MpnetSpec(ConfigReader& config) {
  // The padding and the bias' reach are the class' own numbers, without keys. It also computes with
  // 32 buckets where the key says otherwise.
  EncoderSpec spec = ReadBertKeys(config, {.vocab_size = 30527, .padding_id = 1});
  spec.type_vocab_size = 0;  // whatever the key says, it has none
  config.Only("relative_attention_num_buckets", 32, ConfigReader::Changes::kTensors);
  spec.position_bias = PositionBiasKind::kBuckets;
  spec.bias_buckets = 32;
  spec.bias_max_distance = 128;
  NameTensors(spec);
  ReadHead(config, "mpnet.", kLmHeadHeads, spec);
  return spec;
}

}  // namespace encoderd
