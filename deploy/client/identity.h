// identity.h — how a client and the server prove to each other who they are.
//
// Role: between the flags and whatever opens channels; the server's side is ../../server/keys.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace encoderd::client {

// What the flags of the same names say; "" = none.
struct IdentityFlags {
  bool tls = false;
  std::string tls_ca_file;    // "" = the authorities of the system
  std::string tls_cert_file;  // with tls_key_file
  std::string tls_key_file;
  std::string tls_server_name;  // "" = that of the address
  std::string token_file;       // its first token is sent
};

// Without TLS and token until it is read. Copies share everything.
class Identity {
 public:
  // Reads and checks the files. Errors: kInvalidArgument, and those of reading, with the flag's
  // name.
  static absl::StatusOr<Identity> Read(const IdentityFlags& flags);

  const std::shared_ptr<grpc::ChannelCredentials>& channel() const { return channel_; }
  // For a channel of it; each of its calls needs the other one.
  void AddTo(grpc::ChannelArguments& arguments) const;
  void AddTo(grpc::ClientContext& call) const;

 private:
  std::shared_ptr<grpc::ChannelCredentials> channel_ = grpc::InsecureChannelCredentials();
  std::string server_name_;
  std::string authorization_;  // as metadata; "" = none
};

}  // namespace encoderd::client
