// reason.h — a stable name of what went wrong, carried by a status.
//
// Role: between those who know the reason of an error and the service, which tells it to the caller
//       and counts it. The names are those of kReasons (server/metrics.h).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace encoderd {

inline constexpr char kReasonUrl[] = "encoderd/reason";

inline absl::Status WithReason(absl::Status status, std::string_view reason) {
  status.SetPayload(kReasonUrl, absl::Cord(absl::string_view(reason.data(), reason.size())));
  return status;
}

// "" when the status carries none.
inline std::string ReasonOf(const absl::Status& status) {
  const auto reason = status.GetPayload(kReasonUrl);
  return reason.has_value() ? std::string(*reason) : "";
}

}  // namespace encoderd
