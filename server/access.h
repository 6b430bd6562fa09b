// access.h — who may call: asked by every handler before it looks at a request.
//
// Role:    the one place that knows the names of --allowed_clients and the tokens of --token_file.
//          A handshake decides before this who may connect: with --tls_client_ca_file, whoever has
//          a certificate of that authority.
#pragma once

#include <grpcpp/server_context.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/keys/keys.h"
#include "server/status.h"

namespace encoderd {

// Thread-safe.
class Access {
 public:
  // `allowed_clients`: empty = whoever could connect. `keys` must outlive this.
  Access(const std::vector<std::string>& allowed_clients, const Keys& keys)
      : allowed_clients_(allowed_clients.begin(), allowed_clients.end()), keys_(keys) {}

  // Nothing when the caller may call, else why not: CLIENT_NOT_ALLOWED, TOKEN_MISSING or
  // TOKEN_WRONG.
  std::optional<Refusal> Refuse(const grpc::ServerContextBase& context) const;

 private:
  std::optional<Refusal> RefuseClient(const grpc::AuthContext& peer) const;

  const std::set<std::string, std::less<>> allowed_clients_;
  const Keys& keys_;
};

// The names of a client by its certificate: its URIs (SPIFFE ids among them) and DNS names, or, of
// one that has neither, its common name (RFC 6125: a common name counts where nothing better is),
// unless that looks like a URI, for which nobody has vouched. Empty: it has shown none.
std::vector<std::string> ClientNames(const grpc::AuthContext& peer);

}  // namespace encoderd
