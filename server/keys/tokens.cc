#include "server/keys/tokens.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/io/file.h"

namespace encoderd {
namespace {

constexpr size_t kMinBytes = 16;
constexpr size_t kMaxBytes = 4096;  // gRPC takes 16 KiB of metadata in all

bool IsTokenCharacter(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         std::string_view("-._~+/=").find(c) != std::string_view::npos;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadTokens(const KeyText& file) {
  std::vector<std::string> tokens;
  int number = 0;
  for (const absl::string_view whole : absl::StrSplit(file.text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(whole);
    if (line.empty() || line.front() == '#') continue;
    if (line.size() < kMinBytes || line.size() > kMaxBytes ||
        !std::ranges::all_of(line, IsTokenCharacter)) {
      return KeyFault(file, "a token of 16 to 4096 characters of A-Z a-z 0-9 - . _ ~ + / = a line",
                      absl::StrCat(line.size(), " bytes of another kind on line ", number));
    }
    tokens.emplace_back(line);
  }
  if (tokens.empty()) return KeyFault(file, "at least one token", "none");
  return tokens;
}

Tokens::Tokens(std::span<const std::string> tokens) {
  for (const std::string& token : tokens) digests_.push_back(Sha256(token));
}

bool Tokens::Has(std::string_view token) const {
  const std::string shown = Sha256(token);
  bool found = false;
  for (const std::string& digest : digests_) {
    found |= CRYPTO_memcmp(digest.data(), shown.data(), digest.size()) == 0;
  }
  return found;
}

}  // namespace encoderd
