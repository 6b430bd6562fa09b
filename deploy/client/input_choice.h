// input_choice.h — the flags --input and --one_hot, which say where sequences come from.
#pragma once

#include <istream>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "encoderd/v1/encoder.pb.h"

namespace encoderd::client {

// The sequences as they were typed: ReadSequences of sequence_reader.h with the file of --input.
absl::StatusOr<std::vector<v1::Sequence>> SequencesFromFlags(std::span<const std::string> arguments,
                                                             std::istream& standard_input);

// Turns ids into one-hot vectors if --one_hot says so. Errors: as MakeOneHot.
absl::Status ApplyOneHotFlag(v1::Sequence& sequence);

}  // namespace encoderd::client
