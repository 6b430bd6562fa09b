#include "server/status.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace encoderd {
namespace {

// gRPC sends messages in an HTTP/2 header, which many peers limit to 8 KiB; the details have the
// full list.
constexpr size_t kMaxMessageBytes = 1024;

std::string Summary(const Violations& violations) {
  std::string text;
  for (const Violation& violation : violations.listed) {
    const std::string line = absl::StrCat(violation.field, ": ", violation.description);
    if (!text.empty() && text.size() + line.size() > kMaxMessageBytes) break;
    absl::StrAppend(&text, text.empty() ? "" : "; ", line);
  }
  if (violations.total > 1) absl::StrAppend(&text, " (", violations.total, " violations)");
  return text;
}

}  // namespace

Refusal RefusalOf(Violations violations) {
  const auto& listed = violations.listed;
  auto first = std::find_if(listed.begin(), listed.end(), [](const Violation& violation) {
    return violation.code == absl::StatusCode::kInvalidArgument;
  });
  if (first == listed.end()) first = listed.begin();
  Refusal refusal = {.status = absl::Status(first->code, Summary(violations)),
                     .reason = first->reason,
                     .metadata = {{"violations", absl::StrCat(violations.total)}}};
  refusal.violations = std::move(violations);
  return refusal;
}

grpc::Status ToGrpcStatus(const Refusal& refusal, const std::string& request_id) {
  const auto code = static_cast<int>(refusal.status.code());
  const std::string message(refusal.status.message());

  google::rpc::Status details;
  details.set_code(code);
  details.set_message(message);

  google::rpc::ErrorInfo info;
  info.set_reason(std::string(refusal.reason));
  info.set_domain("encoderd");
  info.mutable_metadata()->insert(refusal.metadata.begin(), refusal.metadata.end());
  details.add_details()->PackFrom(info);

  google::rpc::RequestInfo request;
  request.set_request_id(request_id);
  details.add_details()->PackFrom(request);

  if (!refusal.violations.listed.empty()) {
    google::rpc::BadRequest bad_request;
    for (const Violation& violation : refusal.violations.listed) {
      auto* field = bad_request.add_field_violations();
      field->set_field(violation.field);
      field->set_description(violation.description);
      field->set_reason(violation.reason);
    }
    details.add_details()->PackFrom(bad_request);
  }

  if (refusal.retry_after.has_value()) {
    google::rpc::RetryInfo retry;
    const int64_t nanos = absl::ToInt64Nanoseconds(*refusal.retry_after);
    retry.mutable_retry_delay()->set_seconds(nanos / 1'000'000'000);
    retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
    details.add_details()->PackFrom(retry);
  }
  return grpc::Status(static_cast<grpc::StatusCode>(code), message, details.SerializeAsString());
}

void AddRetryPushback(const Refusal& refusal, grpc::ServerContextBase& context) {
  if (refusal.status.code() != absl::StatusCode::kResourceExhausted ||
      !refusal.retry_after.has_value()) {
    return;
  }
  // At least a millisecond: gRPC reads 0 as "at once".
  const int64_t milliseconds = std::clamp<int64_t>(absl::ToInt64Milliseconds(*refusal.retry_after),
                                                   1, std::numeric_limits<int32_t>::max());
  context.AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(milliseconds));
}

}  // namespace encoderd
