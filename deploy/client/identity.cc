#include "deploy/client/identity.h"

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/status_macros.h"
#include "server/keys/key_text.h"
#include "server/keys/tls_keys.h"
#include "server/keys/tokens.h"

namespace encoderd::client {
namespace {

absl::Status CheckFlags(const IdentityFlags& flags) {
  const auto need_tls = [&flags](const char* flag, const std::string& value) {
    if (flags.tls || value.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, ": expected together with --tls, got ", value, " alone"));
  };
  RETURN_IF_ERROR(need_tls("tls_ca_file", flags.tls_ca_file));
  RETURN_IF_ERROR(need_tls("tls_cert_file", flags.tls_cert_file));
  RETURN_IF_ERROR(need_tls("tls_key_file", flags.tls_key_file));
  RETURN_IF_ERROR(need_tls("tls_server_name", flags.tls_server_name));
  if (flags.tls_cert_file.empty() == flags.tls_key_file.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--tls_cert_file, --tls_key_file: expected both or neither, got one of them");
}

// gRPC would say no more than that it cannot connect.
absl::StatusOr<grpc::SslCredentialsOptions> ReadTls(const IdentityFlags& flags) {
  grpc::SslCredentialsOptions options;
  if (!flags.tls_ca_file.empty()) {
    ASSIGN_OR_RETURN(const KeyText authorities, ReadKeyText("tls_ca_file", flags.tls_ca_file));
    RETURN_IF_ERROR(CheckAuthorities(authorities, absl::Now()));
    options.pem_root_certs = authorities.text;
  }
  if (!flags.tls_cert_file.empty()) {
    std::vector<KeyText> files(2);
    ASSIGN_OR_RETURN(files[0], ReadKeyText("tls_cert_file", flags.tls_cert_file));
    ASSIGN_OR_RETURN(files[1], ReadKeyText("tls_key_file", flags.tls_key_file));
    ASSIGN_OR_RETURN(const TlsKeys keys, MakeTlsKeys(files, absl::Now()));
    options.pem_cert_chain = keys.certificates;
    options.pem_private_key = keys.key;
  }
  return options;
}

}  // namespace

absl::StatusOr<Identity> Identity::Read(const IdentityFlags& flags) {
  RETURN_IF_ERROR(CheckFlags(flags));
  Identity identity;
  if (flags.tls) {
    ASSIGN_OR_RETURN(const grpc::SslCredentialsOptions options, ReadTls(flags));
    identity.channel_ = grpc::SslCredentials(options);
    identity.server_name_ = flags.tls_server_name;
  }
  if (!flags.token_file.empty()) {
    ASSIGN_OR_RETURN(const KeyText file, ReadKeyText("token_file", flags.token_file));
    ASSIGN_OR_RETURN(const std::vector<std::string> tokens, ReadTokens(file));
    identity.authorization_ = absl::StrCat("Bearer ", tokens.front());
  }
  return identity;
}

void Identity::AddTo(grpc::ChannelArguments& arguments) const {
  if (!server_name_.empty()) arguments.SetSslTargetNameOverride(server_name_);
}

void Identity::AddTo(grpc::ClientContext& call) const {
  if (!authorization_.empty()) call.AddMetadata("authorization", authorization_);
}

}  // namespace encoderd::client
