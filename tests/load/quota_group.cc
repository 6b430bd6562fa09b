#include "tests/load/quota_group.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"

namespace encoderd::load {
namespace {

constexpr int kPeriodUs = 100'000;

bool Write(const std::string& file, const std::string& value) {
  std::ofstream stream(file);
  stream << value;
  stream.close();
  return stream.good();
}

}  // namespace

absl::StatusOr<QuotaGroup> QuotaGroup::Create(double cpus) {
  namespace fs = std::filesystem;
  const auto quota_us = static_cast<int>(cpus * kPeriodUs);
  const bool v2 = fs::exists("/sys/fs/cgroup/cgroup.controllers");
  const std::string folder =
      absl::StrCat(v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu", "/encoderd_load_", getpid());
  std::error_code error;
  if (!fs::create_directory(folder, error)) {
    return absl::UnavailableError(
        absl::StrCat(folder, ": ", error ? error.message() : "is there already"));
  }
  QuotaGroup group(folder);
  const bool set = v2 ? Write(folder + "/cpu.max", absl::StrCat(quota_us, " ", kPeriodUs))
                      : Write(folder + "/cpu.cfs_period_us", absl::StrCat(kPeriodUs)) &&
                            Write(folder + "/cpu.cfs_quota_us", absl::StrCat(quota_us));
  if (!set) return absl::UnavailableError(absl::StrCat(folder, ": the quota cannot be set"));
  return group;
}

QuotaGroup::QuotaGroup(QuotaGroup&& other) noexcept : folder_(std::exchange(other.folder_, "")) {}

QuotaGroup::~QuotaGroup() {
  if (!folder_.empty()) rmdir(folder_.c_str());
}

}  // namespace encoderd::load
