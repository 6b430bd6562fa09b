// validate_spec.h — whether a spec describes an encoder that can exist.
#pragma once

#include "absl/status/status.h"
#include "engine/model/spec.h"

namespace encoderd {

// Checks every size, every combination and the presence of every tensor name; afterwards all widths
// and products of two of them are within int64_t. Errors: kInvalidArgument beginning with
// "config.json", one line for each fault, by the keys of spec_json.h.
absl::Status ValidateSpec(const EncoderSpec& spec);

}  // namespace encoderd
