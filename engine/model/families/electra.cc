// model_type "electra": ElectraModel as Hugging Face saves it, generator or discriminator: BERT
// without a pooler, whose tables may be narrower than its blocks.
#include <string_view>

#include "engine/model/families.h"
#include "engine/model/families/bert.h"
#include "engine/model/heads.h"

namespace encoderd {
namespace {

// Of the head for multiple choice.
constexpr std::string_view kHarmlessKeys[] = {"summary_type", "summary_use_proj",
                                              "summary_activation", "summary_last_dropout"};

// A generator over words, and a discriminator that says which were replaced.
constexpr HeadLayer kElectraWords[] = {{.name = "generator_predictions.dense",
                                        .out = HeadWidth::kWord,
                                        .activation = Activation::kGelu},
                                       {.name = "generator_predictions.LayerNorm", .norm = true},
                                       {.name = "generator_lm_head", .out = HeadWidth::kVocab}};
constexpr HeadLayer kElectraReplaced[] = {
    {.name = "discriminator_predictions.dense", .activation = kModelsOwn},
    {.name = "discriminator_predictions.dense_prediction", .out = HeadWidth::kOne}};
constexpr HeadLayer kElectraLabels[] = {
    {.name = "classifier.dense", .activation = Activation::kGelu},
    {.name = "classifier.out_proj", .out = HeadWidth::kLabels}};
constexpr Head kHeads[] = {{"ForMaskedLM", HeadRows::kTokens, kElectraWords},
                           {"ForPreTraining", HeadRows::kTokens, kElectraReplaced},
                           {"ForTokenClassification", HeadRows::kTokens, kTokenLabels},
                           {"ForSequenceClassification", HeadRows::kSequences, kElectraLabels}};

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
  ReadHead(config, "electra.", kHeads, spec);
  return spec;
}

}  // namespace encoderd
