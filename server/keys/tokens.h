// tokens.h — the bearer tokens that callers show.
//
// Format: one token a line; empty lines and those that start with '#' mean nothing. A token has 16
//         to 4096 characters of A–Z a–z 0–9 - . _ ~ + / = (RFC 6750's). Several, so that a new one
//         can be handed out while the old one still holds.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/keys/key_text.h"

namespace encoderd {

// The tokens of a file, in its order, at least one. Errors: kInvalidArgument that names the line,
// and never what stands there.
absl::StatusOr<std::vector<std::string>> ReadTokens(const KeyText& file);

class Tokens {
 public:
  explicit Tokens(std::span<const std::string> tokens);

  // Whether `token` is one of them. How long it takes depends on its length and on how many there
  // are, not on what they are.
  bool Has(std::string_view token) const;

  size_t size() const { return digests_.size(); }

 private:
  std::vector<std::string> digests_;  // SHA-256: the tokens themselves are kept nowhere
};

}  // namespace encoderd
