// The nvme tier's folder: what it accepts, what it leaves behind, who else may be in it.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <chrono>
#include <functional>
#include <thread>

#include "offload/faulty_calls.h"
#include "offload/support.h"

namespace gannet {
namespace {

using test::Bytes;
using test::open_tier;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::SizeIs;

Error refusal(const std::string& path) {
  return test::error_of([&] { open_tier("nvme", {{"nvme_path", path}}); });
}

// Another job on the folder: `gannet bench nvme` for ever.
class OtherJob {
 public:
  explicit OtherJob(const std::string& folder) {
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(open("/dev/null", O_WRONLY), 1);
      execl(GANNET_PROGRAM, "gannet", "bench", "nvme", folder.c_str(), "--size", "8M", "--rounds", "100000000", "--block_size",
            "1M", nullptr);
      _exit(127);
    }
    for (int i = 0; i < 600 && test::job_folders(folder).empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // it holds the lock, and transfers
  }
  ~OtherJob() { kill(); }
  bool is_alive() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }
  void kill() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  pid_t pid_ = 0;
};

TEST(NvmeFolder, APathThatCannotServeIsToldWithTheNextStep) {
  test::TemporaryFolder folder;
  test::write_file(folder / "file", "hello");
  const struct {
    std::string path, found, next;
  } cases[] = {
      {"", "nvme_path is empty", "name a folder on the NVMe drive"},
      {"local/nvme", "nvme_path 'local/nvme' is relative", "write the whole path"},
      {folder / "absent", "nvme_path '" + folder.string() + "/absent' does not exist",
       "mkdir -p '" + folder.string() + "/absent'"},
      {folder / "file", "nvme_path '" + folder.string() + "/file' is not a folder", "name the folder"},
      {folder / "file/below", "file/below' does not exist", "name another folder"},
  };
  for (const auto& [path, found, next] : cases) {
    const Error error = refusal(path);
    EXPECT_EQ(error.code(), ErrorCode::kArgument) << path;
    EXPECT_THAT(error.message(), AllOf(HasSubstr(found), HasSubstr(next)));
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "absent"));
  EXPECT_THAT(test::job_folders(folder.string()), ElementsAre("file"));
}

TEST(NvmeFolder, AFolderThatCannotBeWrittenInIsTold) {
  test::TemporaryFolder folder;
  test::FaultyCalls faults;
  faults.fail("mkdir", EROFS);
  const Error error = refusal(folder.string());
  EXPECT_EQ(error.code(), ErrorCode::kArgument);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("nvme_path '" + folder.string() + "' cannot be written in: Read-only file system"),
                                     HasSubstr("name another folder")));
}

TEST(NvmeFolder, AReadOnlyMountIsTold) {
  test::TemporaryFolder folder;
  if (mount("gannet-test", folder.string().c_str(), "tmpfs", MS_RDONLY, "size=1m") != 0) GTEST_SKIP() << "no right to mount";
  const Error error = refusal(folder.string());
  umount(folder.string().c_str());
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("cannot be written in: Read-only file system (errno 30)"), HasSubstr("name another folder")));
}

TEST(NvmeFolder, AFileSystemInMemoryIsUsedWithOneWarning) {
  test::TemporaryFolder folder;
  if (mount("gannet-test", folder.string().c_str(), "tmpfs", 0, "size=8m") != 0) GTEST_SKIP() << "no right to mount";
  {
    test::CapturedLog log;
    const auto tier = open_tier("nvme", {{"nvme_path", folder.string()}});
    EXPECT_THAT(log.text(),
                MatchesRegex("[^\n]*nvme_path '" + folder.string() + "' is on a file system in memory \\(tmpfs\\)[^\n]*\n"));
    void* region = tier->allocate(3 << 20, "moments");
    Bytes written(3 << 20, 1), got(3 << 20, 2);
    tier->wait(tier->write(region, 0, written.data(), written.size()));
    tier->wait(tier->read(region, 0, got.data(), got.size()));
    EXPECT_TRUE(got == written);

    const Error full = test::error_of([&] { tier->allocate(16 << 20, "too large"); });
    EXPECT_EQ(full.code(), ErrorCode::kIo);
    EXPECT_THAT(full.message(), AllOf(HasSubstr("reserving 16.8 MB for region 'too large'"), HasSubstr("No space left on device"),
                                      ContainsRegex("5.[0-9] MB are free in '" + folder.string() + "'")));
  }
  umount(folder.string().c_str());
}

TEST(NvmeFolder, AFileSystemWithoutDirectIoIsUsedWithOneWarning) {
  test::TemporaryFolder folder;
  test::FaultyCalls faults;
  faults.fail("pwrite", EINVAL);
  test::CapturedLog log;
  const auto tier = open_tier("nvme", {{"nvme_path", folder.string()}});
  EXPECT_THAT(log.text(), MatchesRegex("[^\n]*(takes no direct I/O|in memory)[^\n]*\n"));
  void* region = tier->allocate(1 << 20, "moments");
  Bytes written(1 << 20, 1), got(1 << 20, 2);
  tier->wait(tier->write(region, 0, written.data(), written.size()));
  tier->wait(tier->read(region, 0, got.data(), got.size()));
  EXPECT_TRUE(got == written);
}

