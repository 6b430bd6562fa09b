// model_type "roberta", "xlm-roberta" and "camembert": BERT whose positions start behind the
// padding's, as RobertaModel, XLMRobertaModel and CamembertModel compute it.
#include "absl/strings/str_cat.h"
#include "engine/model/bert.h"
#include "engine/model/families.h"
#include "engine/model/heads.h"

namespace encoderd {

EncoderSpec RobertaSpec(ConfigReader& config) {
  // The other two classes kept BERT's vocabulary as their default.
  EncoderSpec spec =
      ReadBertKeys(config, {.vocab_size = config.Text("model_type") == "roberta" ? 50265 : 30522});
  NameBertEmbeddings(spec);
  NameBertBlocks(spec);
  AddTanhPooler(WithBias("pooler.dense"), spec);

  // max_position_embeddings counts the rows of the table; those up to the padding's serve no text.
  spec.position_padding_id = config.Size("pad_token_id", 1, /*least=*/0);
  const int64_t rows_before_text = spec.position_padding_id + 1;
  if (config.ok() && spec.max_positions <= rows_before_text) {
    config.Fault("max_position_embeddings",
                 absl::StrCat("more than pad_token_id + 1, which is ", rows_before_text));
  }
  spec.max_positions -= rows_before_text;
  ReadHead(config, spec);
  return spec;
}

}  // namespace encoderd
