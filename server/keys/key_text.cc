#include "server/keys/key_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/io/file.h"

namespace encoderd {

absl::StatusOr<KeyText> ReadKeyText(const std::string& flag, const std::string& path) {
  constexpr uint64_t kMaxBytes = 1 << 20;  // a bundle of every public authority has 0.2 MiB
  absl::StatusOr<std::string> text = ReadTextFile(path, kMaxBytes);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        absl::StrCat("--", flag, ": ", text.status().message()));
  }
  KeyText file = {.flag = flag, .path = path, .text = *std::move(text)};
  // What lies behind it gRPC, which takes C strings, would not see.
  if (file.text.find('\0') != std::string::npos) return KeyFault(file, "text", "a byte of 0");
  return file;
}

absl::Status KeyFault(const KeyText& file, std::string_view expected, std::string_view got) {
  return absl::InvalidArgumentError(absl::StrCat("--", file.flag, ": expected ",
                                                 std::string(expected), ", got ", std::string(got),
                                                 " in ", file.path));
}

}  // namespace encoderd