TEST(NvmeFolder, ARegionLargerThanTheFreeSpaceIsToldAtOnce) {
  test::TemporaryFolder folder;
  const auto tier = open_tier("nvme", {{"nvme_path", folder.string()}});
  struct statvfs space{};
  ASSERT_EQ(statvfs(folder.string().c_str(), &space), 0);
  const Error error = test::error_of([&] { tier->allocate(space.f_bavail * space.f_frsize + (uint64_t{1} << 32), "moments"); });
  EXPECT_EQ(error.code(), ErrorCode::kIo);
  EXPECT_THAT(error.message(),
              AllOf(ContainsRegex("reserving [0-9.]+ [GT]B for region 'moments' \\('" + folder.string() + "/gannet-"),
                    HasSubstr("No space left on device (errno 28)"), ContainsRegex("[0-9.]+ [MGT]B are free in"),
                    HasSubstr("name another folder as nvme_path")));
}

TEST(NvmeFolder, AFileSystemWithoutFallocateStillServes) {
  test::TemporaryFolder folder;
  test::FaultyCalls faults;
  faults.fail("fallocate", EOPNOTSUPP);
  const auto tier = open_tier("nvme", {{"nvme_path", folder.string()}});
  void* region = tier->allocate(1 << 20, "moments");
  Bytes got(1 << 20, 2);
  tier->wait(tier->read(region, 0, got.data(), got.size()));
  EXPECT_TRUE(got.all_zero());
}

TEST(NvmeFolder, ABlockSizeThatDirectIoCannotTakeIsTold) {
  test::TemporaryFolder folder;
  const Error error = test::error_of([&] { open_tier("nvme", {{"nvme_path", folder.string()}, {"block_size", 100000}}); });
  EXPECT_THAT(error.message(), AllOf(HasSubstr("block_size 100000 is not a multiple of 4096"), HasSubstr("write 102400")));
}

TEST(NvmeFolder, NoFileHasANameAndNothingIsLeft) {
  test::TemporaryFolder folder;
  {
    const auto tier = open_tier("nvme", {{"nvme_path", folder.string()}}, /*rank=*/3);
    tier->allocate(1 << 20, "moments");
    const auto folders = test::job_folders(folder.string());
    ASSERT_THAT(folders, ElementsAre(MatchesRegex("gannet-[0-9a-f]+-rank3")));
    EXPECT_THAT(test::job_folders(folder / folders[0]), ElementsAre("lock"));
  }
  EXPECT_THAT(test::job_folders(folder.string()), IsEmpty());
}

TEST(NvmeFolder, WhatAKilledJobLeftIsRemovedByTheNext) {
  test::TemporaryFolder folder;
  OtherJob other(folder.string());
  ASSERT_TRUE(other.is_alive());
  other.kill();
  ASSERT_THAT(test::job_folders(folder.string()), SizeIs(1));
  std::filesystem::create_directory(folder / "gannet-0123456789abcdef-rank0");  // killed before it had its lock
  std::filesystem::create_directory(folder / "gannet-notes-rank0");             // someone's own
  test::write_file(folder / "data.bin", "someone's");
  test::CapturedLog log;
  const auto tier = open_tier("nvme", {{"nvme_path", folder.string()}});
  EXPECT_THAT(log.text(), HasSubstr("removed 1 folder(s) that dead jobs had left in '" + folder.string() + "'"));
  EXPECT_THAT(test::job_folders(folder.string()), SizeIs(3));
  EXPECT_TRUE(std::filesystem::exists(folder / "data.bin"));
  EXPECT_TRUE(std::filesystem::exists(folder / "gannet-notes-rank0"));
}

TEST(NvmeFolder, TwoJobsShareAFolder) {
  test::TemporaryFolder folder;
  OtherJob other(folder.string());
  for (int round = 0; round < 3; ++round) {
    const auto tier = open_tier("nvme", {{"nvme_path", folder.string()}});
    EXPECT_THAT(test::job_folders(folder.string()), SizeIs(2));
    void* region = tier->allocate(4 << 20, "moments");
    Bytes written(4 << 20, 1), got(4 << 20, 2);
    tier->wait(tier->write(region, 0, written.data(), written.size()));
    tier->wait(tier->read(region, 0, got.data(), got.size()));
    EXPECT_TRUE(got == written);
  }
  EXPECT_TRUE(other.is_alive());
  EXPECT_THAT(test::job_folders(folder.string()), SizeIs(1));
}

TEST(NvmeFolder, ManyJobsMayBeginInOneMoment) {
  test::TemporaryFolder folder;
  std::vector<std::thread> threads;
  std::atomic<int> failed{0};
  for (uint32_t rank = 0; rank < 8; ++rank)
    threads.emplace_back([&, rank] {
      for (int round = 0; round < 20; ++round) try {
          open_tier("nvme", {{"nvme_path", folder.string()}}, rank)->allocate(4096, "moments");
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
          ++failed;
        }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_THAT(test::job_folders(folder.string()), IsEmpty());
}

TEST(NvmeThreads, AreNamedAndBlockSignals) {
  test::TemporaryFolder folder;
  const auto tier = open_tier("nvme", {{"nvme_path", folder.string()}, {"intra_op_parallelism", 3}});
  Bytes bytes(1 << 20);
  tier->wait(tier->read(tier->allocate(1 << 20, "moments"), 0, bytes.data(), bytes.size()));
  // Each gives itself its name when it first runs.
  const auto named = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
      count += test::read_file(entry.path() / "comm") == "gannet-nvme\n";
    return count;
  };
  for (int turn = 0; turn < 1500 && named() < 3; ++turn) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  int threads = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    if (test::read_file(entry.path() / "comm") != "gannet-nvme\n") continue;
    ++threads;
    const std::string status = test::read_file(entry.path() / "status");
    const uint64_t blocked = std::stoull(status.substr(status.find("SigBlk:") + 7), nullptr, 16);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD, SIGPROF})
      EXPECT_NE(blocked & (1ull << (signal - 1)), 0u) << signal;
  }
  EXPECT_EQ(threads, 3);
}

}  // namespace
}  // namespace gannet
