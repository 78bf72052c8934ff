// The cgroup's counters, from folders that look as the kernel's do.
#include "launch/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace {

using gannet::launch::MemoryWatch;
using testing::HasSubstr;
using testing::Not;

class MemoryWatchTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::remove_all(root_); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  MemoryWatch watch() { return MemoryWatch(root_.string(), (root_ / "self").string()); }
  std::filesystem::path root_ = std::filesystem::temp_directory_path() / ("gannet-memory-" + std::to_string(getpid()));
};

TEST_F(MemoryWatchTest, SaysThatAKillWasForWantOfMemoryWithTheSmallestLimitOnTheWayUp) {
  write("self", "0::/slice/job\n");
  write("slice/job/memory.events", "low 0\nhigh 3\nmax 7\noom 1\noom_kill 1\n");
  write("slice/job/memory.max", "max\n");
  write("slice/memory.max", "536870912\n");
  const MemoryWatch before = watch();
  EXPECT_THAT(before.why_killed(), HasSubstr("the kernel's out-of-memory killer ended nothing here (oom_kill in "));
  write("slice/job/memory.events", "low 0\nhigh 3\nmax 9\noom 2\noom_kill 2\n");
  EXPECT_EQ(before.why_killed(), "killed because memory ran out: oom_kill in " + before.counter_file() +
                                     " went from 1 to 2; the cgroup's limit is 512.0 MiB");
}

TEST_F(MemoryWatchTest, ReadsTheFirstVersionsFiles) {
  write("self", "8:pids:/x\n4:cpu,memory:/job\n0::/\n");
  write("memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  write("memory/job/memory.stat", "cache 12\nhierarchical_memory_limit 1073741824\n");
  const MemoryWatch before = watch();
  write("memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 1\noom_kill 1\n");
  EXPECT_THAT(before.why_killed(), HasSubstr("went from 0 to 1; the cgroup's limit is 1024.0 MiB"));
  write("memory/job/memory.stat", "hierarchical_memory_limit 9223372036854771712\n");
  EXPECT_THAT(before.why_killed(), HasSubstr("the cgroup has no limit of its own"));
}

TEST_F(MemoryWatchTest, InAContainerTheMountIsTheCgroup) {
  write("self", "0::/a/path/of/the/host\n");
  write("memory.events", "oom_kill 4\n");
  write("memory.max", "1048576\n");
  const MemoryWatch before = watch();
  EXPECT_EQ(before.limit_bytes(), 1048576u);
  write("memory.events", "oom_kill 5\n");
  EXPECT_THAT(before.why_killed(), HasSubstr("from 4 to 5; the cgroup's limit is 1.0 MiB"));
}

TEST_F(MemoryWatchTest, WithoutACounterItClaimsNothing) {
  EXPECT_THAT(watch().why_killed(), HasSubstr("kill -9 from outside, or out of memory"));
  write("self", "garbage\n:\n7:memory\n0::/x\n");
  write("memory.events", "nothing of use");
  EXPECT_EQ(watch().counter_file(), "");
}

}  // namespace
