// model_type "electra": ElectraModel as Hugging Face saves it, generator or discriminator: BERT
// without a pooler, whose tables may be narrower than its blocks.
#include <string_view>

#include "engine/model/bert.h"
#include "engine/model/families.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

// Of the head for multiple choice.
constexpr std::string_view kHarmlessKeys[] = {"summary_type", "summary_use_proj",
                                              "summary_activation", "summary_last_dropout"};

}  // namespace

EncoderSpec ElectraSpec(ConfigReader& config) {
  EncoderSpec spec = ReadBertKeys(config, {.hidden_size = 256, .num_heads = 4, .ffn_size = 1024});
  NameBertEmbeddings(spec);
  NameBertBlocks(spec);
  spec.word_width = config.Size("embedding_size", 128);
  const bool widths_known = !config.InDoubt("embedding_size") && !config.InDoubt("hidden_size");
  if (widths_known && spec.word_width != spec.hidden_size) {
    spec.embedding_steps = {{.names = WithBias("embeddings_project"), .out = spec.hidden_size}};
  }
  config.Ignore(kHarmlessKeys);
  ReadHead(config, spec);
  return spec;
}

}  // namespace encoderd
