// The machine's memory limits: nested control groups, `ulimit`, and the real one.
#include "base/machine_memory.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include "plugin/support.h"

namespace gannet {
namespace {

using test::TemporaryFolder;

class MachineMemoryTest : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((folder_ / file).parent_path());
    test::write_file(folder_ / file, text);
  }
  MachineMemory memory() const { return machine_memory(folder_.string() + "/proc", folder_.string() + "/cgroup"); }
  void meminfo() { write("proc/meminfo", "MemTotal:       16384 kB\nMemFree:         4096 kB\nMemAvailable:   8192 kB\n"); }
  TemporaryFolder folder_;
};

TEST_F(MachineMemoryTest, WithoutACgroupItIsWhatTheKernelHas) {
  meminfo();
  const MachineMemory found = memory();
  EXPECT_EQ(found.physical_bytes, 16384u * 1024);
  EXPECT_EQ(found.available_bytes, 8192u * 1024);
  EXPECT_EQ(found.cgroup.limit_bytes, std::nullopt);
  EXPECT_EQ(found.host_free_bytes(), 8192u * 1024);
}

TEST_F(MachineMemoryTest, TheNearestLimitOfNestedGroupsCounts) {
  meminfo();
  write("proc/self/cgroup", "0::/slice/job\n");
  write("cgroup/slice/job/memory.max", "max\n");
  write("cgroup/slice/memory.max", "4000000\n");
  write("cgroup/slice/memory.current", "3500000\n");
  write("cgroup/slice/memory.stat", "anon 1\ninactive_file 400000\nactive_file 100000\n");
  write("cgroup/memory.max", "3900000\n");  // smaller, and less used
  write("cgroup/memory.current", "1000000\n");
  const MachineMemory found = memory();
  EXPECT_EQ(found.cgroup.limit_bytes, 3900000u);
  EXPECT_EQ(found.cgroup.free_bytes, 1000000u);
  EXPECT_EQ(found.host_free_bytes(), 1000000u);
}

TEST_F(MachineMemoryTest, ReadsTheFirstVersionToo) {
  meminfo();
  write("proc/self/cgroup", "9:pids:/other\n4:cpu,memory:/a/job\n0::/\n");
  write("cgroup/memory/a/job/memory.limit_in_bytes", "9223372036854771712\n");  // none
  write("cgroup/memory/a/memory.limit_in_bytes", "6000000\n");
  write("cgroup/memory/a/memory.usage_in_bytes", "5000000\n");
  write("cgroup/memory/a/memory.stat", "inactive_file 7\ntotal_inactive_file 1000000\nhierarchical_memory_limit 5500000\n");
  const MachineMemory found = memory();
  EXPECT_EQ(found.cgroup.limit_bytes, 5500000u);  // a group above that is not mounted here
  EXPECT_EQ(found.cgroup.free_bytes, 1500000u);
}

TEST_F(MachineMemoryTest, InAContainerThePathIsTheHostsAndTheMountIsTheGroup) {
  meminfo();
  write("proc/self/cgroup", "0::/a/path/of/the/host\n");
  write("cgroup/memory.max", "1048576\n");
  EXPECT_EQ(memory().cgroup.limit_bytes, 1048576u);
  EXPECT_EQ(memory().host_free_bytes(), 1048576u);  // nothing says how much of it is used
  write("proc/self/cgroup", "garbage\n:\n");
  EXPECT_EQ(memory().cgroup.limit_bytes, std::nullopt);
}

TEST_F(MachineMemoryTest, KnowsWhatUlimitLeavesToThisProcess) {
  meminfo();
  write("proc/self/status", "Name:\tx\nVmSize:\t  1024 kB\nVmData:\t   512 kB\n");
  EXPECT_EQ(memory().process_free_bytes(), std::nullopt);
  rlimit before{};
  getrlimit(RLIMIT_DATA, &before);
  rlimit limit = before;
  limit.rlim_cur = rlim_t{1} << 50;  // AddressSanitizer has reserved 20 TiB
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
  const auto found = memory();
  setrlimit(RLIMIT_DATA, &before);
  EXPECT_EQ(found.data_limit_bytes, uint64_t{1} << 50);
  EXPECT_EQ(found.process_free_bytes(), (uint64_t{1} << 50) - 512 * 1024);
}

TEST_F(MachineMemoryTest, TheRealMachineHasMemoryAndADisk) {
  const MachineMemory found = machine_memory();
  EXPECT_GT(found.physical_bytes, found.available_bytes);
  EXPECT_GT(found.host_free_bytes(), 0u);
  EXPECT_EQ(free_bytes(folder_.string() + "/not/there/yet") >> 40, free_bytes(folder_.string()) >> 40);
}

}  // namespace
}  // namespace gannet
