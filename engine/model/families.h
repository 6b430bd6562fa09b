// families.h — from config.json to the spec: the list of all model types, one function for each.
//
// Role: a family is data. Its function reads the configuration's keys into an EncoderSpec and names
//       the tensors as the family's checkpoints do; nothing behind it asks which family it was. To
//       add one, write its file in families/ and give it a line in the list here. Keys, defaults and
//       names of each: README.md.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/config_reader.h"
#include "engine/model/spec.h"

namespace encoderd {

// The spec of the family that config["model_type"] names, valid by ValidateSpec. Errors:
// kInvalidArgument, beginning with "config.json", with one line for each key whose value is
// missing, impossible, unknown or not supported; for another model type, what there is.
// With an error, `possible` gets what is still certain of the tensors, which is what two specs have
// in common (CommonTensors) that differ in all that the faults leave open; they may not be valid.
// It stays empty when nothing is certain.
absl::StatusOr<EncoderSpec> SpecFromConfig(const nlohmann::json& config,
                                           std::vector<EncoderSpec>* possible = nullptr);

// The families, each with its model_type. What is wrong with a key becomes a fault of the reader, and
// so does, afterwards, a key that the family has not read; the spec is then of no meaning.
#define ENCODERD_FAMILIES(FAMILY)                                  \
  FAMILY("fused_qkv_attention", FusedQkvAttentionSpec)             \
  FAMILY("shared_projection_encoder", SharedProjectionEncoderSpec) \
  FAMILY("token_encoder", TokenEncoderSpec)                        \
  FAMILY("torch_transformer_encoder", TorchTransformerEncoderSpec) \
  FAMILY("bert", BertSpec)                                         \
  FAMILY("roberta", RobertaSpec)                                   \
  FAMILY("xlm-roberta", RobertaSpec)                               \
  FAMILY("camembert", RobertaSpec)                                 \
  FAMILY("distilbert", DistilBertSpec)                             \
  FAMILY("mpnet", MpnetSpec)                                       \
  FAMILY("electra", ElectraSpec)                                   \
  FAMILY("modernbert", ModernBertSpec)                             \
  FAMILY("esm", EsmSpec)                                           \
  FAMILY("nomic_bert", NomicBertSpec)                              \
  FAMILY("albert", AlbertSpec)                                     \
  FAMILY("new", GteSpec)                                           \
  FAMILY("gte", GteSpec)                                           \
  FAMILY("deberta-v2", DebertaV2Spec)                              \
  FAMILY("custom", CustomSpec)

#define ENCODERD_DECLARATION(model_type, Read) EncoderSpec Read(ConfigReader& config);
ENCODERD_FAMILIES(ENCODERD_DECLARATION)
#undef ENCODERD_DECLARATION

}  // namespace encoderd
