#include "deploy/client/failure.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace encoderd::client {
namespace {

// What the details of a refusal say.
struct Details {
  std::string reason;
  std::string violations;  // one a line, indented
  int64_t num_listed = 0;
  int64_t num_found = 0;  // the server lists some of them
  absl::Duration retry_delay;
};

Details ReadDetails(const std::string& bytes) {
  Details details;
  google::rpc::Status status;
  if (!status.ParseFromString(bytes)) return details;
  for (const google::protobuf::Any& any : status.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad;
    google::rpc::RetryInfo retry;
    if (any.UnpackTo(&info)) {
      details.reason = absl::Utf8SafeCEscape(info.reason());
      const auto found = info.metadata().find("violations");
      if (found == info.metadata().end() || !absl::SimpleAtoi(found->second, &details.num_found)) {
        details.num_found = 0;
      }
    } else if (any.UnpackTo(&bad)) {
      details.num_listed += bad.field_violations_size();
      for (const auto& violation : bad.field_violations()) {
        absl::StrAppend(&details.violations, "\n  ", absl::Utf8SafeCEscape(violation.field()), ": ",
                        absl::Utf8SafeCEscape(violation.description()));
      }
    } else if (any.UnpackTo(&retry)) {
      details.retry_delay = absl::Seconds(retry.retry_delay().seconds()) +
                            absl::Nanoseconds(retry.retry_delay().nanos());
    }
  }
  return details;
}

std::string NextStep(grpc::StatusCode code, const Details& details, absl::string_view address) {
  if (details.reason == "ANSWER_TOO_LARGE") {
    return "raise --max_response_bytes, ask for fewer outputs, or halve them with --dtype=bf16";
  }
  switch (code) {
    case grpc::StatusCode::UNAVAILABLE:
      return absl::StrCat("is encoderd running at ", address,
                          "? `encoderctl health --wait=30s` waits for one that is loading");
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return "raise --timeout, or send fewer tokens";
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return details.retry_delay > absl::ZeroDuration()
                 ? absl::StrCat("try again in ", absl::FormatDuration(details.retry_delay))
                 : "try again later";
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::FAILED_PRECONDITION:
    case grpc::StatusCode::INVALID_ARGUMENT:
      return "`encoderctl info` prints what is served, its outputs and its limits";
    case grpc::StatusCode::UNAUTHENTICATED:
      return "name a file with a token of the server by --token_file";
    case grpc::StatusCode::PERMISSION_DENIED:
      return "the server's --allowed_clients says who may; --tls_cert_file who this is";
    case grpc::StatusCode::UNIMPLEMENTED:
      return absl::StrCat("is it encoderd that listens at ", address, "?");
    default:
      return "the server's log says more";
  }
}

}  // namespace

absl::Status FailureFromRpc(const grpc::Status& status, absl::string_view address) {
  const Details details = ReadDetails(status.error_details());
  const std::string reason = details.reason.empty() ? "" : absl::StrCat(" (", details.reason, ")");
  // Whatever the server wrote reaches a terminal: no control character of it may. Where it lists
  // violations, its message says no more than they do.
  std::string message = absl::Utf8SafeCEscape(status.error_message());
  if (details.num_listed > 0) {
    const int64_t found = std::max(details.num_found, details.num_listed);
    message = absl::StrCat(found, found == 1 ? " fault" : " faults");
  }
  // gRPC's codes and Abseil's are the same numbers.
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(message, reason, details.violations,
                                   "\nnext: ", NextStep(status.error_code(), details, address)));
}

std::string ReasonFromRpc(const grpc::Status& status) {
  return ReadDetails(status.error_details()).reason;
}

ExitCode ExitCodeFor(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kExitOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
      return kExitUsage;
    case absl::StatusCode::kUnavailable:
      return kExitUnavailable;
    case absl::StatusCode::kAborted:
      return kExitCannotWrite;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return kExitNotAllowed;
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
      return kExitTryAgain;
    default:
      return kExitInternal;
  }
}

}  // namespace encoderd::client
