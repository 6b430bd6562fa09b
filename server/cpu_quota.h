// cpu_quota.h — how many CPUs this process may really use.
//
// Source:  cgroups(7), cgroup v2 cpu.max, v1 cpu.cfs_quota_us / cpu.cfs_period_us, cpuset lists as
//          in cpuset(7), sched_getaffinity(2). A quota holds for the whole subtree, so every
//          ancestor of the process's own group is read.
#pragma once

#include <optional>
#include <string>

namespace encoderd {

struct CpuQuota {
  std::optional<double> quota;  // CPUs by cgroup quota, absent when there is none
  std::optional<int> cpuset;    // CPUs of the cgroup's cpuset, absent when it cannot be read
  int affinity = 1;             // CPUs this process may be scheduled on

  // ceil(min of the three), at least 1.
  int Cpus() const;
};

// Reads what holds for this process. Files that are missing or unreadable set no limit.
CpuQuota ReadCpuQuota();

// The same with another root for /proc and /sys, and the affinity given.
CpuQuota ReadCpuQuota(const std::string& root, int affinity);

// Seconds for which the quota kept this process's cgroup off the CPU; absent where the kernel does
// not say.
std::optional<double> ReadThrottledSeconds(const std::string& root = "");

}  // namespace encoderd
