// validate_spec.h — whether a spec describes an encoder that can exist.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "engine/model/faults.h"
#include "engine/model/spec.h"

namespace encoderd {

// Each layer is some twenty tensors by name; no encoder comes near this many.
constexpr int64_t kMaxLayers = 4096;

// Checks every size, every combination and the presence of every tensor name; afterwards all widths
// and products of two of them are within int64_t. Errors: kInvalidArgument beginning with
// "config.json", one line for each fault, by the keys of spec_json.h.
absl::Status ValidateSpec(const EncoderSpec& spec);
// The same, not yet as a status.
Faults SpecFaults(const EncoderSpec& spec);

// Whether the tensors of a spec can be listed and looked for, be it valid or not: there is a limit
// to their number and to the length of their names.
bool CanListTensors(EncoderSpec spec);

}  // namespace encoderd
