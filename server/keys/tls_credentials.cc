#include "server/keys/tls_credentials.h"

#include <grpc/grpc.h>

#include <utility>

namespace encoderd {

TlsCredentials::TlsCredentials(const Keys& keys)
    : keys_(keys),
      credentials_(grpc_ssl_server_credentials_create_with_options(
          grpc_ssl_server_credentials_create_options_using_config_fetcher(
              keys.asks_for_certificates()
                  ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                  : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
              &TlsCredentials::Fetch, this))) {}

TlsCredentials::~TlsCredentials() { grpc_server_credentials_release(credentials_); }

// Nobody sets one: access.h decides about calls, with reasons and counts.
void TlsCredentials::SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) {
}

int TlsCredentials::AddPortToServer(const std::string& address, grpc_server* server) {
  return grpc_server_add_http2_port(server, address.c_str(), credentials_);
}

grpc_ssl_certificate_config_reload_status TlsCredentials::Fetch(
    void* credentials, grpc_ssl_server_certificate_config** config) {
  auto& self = *static_cast<TlsCredentials*>(credentials);
  std::shared_ptr<const TlsKeys> latest = self.keys_.tls();
  if (latest == self.served_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const grpc_ssl_pem_key_cert_pair pair = {.private_key = latest->key.c_str(),
                                           .cert_chain = latest->certificates.c_str()};
  // gRPC 1.51 stops without authorities, even where it asks nobody for a certificate; those of the
  // server's own mean nothing then.
  const std::string& authorities =
      latest->client_cas.empty() ? latest->certificates : latest->client_cas;
  *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
  self.served_ = std::move(latest);
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace encoderd
