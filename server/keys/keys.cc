#include "server/keys/keys.h"

#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_join.h"
#include "engine/status_macros.h"

namespace encoderd {

absl::StatusOr<std::unique_ptr<Keys>> Keys::Load(const KeyPaths& paths, absl::Time now) {
  std::unique_ptr<Keys> keys(new Keys);
  std::vector<std::string> faults;
  const auto keep = [&faults](auto loaded, auto& place) {
    if (loaded.ok()) {
      place = *std::move(loaded);
    } else {
      faults.emplace_back(loaded.status().message());
    }
  };
  if (!paths.tls_cert_file.empty()) {
    std::vector<KeyFile> files = {{"tls_cert_file", paths.tls_cert_file},
                                  {"tls_key_file", paths.tls_key_file}};
    keys->asks_for_certificates_ = !paths.tls_client_ca_file.empty();
    if (keys->asks_for_certificates_) {
      files.push_back({"tls_client_ca_file", paths.tls_client_ca_file});
    }
    keep(Reloaded<TlsKeys>::Load(std::move(files), MakeTlsKeys, now), keys->tls_);
  }
  if (!paths.token_file.empty()) {
    const auto parse = [](std::span<const KeyText> files, absl::Time) -> absl::StatusOr<Tokens> {
      ASSIGN_OR_RETURN(const std::vector<std::string> tokens, ReadTokens(files.front()));
      return Tokens(tokens);
    };
    keep(Reloaded<Tokens>::Load({{"token_file", paths.token_file}}, parse, now), keys->tokens_);
  }
  if (faults.empty()) return keys;
  return absl::InvalidArgumentError(absl::StrJoin(faults, "; "));
}

std::vector<absl::Status> Keys::Look(absl::Time now) {
  std::vector<absl::Status> changes;
  const auto look = [&](auto& files) {
    if (files == nullptr) return;
    std::optional<absl::Status> change = files->Look(now);
    if (change.has_value()) changes.push_back(*std::move(change));
  };
  look(tls_);
  look(tokens_);
  return changes;
}

}  // namespace encoderd
