// families.h — from config.json to the spec: the list of all model types, one function for each.
//
// Role: a family is data. Its function reads the configuration's keys into an EncoderSpec and names
//       the tensors as the family's checkpoints do; nothing behind it asks which family it was. To
//       add one, write its file, declare its function here and give it a line in families.cc. Keys,
//       defaults and names of each: README.md.
#pragma once

#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "engine/model/spec.h"

namespace encoderd {

// The spec of the family that config["model_type"] names, valid by ValidateSpec. Errors:
// kInvalidArgument, beginning with "config.json", with one line for each key whose value is
// missing, impossible, unknown or not supported; for another model type, what there is.
absl::StatusOr<EncoderSpec> SpecFromConfig(const nlohmann::json& config);

// The families. REQUIRES: config is an object.
absl::StatusOr<EncoderSpec> FusedQkvAttentionSpec(const nlohmann::json& config);
absl::StatusOr<EncoderSpec> SharedProjectionEncoderSpec(const nlohmann::json& config);
absl::StatusOr<EncoderSpec> TokenEncoderSpec(const nlohmann::json& config);
absl::StatusOr<EncoderSpec> TorchTransformerEncoderSpec(const nlohmann::json& config);
absl::StatusOr<EncoderSpec> BertSpec(const nlohmann::json& config);
absl::StatusOr<EncoderSpec> RobertaSpec(const nlohmann::json& config);
absl::StatusOr<EncoderSpec> DistilBertSpec(const nlohmann::json& config);
absl::StatusOr<EncoderSpec> ElectraSpec(const nlohmann::json& config);
absl::StatusOr<EncoderSpec> AlbertSpec(const nlohmann::json& config);

}  // namespace encoderd
