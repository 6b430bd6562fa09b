// quota_group.h — a cpu control group of our own with a quota, for servers to be started in.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace encoderd::load {

class QuotaGroup {
 public:
  // A group that may use `cpus` CPUs, by cgroup v2 or v1. Errors: kUnavailable, with the reason,
  // where this machine does not let us make one.
  static absl::StatusOr<QuotaGroup> Create(double cpus);
  QuotaGroup(QuotaGroup&& other) noexcept;
  ~QuotaGroup();  // takes it away. REQUIRES: its processes have ended

  const std::string& folder() const { return folder_; }

 private:
  explicit QuotaGroup(std::string folder) : folder_(std::move(folder)) {}

  std::string folder_;
};

}  // namespace encoderd::load
