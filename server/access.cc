#include "server/access.h"

#include <grpc/grpc_security_constants.h>

#include <algorithm>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/call_identity.h"

namespace encoderd {
namespace {

// An absent common name comes as an empty one.
void AppendValues(const grpc::AuthContext& peer, const char* property,
                  std::vector<std::string>& names) {
  for (const grpc::string_ref& value : peer.FindPropertyValues(property)) {
    if (!value.empty()) names.emplace_back(value.data(), value.size());
  }
}

// What stands behind "Bearer " in the caller's `authorization`. Nothing: there is no such thing.
std::optional<std::string_view> BearerToken(const grpc::ServerContextBase& context) {
  constexpr absl::string_view kScheme = "bearer ";
  const auto& metadata = context.client_metadata();
  const auto [first, last] = metadata.equal_range("authorization");
  for (auto entry = first; entry != last; ++entry) {
    const absl::string_view value(entry->second.data(), entry->second.size());
    if (!absl::StartsWithIgnoreCase(value, kScheme)) continue;
    return std::string_view(value.data(), value.size()).substr(kScheme.size());
  }
  return std::nullopt;
}

Refusal Unauthenticated(const char* reason, const char* message) {
  return {.status = absl::UnauthenticatedError(message), .reason = reason};
}

}  // namespace

std::optional<Refusal> Access::Refuse(const grpc::ServerContextBase& context) const {
  if (!allowed_clients_.empty()) {
    if (auto refusal = RefuseClient(*context.auth_context())) return refusal;
  }
  const std::shared_ptr<const Tokens> tokens = keys_.tokens();
  if (tokens == nullptr) return std::nullopt;
  const std::optional<std::string_view> token = BearerToken(context);
  if (!token.has_value()) {
    return Unauthenticated("TOKEN_MISSING",
                           "expected the metadata `authorization: Bearer TOKEN`, got none");
  }
  if (tokens->Has(*token)) return std::nullopt;
  return Unauthenticated("TOKEN_WRONG", "expected a bearer token of this server, got another one");
}

std::optional<Refusal> Access::RefuseClient(const grpc::AuthContext& peer) const {
  const std::vector<std::string> names = ClientNames(peer);
  const auto allowed = [this](const std::string& name) { return allowed_clients_.contains(name); };
  if (std::ranges::any_of(names, allowed)) return std::nullopt;
  // The caller knows its own names; a few of them are enough to see which certificate it was.
  const std::string first =
      names.empty()
          ? "one without a name"
          : absl::StrCat("\"", absl::CHexEscape(names.front().substr(0, kMaxToldNameBytes)), "\"");
  return Refusal{
      .status = absl::PermissionDeniedError(absl::StrCat(
          "expected a client certificate with a name that this server allows, got ", first,
          names.size() > 1 ? absl::StrCat(" and ", names.size() - 1, " more") : "")),
      .reason = "CLIENT_NOT_ALLOWED"};
}

std::vector<std::string> ClientNames(const grpc::AuthContext& peer) {
  std::vector<std::string> names;
  AppendValues(peer, GRPC_PEER_URI_PROPERTY_NAME, names);
  AppendValues(peer, GRPC_PEER_DNS_PROPERTY_NAME, names);
  if (!names.empty()) return names;
  AppendValues(peer, GRPC_X509_CN_PROPERTY_NAME, names);
  std::erase_if(names, [](const std::string& name) { return absl::StrContains(name, "://"); });
  return names;
}

}  // namespace encoderd
