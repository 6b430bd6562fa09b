// heads.h — the heads that classes of Hugging Face transformers put on top of their encoders.
//
// Role:   from the class that config.json names in "architectures" to the spec's logits,
//         classifier, labels and ties. What each family's classes are made of is one table.
// Source: the modeling files of transformers 4.57: …ForMaskedLM, …ForPreTraining,
//         …ForTokenClassification, …ForSequenceClassification.
#pragma once

#include "engine/model/config_reader.h"
#include "engine/model/spec.h"

namespace encoderd {

// Gives a spec, all of whose tensors are named as the family's base class names them, the head of
// the class that the configuration names, and that class' prefix to all names. A class that is not
// in the table, or none, has no head: the spec stays as it is. Reads "architectures", and of a
// class with a head "tie_word_embeddings", "id2label", "num_labels" and the keys of its table. REQUIRES: spec.family is
// the model_type.
void ReadHead(ConfigReader& config, EncoderSpec& spec);

}  // namespace encoderd
