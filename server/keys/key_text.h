// key_text.h — a small file of keys, as read, and what is wrong with one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace encoderd {

struct KeyText {
  std::string flag;  // that named it: "tls_key_file"
  std::string path;
  std::string text;
};

// Reads the file that `flag` names. Errors: that of the system or kInvalidArgument (not a regular
// file, more than 1 MiB, or no text), with the flag's name and the path.
absl::StatusOr<KeyText> ReadKeyText(const std::string& flag, const std::string& path);

// "--tls_key_file: expected …, got … in /etc/keys/tls.key"
absl::Status KeyFault(const KeyText& file, std::string_view expected, std::string_view got);

}  // namespace encoderd
