#include "deploy/client/connection.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "deploy/client/chunks.h"
#include "deploy/client/failure.h"
#include "deploy/client/service_config.h"
#include "engine/status_macros.h"

ABSL_FLAG(std::string, address, "127.0.0.1:50051", "host:port of encoderd, or any gRPC target");
ABSL_FLAG(absl::Duration, timeout, absl::Seconds(30),
          "how long a call may take, for example 200ms");
ABSL_FLAG(std::string, model, "", "name of the model; empty = the only one served");
ABSL_FLAG(int64_t, max_response_bytes, int64_t{256} << 20,
          "largest answer to accept, in bytes; a larger one is refused before anything is computed "
          "or comes");
ABSL_FLAG(bool, chunked, false,
          "fetch the answer in pieces from the start; else only one that is too large for a "
          "message");
ABSL_FLAG(bool, tls, false, "connect by TLS, 1.2 or 1.3");
ABSL_FLAG(
    std::string, tls_ca_file, "",
    "certificates of the authorities that may vouch for the server, PEM; empty = those of the "
    "system");
ABSL_FLAG(std::string, tls_cert_file, "",
          "certificate to show to a server that asks for one, PEM, with those between it and the "
          "root");
ABSL_FLAG(std::string, tls_key_file, "", "private key of --tls_cert_file, PEM, not encrypted");
ABSL_FLAG(std::string, tls_server_name, "",
          "name that the server's certificate must have; empty = the host of --address");
ABSL_FLAG(std::string, token_file, "",
          "file whose first token is sent with every call (authorization: Bearer TOKEN); one token "
          "a line, # starts a comment line");

namespace encoderd::client {
namespace {

// Sixteen violations in words are more than the 8 KiB that gRPC takes by default.
constexpr int kMaxMetadataBytes = 64 << 10;

// gRPC's most.
constexpr int64_t kMaxMessageBytes = std::numeric_limits<int>::max();

}  // namespace

FlagGroup IdentityFlagGroup() {
  return {.title = "Keys",
          .flags = {"tls", "tls_ca_file", "tls_cert_file", "tls_key_file", "tls_server_name",
                    "token_file"}};
}

absl::StatusOr<Identity> IdentityFromFlags() {
  return Identity::Read({.tls = absl::GetFlag(FLAGS_tls),
                         .tls_ca_file = absl::GetFlag(FLAGS_tls_ca_file),
                         .tls_cert_file = absl::GetFlag(FLAGS_tls_cert_file),
                         .tls_key_file = absl::GetFlag(FLAGS_tls_key_file),
                         .tls_server_name = absl::GetFlag(FLAGS_tls_server_name),
                         .token_file = absl::GetFlag(FLAGS_token_file)});
}

absl::StatusOr<Connection> Connection::FromFlags() {
  Connection connection;
  connection.address_ = absl::GetFlag(FLAGS_address);
  connection.timeout_ = absl::GetFlag(FLAGS_timeout);
  connection.model_ = absl::GetFlag(FLAGS_model);
  connection.max_response_bytes_ = absl::GetFlag(FLAGS_max_response_bytes);
  if (connection.timeout_ <= absl::ZeroDuration()) {
    return absl::InvalidArgumentError(absl::StrCat("--timeout: expected more than 0, got ",
                                                   absl::FormatDuration(connection.timeout_)));
  }
  connection.chunked_ = absl::GetFlag(FLAGS_chunked);
  constexpr int64_t kMostBytes = int64_t{1} << 40;
  if (connection.max_response_bytes_ < 1 || connection.max_response_bytes_ > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat("--max_response_bytes: expected 1..", kMostBytes,
                                                   ", got ", connection.max_response_bytes_));
  }
  ASSIGN_OR_RETURN(connection.identity_, IdentityFromFlags());
  grpc::ChannelArguments arguments;
  connection.identity_.AddTo(arguments);
  // Pieces are up to 1 MiB, whatever the whole may have.
  arguments.SetMaxReceiveMessageSize(static_cast<int>(
      std::clamp<int64_t>(connection.max_response_bytes_, 2 << 20, kMaxMessageBytes)));
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  arguments.SetServiceConfigJSON(ServiceConfigJson());
  // A proxy of the environment is meant for the web, not for a service next door.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(connection.address_, connection.identity_.channel(), arguments);
  connection.encoder_ = v1::EncoderService::NewStub(channel);
  connection.health_ = grpc::health::v1::Health::NewStub(channel);
  return connection;
}

