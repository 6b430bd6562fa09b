#include "engine/model/faults.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace encoderd {

absl::Status Faults::ToStatus(const std::string& what) const {
  if (faults_.empty()) return absl::OkStatus();
  if (faults_.size() == 1) return absl::InvalidArgumentError(absl::StrCat(what, ": ", faults_[0]));
  const size_t listed = std::min(faults_.size(), kMaxListed);
  std::string message = absl::StrCat(what, ": ", faults_.size(), " faults:");
  for (size_t i = 0; i < listed; ++i) absl::StrAppend(&message, "\n  ", faults_[i]);
  if (listed < faults_.size()) {
    absl::StrAppend(&message, "\n  and ", faults_.size() - listed, " more");
  }
  return absl::InvalidArgumentError(message);
}

absl::Status FaultReport::ToStatus() const {
  if (errors_.empty()) return absl::OkStatus();
  if (errors_.size() == 1) return errors_[0];
  const auto message = [](std::string* out, const absl::Status& error) {
    absl::StrAppend(out, error.message());
  };
  return absl::InvalidArgumentError(absl::StrJoin(errors_, "\n", message));
}

}  // namespace encoderd
