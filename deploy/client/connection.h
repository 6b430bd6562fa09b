// connection.h — one encoderd as encoderctl reaches it: the flags --address, --timeout, --model,
// --max_response_bytes and --chunked, and those of TLS and tokens.
//
// Calls that are refused for overload or find nobody ready are tried again within their --timeout,
// as service_config.json says; health is told as it is.
//
// Errors: of every call, those of failure.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "deploy/client/identity.h"
#include "encoderd/v1/encoder.grpc.pb.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "server/flag_parser.h"

namespace encoderd::client {

// The flags of TLS and tokens, which every command has.
FlagGroup IdentityFlagGroup();
absl::StatusOr<Identity> IdentityFromFlags();

class Connection {
 public:
  // Connects on the first call. Errors: kInvalidArgument for a flag out of range.
  static absl::StatusOr<Connection> FromFlags();

  // `request` gets the model and the largest answer of the flags. An answer that one message cannot
  // carry, or the server will not give in one, is fetched in pieces.
  absl::StatusOr<v1::EncodeResponse> Encode(v1::EncodeRequest request);

  absl::StatusOr<v1::GetModelResponse> GetModel();

  // The health of `service` now.
  absl::StatusOr<grpc::health::v1::HealthCheckResponse::ServingStatus> CheckHealth(
      const std::string& service);

  // Returns once `service` is SERVING; the server need not be up yet. Errors: kDeadlineExceeded
  // after `limit`.
  absl::Status WaitUntilServing(const std::string& service, absl::Duration limit);

 private:
  Connection() = default;

  // What every call needs.
  void Prepare(absl::Duration timeout, grpc::ClientContext& context) const;
  absl::StatusOr<v1::EncodeResponse> EncodeChunked(const v1::EncodeRequest& request);

  std::string address_;
  absl::Duration timeout_;
  std::string model_;
  int64_t max_response_bytes_ = 0;
  bool chunked_ = false;
  Identity identity_;
  std::unique_ptr<v1::EncoderService::Stub> encoder_;
  std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace encoderd::client
