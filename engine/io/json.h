// json.h — a strict JSON reader for text that nobody has checked: safetensors headers, config.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "absl/status/statusor.h"

namespace encoderd {

// Deeper than any configuration is, shallow enough for every recursive walk over the result.
constexpr size_t kMaxJsonDepth = 64;

// Errors: kInvalidArgument beginning with `what`, for anything but one JSON value in UTF-8: bad
// syntax (with line and column), the same key twice in one object (the key is named), a number that
// no double can hold, nesting beyond kMaxJsonDepth. Does not throw; its own recursion does not grow
// with the text.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view text, std::string_view what);

// `text` for an error message: what is not printable ASCII is escaped, and what is long is cut.
std::string Printable(std::string_view text);

}  // namespace encoderd
