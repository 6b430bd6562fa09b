// tls_credentials.h — TLS for gRPC with keys that may change while it serves.
//
// Role:    between Keys and gRPC. TLS 1.2 or 1.3, HTTP/2 by ALPN or nothing, no renegotiation
//          (OpenSSL 3's default); connections that are open keep what they began with.
// Choice:  gRPC's certificate providers read files by themselves, by a clock of their own, and
//          say nothing when they keep the old ones. The core's ssl credentials ask before each
//          handshake instead, so that what is served is what we have checked.
#pragma once

#include <grpc/grpc_security.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "server/keys/keys.h"

namespace encoderd {

class TlsCredentials final : public grpc::ServerCredentials {
 public:
  // `keys` must outlive the server. REQUIRES: they have TLS.
  explicit TlsCredentials(const Keys& keys);
  ~TlsCredentials() override;

 private:
  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& processor) override;
  int AddPortToServer(const std::string& address, grpc_server* server) override;

  static grpc_ssl_certificate_config_reload_status Fetch(
      void* credentials, grpc_ssl_server_certificate_config** config);

  const Keys& keys_;
  // The handshakes': they begin one at a time, on the thread that hands gRPC the connections. gRPC
  // 1.51 counts on that too, as it drops an old context without asking who is about to use it.
  std::shared_ptr<const TlsKeys> served_;
  grpc_server_credentials* credentials_ = nullptr;
};

}  // namespace encoderd
