#include "engine/model/faults.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

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

}  // namespace encoderd
