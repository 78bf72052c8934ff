// The checkpoint that a folder's `latest` leads to, other entries in its place, folders that
// vanish, and the owner of the lock.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <csignal>

#include "checkpoint/catalog.h"
#include "checkpoint/export.h"
#include "checkpoint/lock.h"
#include "checkpoint/support.h"
#include "files/io.h"

namespace gannet::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LatestTest : public CheckpointTest {
 protected:
  void save(const std::string& tag, double value, bool save_latest = true) {
    Saver(folder(), {}).save(small_content(tag, value), {.save_latest = save_latest});
  }
  std::string latest() const { return folder() + "/latest"; }
};

TEST_F(LatestTest, one_that_was_cut_is_told_and_so_is_the_newer_checkpoint_that_is_passed_over) {
  save("global_step1", 1);
  save("global_step10", 10);
  EXPECT_THAT(open(folder(), {}).notes(), IsEmpty());
  fs::resize_file(latest(), 12);  // "global_step1", which exists
  const Opened opened = open(folder(), {});
  EXPECT_EQ(opened.tag(), "global_step1");
  EXPECT_THAT(opened.notes(),
              ElementsAre(HasSubstr("`latest` has no checksum"), HasSubstr("'global_step10' is newer and complete")));
}

TEST_F(LatestTest, a_newer_checkpoint_that_it_does_not_name_is_told) {
  save("a", 1);
  save("b", 2, /*save_latest=*/false);
  const Opened opened = open(folder(), {});
  EXPECT_EQ(opened.tag(), "a");
  EXPECT_THAT(opened.notes(), ElementsAre("'b' is newer and complete, and `latest` names another; used a"));
  EXPECT_THAT(open(folder(), {.tag = "a"}).notes(), IsEmpty()) << "it was asked for by name";
}

TEST_F(LatestTest, the_command_that_lists_tells_it_too) {
  save("global_step1", 1);
  save("global_step10", 10);
  fs::resize_file(latest(), 12);
  FILE* pipe = ::popen((std::string(GANNET_BINARY_DIR) + "/bin/gannet checkpoint list " + folder() + " 2>&1").c_str(), "r");
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), pipe));
  EXPECT_EQ(WEXITSTATUS(::pclose(pipe)), 0);
  EXPECT_THAT(text,
              AllOf(HasSubstr("gannet: `latest` has no checksum"), HasSubstr("gannet: 'global_step10' is newer and complete")));
}

// In a child: what is read without an end, or waited for, must not take the tests along.
TEST_F(LatestTest, what_is_not_a_small_regular_file_is_not_read) {
  save("a", 1);
  const struct {
    const char* what;
    std::function<void(const std::string&)> make;
    const char* note;
  } kCases[] = {
      {"a FIFO", [](const std::string& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }, "is not a regular file"},
      {"a device", [](const std::string& path) { fs::create_symlink("/dev/zero", path); }, "is not a regular file"},
      {"a folder", [](const std::string& path) { fs::create_directory(path); }, "is not a regular file"},
      {"a circle of links", [](const std::string& path) { fs::create_symlink(path, path); }, "is missing"},
      {"a sparse file",
       [](const std::string& path) {
         write_text(path, "a\n");
         fs::resize_file(path, uint64_t{10} << 30);
       },
       "at most 4.0 KiB are read"},
  };
  for (const auto& one : kCases) {
    SCOPED_TRACE(one.what);
    fs::remove_all(latest());
    one.make(latest());
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(10);
      bool right = false;
      try {
        const Opened opened = open(folder(), {});
        right = opened.tag() == "a" && opened.notes().size() == 1 && opened.notes()[0].find(one.note) != std::string::npos;
        right = right && list(folder()).size() == 1;
      } catch (...) {
      }
      ::_exit(right ? 0 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
}

TEST_F(LatestTest, a_folder_that_may_not_be_searched_hides_no_other) {
  save("a", 1);
  fs::create_directory(folder() + "/private");
  ::chmod((folder() + "/private").c_str(), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && ::seteuid(65534) != 0) ::_exit(9);  // root may search every folder
    bool right = false;
    try {
      const auto all = list(folder());
      right = open(folder(), {}).tag() == "a" && all.size() == 2 && all[1].problem.find("Permission denied") != std::string::npos;
    } catch (...) {
    }
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ::chmod((folder() + "/private").c_str(), 0700);
}

TEST(Files, advice_on_a_missing_permission_is_for_what_was_done) {
  const auto advice = [](const std::string& what) {
    return error_of(ErrorCode::kIo, [&] { files::io_failed(what, "/x", EACCES); });
  };
  for (const char* what : {"open", "read", "examine", "list the folder"}) {
    EXPECT_THAT(advice(what), HasSubstr("let this user read it"));
    EXPECT_THAT(advice(what), testing::Not(HasSubstr("write to")));
  }
  for (const char* what : {"create", "write 3 bytes at byte 0 of", "make the folder"})
    EXPECT_THAT(advice(what), HasSubstr("choose a folder that this user may write to"));
}

TEST_F(LatestTest, a_folder_that_vanishes_while_saving_is_an_io_error) {
  Saver saver(folder(), {});
  saver.save(small_content("a"), {});
  fs::rename(folder(), root_ / "moved");
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { saver.save(small_content("b"), {}); }),
              AllOf(HasSubstr("No such file or directory"), HasSubstr("vanished while a checkpoint was being saved")));
  write_text(folder(), "a file in its place");
  error_of(ErrorCode::kIo, [&] { saver.save(small_content("b"), {}); });
}

