// spec_json.h — an EncoderSpec as JSON: model_type "custom", for encoders that are no family.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/model/spec.h"

namespace encoderd {

// Every field of the spec, by its name in spec.h; enumerations in words. Left out
// is what an absent key means anyway.
nlohmann::json SpecToJson(const EncoderSpec& spec);

// The inverse: SpecFromJson(SpecToJson(spec)) == spec. Keys whose absence would leave the maths
// open must be there; the others have the defaults of spec.h. Not checked by ValidateSpec yet.
// Errors: kInvalidArgument beginning with "config.json", one line for each fault with its key's
// path.
absl::StatusOr<EncoderSpec> SpecFromJson(const nlohmann::json& config);

// Puts `prefix` in front of the name of every tensor of the spec.
void AddNamePrefix(std::string_view prefix, EncoderSpec& spec);

}  // namespace encoderd
