// model_type "roberta", "xlm-roberta" and "camembert": BERT whose positions start behind the
// padding's, as RobertaModel, XLMRobertaModel and CamembertModel compute it.
#include "engine/model/families.h"
#include "engine/model/families/bert.h"
#include "engine/model/heads.h"

namespace encoderd {

EncoderSpec RobertaSpec(ConfigReader& config) {
  // The other two classes kept BERT's vocabulary as their default.
  EncoderSpec spec =
      ReadBertKeys(config, {.vocab_size = config.Text("model_type") == "roberta" ? 50265 : 30522,
                            .padding_id = config.Size("pad_token_id", 1, /*least=*/0)});
  NameBertEmbeddings(spec);
  NameBertBlocks(spec);
  AddTanhPooler(WithBias("pooler.dense"), spec);
  ReadHead(config, "roberta.", kLmHeadHeads, spec);
  return spec;
}

}  // namespace encoderd
