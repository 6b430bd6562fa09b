// status.h — how a call that did not succeed is told to its caller.
//
// Role:   the one place where an absl::Status becomes a grpc::Status, with google.rpc details in
//         the trailing metadata and a stable reason. The reason also labels the metric.
#pragma once

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/validation.h"

namespace encoderd {

// Why a call was refused or failed.
struct Refusal {
  absl::Status status;  // never OK; the message says what, expected, got
  std::string reason;   // of kReasons (metrics.h)
  std::map<std::string, std::string> metadata = {};  // of ErrorInfo
  Violations violations = {};
  std::optional<absl::Duration> retry_after = {};  // when trying again makes sense
};

// The refusal of a faulty request. Its code is kInvalidArgument if any violation has that, else
// that of the first; its reason is the first violation's of that code.
Refusal RefusalOf(Violations violations);

// The status that gRPC sends for the refusal. Code and message are those of refusal.status (codes
// are numbered alike); error_details holds google.rpc.Status with ErrorInfo, RequestInfo,
// BadRequest and RetryInfo as they apply.
grpc::Status ToGrpcStatus(const Refusal& refusal, const std::string& request_id);

// Adds to the trailing metadata what gRPC's own retries obey: `grpc-retry-pushback-ms` with
// RESOURCE_EXHAUSTED. REQUIRES: the call has not been finished.
void AddRetryPushback(const Refusal& refusal, grpc::ServerContextBase& context);

}  // namespace encoderd
