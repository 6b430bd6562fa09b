// tls_keys.h — what the server shows in a TLS handshake, and whom it believes there.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/keys/key_text.h"

namespace encoderd {

struct TlsKeys {
  std::string certificates;  // PEM: the server's own first, then those between it and the root
  std::string key;           // PEM
  std::string client_cas;    // PEM; "" = a client needs no certificate
  std::string serial;        // of the server's own, as `openssl x509 -serial` prints it
  absl::Time not_after;      // when the first of the certificates ends
};

// `files`: certificates, key and, if clients need certificates, those of their authorities.
// Whatever gRPC would choke on, or every client would refuse, is refused here: what is not PEM or
// is cut off; a key that is encrypted, of another certificate or too weak for OpenSSL; a certificate
// that is not valid at `now`; authorities that CheckAuthorities refuses.
// Errors: kInvalidArgument that names the flag, what was expected, found and where.
absl::StatusOr<TlsKeys> MakeTlsKeys(std::span<const KeyText> files, absl::Time now);

// OK for certificates in PEM of which one at least is valid at `now`. Errors: as above.
absl::Status CheckAuthorities(const KeyText& file, absl::Time now);

}  // namespace encoderd
