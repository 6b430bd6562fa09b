// keys.h — everything secret or trusted that the server has from files: what it shows in TLS
// handshakes, whom it believes there, and the tokens of its callers.
//
// Role:    read at the start, when every fault ends the process; looked at again by KeyWatch
//          (key_watch.h). Asked by tls_credentials.h and ../access.h.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/keys/reloaded.h"
#include "server/keys/tls_keys.h"
#include "server/keys/tokens.h"

namespace encoderd {

// Paths; "" = none. As the flags of the same names say.
struct KeyPaths {
  std::string tls_cert_file;  // with tls_key_file
  std::string tls_key_file;
  std::string tls_client_ca_file;
  std::string token_file;
};

// Threads: Look from one at a time; the rest from any.
class Keys {
 public:
  // Errors: kInvalidArgument with every fault of the certificates and of the tokens.
  static absl::StatusOr<std::unique_ptr<Keys>> Load(const KeyPaths& paths, absl::Time now);

  bool asks_for_certificates() const { return asks_for_certificates_; }

  std::shared_ptr<const TlsKeys> tls() const { return tls_ == nullptr ? nullptr : tls_->get(); }
  // Null: calls need none.
  std::shared_ptr<const Tokens> tokens() const {
    return tokens_ == nullptr ? nullptr : tokens_->get();
  }

  // Reads the files again, and says for each change what came of it: OK where it holds from now on,
  // else why it does not. Certificates, key and authorities change together, tokens by themselves.
  std::vector<absl::Status> Look(absl::Time now);

 private:
  Keys() = default;

  bool asks_for_certificates_ = false;
  std::unique_ptr<Reloaded<TlsKeys>> tls_;    // null: without TLS
  std::unique_ptr<Reloaded<Tokens>> tokens_;  // null: without tokens
};

}  // namespace encoderd