TEST_F(LatestTest, a_folder_that_vanishes_before_latest_is_written_holds_no_complete_checkpoint) {
  Ranks ranks;
  ranks.gather = [&](const std::string& what, const std::string& text) {
    if (what == "checkpoint: commit") fs::rename(folder(), root_ / "moved");
    return std::vector<std::string>{text};
  };
  Saver saver(folder(), ranks);
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { saver.save(small_content("a"), {}); }),
              AllOf(HasSubstr("vanished"), testing::Not(HasSubstr("written and complete"))));
}

TEST_F(LatestTest, a_parameter_named_as_the_formats_own_key_is_refused_by_an_export) {
  Content content{.tag = "t"};
  content.slices = {whole("parameter/__metadata__", at::zeros({2}))};
  Saver(folder(), {}).save(content, {});
  EXPECT_THAT(error_of(ErrorCode::kArgument, [&] { export_model(open(folder(), {}), (root_ / "out").string(), {}); }),
              HasSubstr("'__metadata__'"));
  EXPECT_FALSE(fs::exists(root_ / "out" / "model.safetensors"));
}

// ---- the lock

std::string record(const std::string& host, int64_t pid) {
  return "{\"host\":\"" + host + "\",\"pid\":" + std::to_string(pid) +
         ",\"started\":\"1\",\"pid_namespace\":\"elsewhere\",\"since\":\"then\"}\n";
}

// A sign of life ends the wait: its length is for a machine that is busy with other things.
constexpr LockTimes kPatient{.heartbeat = std::chrono::milliseconds(20), .watch = std::chrono::milliseconds(30'000)};
constexpr LockTimes kFast{.heartbeat = std::chrono::milliseconds(20), .watch = std::chrono::milliseconds(400)};

// flock gives it to the newcomer, as it does where each machine has its own.
TEST_F(LatestTest, a_lock_whose_owner_on_another_host_shows_signs_of_life_is_refused) {
  fs::create_directories(folder());
  const std::string path = folder() + "/.gannet.lock";
  write_text(path, record("elsewhere", 7));
  std::atomic<bool> lives = true;
  std::thread owner([&] {
    while (lives) {
      ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  EXPECT_THAT(error_of(ErrorCode::kUnavailable, [&] { FolderLock lock(folder(), kPatient); }),
              AllOf(HasSubstr("process 7 on host elsewhere"), HasSubstr("lock_folder = false")));
  lives = false;
  owner.join();
  EXPECT_EQ(read_text(path), record("elsewhere", 7)) << "the owner's record was overwritten";
  FolderLock taken(folder(), kFast);  // it has died
  EXPECT_THAT(read_text(path), HasSubstr("\"pid\":" + std::to_string(::getpid())));
}

TEST_F(LatestTest, an_old_record_of_another_host_is_taken_over_at_once) {
  fs::create_directories(folder());
  write_text(folder() + "/.gannet.lock", record("elsewhere", 7));
  const timespec old[2] = {{1'000'000, 0}, {1'000'000, 0}};
  ::utimensat(AT_FDCWD, (folder() + "/.gannet.lock").c_str(), old, 0);
  const auto begin = std::chrono::steady_clock::now();
  FolderLock lock(folder());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(12)) << "not watched for 16 s";
}

TEST_F(LatestTest, an_owner_shows_signs_of_life) {
  fs::create_directories(folder());
  FolderLock lock(folder(), kFast);
  const auto time = [&] {
    struct stat status{};
    ::stat((folder() + "/.gannet.lock").c_str(), &status);
    return std::pair(status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
  };
  const auto before = time();
  for (int turn = 0; turn < 1500 && time() == before; ++turn) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_NE(time(), before);
  EXPECT_TRUE(is_locked_here(folder()));
}

}  // namespace
}  // namespace gannet::checkpoint
