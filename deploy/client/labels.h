// labels.h — the words that stand at the axes of an attention map.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace encoderd::client {

// Any bytes as text that can be drawn: what is not UTF-8 becomes U+FFFD, control characters become
// spaces, and what is longer than 16 characters ends in an ellipsis.
std::string DisplayText(std::string_view bytes);

// One label per line. Errors: kInvalidArgument if the file cannot be read or does not have `tokens`
// lines.
absl::StatusOr<std::vector<std::string>> ReadLabels(const std::string& file, int64_t tokens);

// The words of `ids` in a vocab.txt, whose line i (from 0) is the word of id i. Errors:
// kInvalidArgument if the file cannot be read or has no such line.
absl::StatusOr<std::vector<std::string>> LabelsFromVocab(const std::string& file,
                                                         std::span<const int32_t> ids);

}  // namespace encoderd::client
