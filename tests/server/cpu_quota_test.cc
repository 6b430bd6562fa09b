// Goal: the CPUs that are found are those that the kernel will give.
// Method: folders that look like /proc and /sys of the machines we know of.
#include "server/cpu_quota.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

namespace encoderd {
namespace {

using ::testing::DoubleEq;
using ::testing::Optional;

class CpuQuotaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::testing::TempDir() + "cpu_quota_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::map<std::string, std::string>& files) {
    for (const auto& [path, text] : files) {
      const std::filesystem::path full = root_ + path;
      std::filesystem::create_directories(full.parent_path());
      std::ofstream(full) << text;
    }
  }
  CpuQuota Read(int affinity = 64) { return ReadCpuQuota(root_, affinity); }

  std::string root_;
};

TEST_F(CpuQuotaTest, IsTheAffinityWhereNothingElseIsSaid) {
  EXPECT_EQ(Read(8).Cpus(), 8);
  EXPECT_EQ(Read(8).quota, std::nullopt);
  EXPECT_EQ(Read(8).cpuset, std::nullopt);
}

TEST_F(CpuQuotaTest, ReadsV2InAContainer) {
  Write({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "200000 100000\n"}});
  EXPECT_THAT(Read().quota, Optional(DoubleEq(2)));
  EXPECT_EQ(Read().Cpus(), 2);
}

TEST_F(CpuQuotaTest, ReadsMaxAsNoQuota) {
  Write({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "max 100000\n"}});
  EXPECT_EQ(Read(3).quota, std::nullopt);
  EXPECT_EQ(Read(3).Cpus(), 3);
}

TEST_F(CpuQuotaTest, TakesTheLowestQuotaOnTheWayUpInV2) {
  Write({{"/proc/self/cgroup", "0::/kubepods/pod1/main\n"},
         {"/sys/fs/cgroup/kubepods/cpu.max", "6400000 100000\n"},
         {"/sys/fs/cgroup/kubepods/pod1/cpu.max", "300000 100000\n"},
         {"/sys/fs/cgroup/kubepods/pod1/main/cpu.max", "max 100000\n"}});
  EXPECT_EQ(Read().Cpus(), 3);
}

TEST_F(CpuQuotaTest, RoundsUpAndGivesAtLeastOne) {
  Write({{"/proc/self/cgroup", "0::/\n"}, {"/sys/fs/cgroup/cpu.max", "50000 100000\n"}});
  EXPECT_THAT(Read().quota, Optional(DoubleEq(0.5)));
  EXPECT_EQ(Read().Cpus(), 1);
  Write({{"/sys/fs/cgroup/cpu.max", "250000 100000\n"}});
  EXPECT_EQ(Read().Cpus(), 3);
  EXPECT_EQ(Read(0).Cpus(), 1);
}

TEST_F(CpuQuotaTest, ReadsV1) {
  Write({{"/proc/self/cgroup", "5:cpuset:/docker/a\n4:cpu,cpuacct:/docker/a\n"},
         {"/sys/fs/cgroup/cpu/docker/a/cpu.cfs_quota_us", "150000\n"},
         {"/sys/fs/cgroup/cpu/docker/a/cpu.cfs_period_us", "100000\n"},
         {"/sys/fs/cgroup/cpuset/docker/a/cpuset.cpus", "0-1,4\n"}});
  EXPECT_THAT(Read().quota, Optional(DoubleEq(1.5)));
  EXPECT_THAT(Read().cpuset, Optional(3));
  EXPECT_EQ(Read().Cpus(), 2);
}

TEST_F(CpuQuotaTest, ReadsV1WhereThePathIsTheHosts) {
  Write({{"/proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n"},
         {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n"},
         {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(Read().Cpus(), 2);
}

TEST_F(CpuQuotaTest, ReadsMinusOneAsNoQuota) {
  Write({{"/proc/self/cgroup", "4:cpu:/\n"},
         {"/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"},
         {"/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}});
  EXPECT_EQ(Read(5).Cpus(), 5);
}

TEST_F(CpuQuotaTest, CountsTheCpusetOfTheInnermostGroup) {
  Write({{"/proc/self/cgroup", "0::/a/b\n"},
         {"/sys/fs/cgroup/cpuset.cpus.effective", "0-63\n"},
         {"/sys/fs/cgroup/a/cpuset.cpus.effective", "0-1,4,8-9\n"}});
  EXPECT_THAT(Read().cpuset, Optional(5));
  EXPECT_EQ(Read().Cpus(), 5);
  EXPECT_EQ(Read(2).Cpus(), 2);
}

TEST_F(CpuQuotaTest, TakesBrokenFilesAsNoLimit) {
  Write({{"/proc/self/cgroup", "nonsense\n0::/\n"},
         {"/sys/fs/cgroup/cpu.max", "many 100000\n"},
         {"/sys/fs/cgroup/cpuset.cpus.effective", "3-1\n"}});
  EXPECT_EQ(Read(7).Cpus(), 7);
  Write({{"/sys/fs/cgroup/cpu.max", "100000 0\n"}, {"/sys/fs/cgroup/cpuset.cpus.effective", "\n"}});
  EXPECT_EQ(Read(7).Cpus(), 7);
}

TEST_F(CpuQuotaTest, ReadsThrottledTime) {
  EXPECT_EQ(ReadThrottledSeconds(root_), std::nullopt);
  Write({{"/proc/self/cgroup", "0::/\n"},
         {"/sys/fs/cgroup/cpu.stat", "usage_usec 10\nnr_throttled 2\nthrottled_usec 1500000\n"}});
  EXPECT_THAT(ReadThrottledSeconds(root_), Optional(DoubleEq(1.5)));
}

TEST_F(CpuQuotaTest, ReadsThrottledTimeOfV1) {
  Write({{"/proc/self/cgroup", "4:cpu,cpuacct:/\n"},
         {"/sys/fs/cgroup/cpu/cpu.stat", "nr_periods 7\nthrottled_time 2500000000\n"}});
  EXPECT_THAT(ReadThrottledSeconds(root_), Optional(DoubleEq(2.5)));
}

TEST(CpuQuotaHereTest, FindsAtLeastOneCpuOnThisMachine) {
  EXPECT_GE(ReadCpuQuota().affinity, 1);
  EXPECT_GE(ReadCpuQuota().Cpus(), 1);
}

}  // namespace
}  // namespace encoderd