void Connection::Prepare(absl::Duration timeout, grpc::ClientContext& context) const {
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  identity_.AddTo(context);
}

absl::StatusOr<v1::EncodeResponse> Connection::Encode(v1::EncodeRequest request) {
  request.set_model(model_);
  request.set_max_response_bytes(
      static_cast<uint64_t>(std::min(max_response_bytes_, kMaxMessageBytes)));
  if (chunked_) return EncodeChunked(request);
  grpc::ClientContext context;
  Prepare(timeout_, context);
  v1::EncodeResponse response;
  const grpc::Status status = encoder_->Encode(&context, request, &response);
  if (status.ok()) return response;
  // Was it more than this side accepts, or more than one message is to carry?
  if (ReasonFromRpc(status) == "ANSWER_TOO_LARGE") {
    ASSIGN_OR_RETURN(const v1::GetModelResponse model, GetModel());
    if (static_cast<uint64_t>(max_response_bytes_) > model.max_response_bytes() ||
        max_response_bytes_ > kMaxMessageBytes) {
      return EncodeChunked(request);
    }
  }
  return FailureFromRpc(status, address_);
}

absl::StatusOr<v1::EncodeResponse> Connection::EncodeChunked(const v1::EncodeRequest& request) {
  grpc::ClientContext context;
  Prepare(timeout_, context);
  const auto reader = encoder_->EncodeChunked(&context, request);
  ChunkAssembler assembler(max_response_bytes_);
  for (v1::EncodeChunk chunk; reader->Read(&chunk);) {
    if (absl::Status added = assembler.Add(std::move(chunk)); !added.ok()) {
      context.TryCancel();
      reader->Finish().IgnoreError();
      return added;
    }
  }
  if (const grpc::Status status = reader->Finish(); !status.ok()) {
    return FailureFromRpc(status, address_);
  }
  return assembler.Take();
}

absl::StatusOr<v1::GetModelResponse> Connection::GetModel() {
  v1::GetModelRequest request;
  request.set_model(model_);
  grpc::ClientContext context;
  Prepare(timeout_, context);
  v1::GetModelResponse response;
  const grpc::Status status = encoder_->GetModel(&context, request, &response);
  if (!status.ok()) return FailureFromRpc(status, address_);
  return response;
}

absl::StatusOr<grpc::health::v1::HealthCheckResponse::ServingStatus> Connection::CheckHealth(
    const std::string& service) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::ClientContext context;
  Prepare(timeout_, context);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = health_->Check(&context, request, &response);
  if (!status.ok()) return FailureFromRpc(status, address_);
  return response.status();
}

absl::Status Connection::WaitUntilServing(const std::string& service, absl::Duration limit) {
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::ClientContext context;
  Prepare(limit, context);
  context.set_wait_for_ready(true);
  const auto watch = health_->Watch(&context, request);
  grpc::health::v1::HealthCheckResponse response;
  while (watch->Read(&response)) {
    if (response.status() == grpc::health::v1::HealthCheckResponse::SERVING) {
      context.TryCancel();
      watch->Finish().IgnoreError();
      return absl::OkStatus();
    }
  }
  const grpc::Status status = watch->Finish();
  if (status.ok()) {
    return absl::UnavailableError(
        absl::StrCat("expected SERVING at ", address_, ", got the end of the watch"));
  }
  if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED) {
    return FailureFromRpc(status, address_);
  }
  return absl::DeadlineExceededError(
      absl::StrCat("expected SERVING at ", address_, " within ", absl::FormatDuration(limit),
                   "\nnext: the server's log says what it waits for"));
}

}  // namespace encoderd::client
