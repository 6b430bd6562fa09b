#include "server/cpu_quota.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

namespace encoderd {
namespace {

std::optional<std::string> ReadLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

std::optional<double> ToNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> ReadNumber(const std::string& path) {
  const auto line = ReadLine(path);
  return line ? ToNumber(*line) : std::nullopt;
}

// "0-1,4" → 3.
std::optional<int> CountCpus(const std::string& list) {
  int count = 0;
  std::istringstream ranges(list);
  for (std::string range; std::getline(ranges, range, ',');) {
    const size_t dash = range.find('-');
    const auto first = ToNumber(std::string_view(range).substr(0, dash));
    const auto last =
        dash == std::string::npos ? first : ToNumber(std::string_view(range).substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    count += static_cast<int>(*last - *first) + 1;
  }
  return count > 0 ? std::optional(count) : std::nullopt;
}

// This process's group of one controller ("cpu" or "cpuset" of v1; "" is v2), from
// /proc/self/cgroup, cgroups(7): lines of "id:controllers:path".
std::optional<std::string> CgroupOf(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t path = line.find(":/", first + 1);
    if (path == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, path - first - 1) + ",";
    if (names.find("," + controller + ",") != std::string::npos) return line.substr(path + 1);
  }
  return std::nullopt;
}

// Where the files of that group and of every ancestor are, innermost first. A container often sees
// its own group as the root of the mount while the path is the host's: folders that are not there
// are simply not read.
std::vector<std::string> CgroupFolders(const std::string& root, const std::string& controller) {
  std::vector<std::string> folders;
  std::optional<std::string> group = CgroupOf(root, controller);
  if (!group) return folders;
  const std::string mount = root + "/sys/fs/cgroup" + (controller.empty() ? "" : "/" + controller);
  for (; group->size() > 1; group->resize(group->rfind('/'))) {
    folders.push_back(mount + *group + "/");
  }
  folders.push_back(mount + "/");
  return folders;
}

std::optional<double> QuotaV2(const std::string& folder) {
  const auto line = ReadLine(folder + "cpu.max");  // "max 100000" or "150000 100000"
  if (!line) return std::nullopt;
  const size_t space = line->find(' ');
  if (space == std::string::npos) return std::nullopt;
  const auto quota = ToNumber(std::string_view(*line).substr(0, space));
  const auto period = ToNumber(std::string_view(*line).substr(space + 1));
  if (!quota || !period || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> QuotaV1(const std::string& folder) {
  const auto quota = ReadNumber(folder + "cpu.cfs_quota_us");  // -1: none
  const auto period = ReadNumber(folder + "cpu.cfs_period_us");
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

void LowerTo(std::optional<double>& limit, std::optional<double> other) {
  if (other) limit = std::min(limit.value_or(*other), *other);
}

// The value after "name " in a file of such lines.
std::optional<double> ReadNamed(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string key, value; file >> key >> value;) {
    if (key == name) return ToNumber(value);
  }
  return std::nullopt;
}

}  // namespace

int CpuQuota::Cpus() const {
  double cpus = affinity;
  if (quota) cpus = std::min(cpus, *quota);
  if (cpuset) cpus = std::min(cpus, static_cast<double>(*cpuset));
  return std::max(1, static_cast<int>(std::ceil(cpus)));
}

CpuQuota ReadCpuQuota(const std::string& root, int affinity) {
  CpuQuota result;
  result.affinity = affinity;
  for (const std::string& folder : CgroupFolders(root, "")) {
    LowerTo(result.quota, QuotaV2(folder));
  }
  for (const std::string& folder : CgroupFolders(root, "cpu")) {
    LowerTo(result.quota, QuotaV1(folder));
  }

  // The kernel keeps a group's effective set within its ancestors', so the innermost file says all.
  const auto read_cpuset = [&result](const std::string& path) {
    if (result.cpuset) return;
    if (const auto list = ReadLine(path)) result.cpuset = CountCpus(*list);
  };
  for (const std::string& folder : CgroupFolders(root, "")) {
    read_cpuset(folder + "cpuset.cpus.effective");
  }
  for (const std::string& folder : CgroupFolders(root, "cpuset")) {
    read_cpuset(folder + "cpuset.effective_cpus");
    read_cpuset(folder + "cpuset.cpus");
  }
  return result;
}

CpuQuota ReadCpuQuota() {
  cpu_set_t cpus;  // room for 1024; on a larger machine the call fails and one CPU is assumed
  const bool known = sched_getaffinity(0, sizeof(cpus), &cpus) == 0;
  return ReadCpuQuota("", known ? CPU_COUNT(&cpus) : 1);
}

std::optional<double> ReadThrottledSeconds(const std::string& root) {
  for (const std::string& folder : CgroupFolders(root, "")) {
    if (const auto us = ReadNamed(folder + "cpu.stat", "throttled_usec")) return *us * 1e-6;
  }
  for (const std::string& folder : CgroupFolders(root, "cpu")) {
    if (const auto ns = ReadNamed(folder + "cpu.stat", "throttled_time")) return *ns * 1e-9;
  }
  return std::nullopt;
}

}  // namespace encoderd
