// families.h — from config.json to the spec: the list of all model types, one function for each.
//
// Role: a family is data. Its function reads the configuration's keys into an EncoderSpec and names
//       the tensors as the family's checkpoints do; nothing behind it asks which family it was. To
//       add one, write its file, declare its function here and give it a line in families.cc. Keys,
//       defaults and names of each: README.md.
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

// The families. What is wrong with a key becomes a fault of the reader, and so does, afterwards, a
// key that the family has not read; the spec is then of no meaning.
EncoderSpec FusedQkvAttentionSpec(ConfigReader& config);
EncoderSpec SharedProjectionEncoderSpec(ConfigReader& config);
EncoderSpec TokenEncoderSpec(ConfigReader& config);
EncoderSpec TorchTransformerEncoderSpec(ConfigReader& config);
EncoderSpec BertSpec(ConfigReader& config);
EncoderSpec RobertaSpec(ConfigReader& config);
EncoderSpec DistilBertSpec(ConfigReader& config);
EncoderSpec MpnetSpec(ConfigReader& config);
EncoderSpec ElectraSpec(ConfigReader& config);
EncoderSpec ModernBertSpec(ConfigReader& config);
EncoderSpec EsmSpec(ConfigReader& config);
EncoderSpec NomicBertSpec(ConfigReader& config);
EncoderSpec AlbertSpec(ConfigReader& config);
EncoderSpec GteSpec(ConfigReader& config);
EncoderSpec JinaBertSpec(ConfigReader& config);  // a "bert"
EncoderSpec DebertaV2Spec(ConfigReader& config);
EncoderSpec CustomSpec(ConfigReader& config);  // in spec_json.cc

}  // namespace encoderd
