// spec_json.h — an EncoderSpec as JSON: model_type "custom", for encoders that are no family.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "engine/model/spec.h"

namespace encoderd {

// Every field of the spec, by its name in spec.h; enumerations in words. Left out
// is what an absent key means anyway.
nlohmann::json SpecToJson(const EncoderSpec& spec);

// The inverse is CustomSpec (families.h). Keys whose absence would leave the maths open must be
// there; the others have the defaults of spec.h.

// Puts `prefix` in front of the name of every tensor of the spec.
void AddNamePrefix(std::string_view prefix, EncoderSpec& spec);

}  // namespace encoderd
