// Full disks, broken disks, short writes and kill -9: the previous checkpoint survives any fault of
// a save.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <csignal>
#include <random>

#include "checkpoint/support.h"

namespace gannet::checkpoint {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;

struct Outcome {
  int status = 0;  // of waitpid
  std::string output;
  bool succeeded() const { return WIFEXITED(status) && WEXITSTATUS(status) == 0; }
  bool failed_with_error() const { return WIFEXITED(status) && WEXITSTATUS(status) == 3; }
  bool was_killed() const { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }
};

class Child {
 public:
  Child(const std::vector<std::string>& arguments, const std::string& fault, const std::string& fault_path,
        bool flock_lies = false) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      if (!fault.empty()) {
        ::setenv("LD_PRELOAD", GANNET_FAULTY_IO, 1);
        ::setenv("GANNET_FAULT", fault.c_str(), 1);
        ::setenv("GANNET_FAULT_PATH", fault_path.c_str(), 1);
        if (flock_lies) ::setenv("GANNET_FLOCK_LIES", "1", 1);
      }
      std::vector<char*> argv{const_cast<char*>(GANNET_SAVING_CHILD)};
      for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
      argv.push_back(nullptr);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~Child() { ::close(output_); }

  bool read_line_with(const std::string& text) {
    while (text_.find(text) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }
  void kill() const { ::kill(pid_, SIGKILL); }
  // Until it has stopped itself, or has ended.
  bool waits_stopped() const {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) == 0 && info.si_code == CLD_STOPPED;
  }
  void resume() const { ::kill(pid_, SIGCONT); }
  Outcome wait() {
    while (read_some()) {
    }
    Outcome outcome;
    ::waitpid(pid_, &outcome.status, 0);
    outcome.output = text_;
    return outcome;
  }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t size = ::read(output_, buffer, sizeof(buffer));
    if (size > 0) text_.append(buffer, size);
    return size > 0;
  }
  pid_t pid_ = 0;
  int output_ = -1;
  std::string text_;
};

class Faults : public CheckpointTest {
 protected:
  Outcome child(const std::string& tag, int64_t first, int64_t last, const std::string& fault = "", const std::string& path = "",
                int64_t numel = 5'000'000) {
    return Child({folder(), tag, std::to_string(first), std::to_string(last), std::to_string(numel)}, fault, path).wait();
  }

  // The step of the newest complete checkpoint, every byte of it verified.
  int64_t newest() const {
    const Opened opened = open(folder(), {});
    EXPECT_THAT(opened.verify(), IsEmpty());
    const int64_t step = opened.document().find("global_steps")->as_int();
    const at::Tensor w = read_whole(opened, "w");
    EXPECT_TRUE(w.eq(static_cast<double>(step)).all().item<bool>());
    return step;
  }

  bool has_leftovers() const {
    for (const auto& entry : fs::directory_iterator(folder())) {
      const std::string name = entry.path().filename();
      if (name.find(".tmp-") != std::string::npos || name.find(".old-") != std::string::npos) return true;
    }
    return false;
  }
};

TEST_F(Faults, a_full_or_broken_disk_is_an_error_and_the_checkpoint_before_it_stays) {
  ASSERT_TRUE(child("step%", 1, 1).succeeded());
  struct Case {
    const char *call, *path, *text;
  };
  for (const Case& c :
       {Case{"pwrite ENOSPC 1", "rank-", "No space left on device"}, Case{"pwrite ENOSPC 2", "rank-", "No space left on device"},
        Case{"pwrite EIO 1", "rank-", "Input/output error"}, Case{"fsync EIO 1", "rank-", "Input/output error"},
        Case{"fallocate ENOSPC 1", "rank-", "No space left on device"}, Case{"ftruncate EIO 1", "rank-", "Input/output error"},
        Case{"pwrite ENOSPC 1", "manifest.json", "No space left on device"},
        Case{"fsync EIO 1", "manifest.json", "Input/output error"}, Case{"fsync EIO 1", ".tmp-", "Input/output error"},
        Case{"rename EIO 1", "step2", "Input/output error"}, Case{"pwrite EDQUOT 1", "rank-", "Disk quota exceeded"}}) {
    const Outcome outcome = child("step%", 2, 2, c.call, c.path);
    EXPECT_TRUE(outcome.failed_with_error()) << c.call << ": " << outcome.output;
    EXPECT_THAT(outcome.output,
                AllOf(HasSubstr("error input/output"), HasSubstr(c.text), HasSubstr(folder()), HasSubstr("are free there")))
        << c.call;
    EXPECT_EQ(newest(), 1) << c.call;
    EXPECT_FALSE(has_leftovers()) << c.call;
    EXPECT_FALSE(fs::exists(folder() + "/step2")) << c.call;
  }
  ASSERT_TRUE(child("step%", 2, 2).succeeded());
  EXPECT_EQ(newest(), 2);
}

TEST_F(Faults, a_latest_that_cannot_be_swapped_is_an_error_that_says_the_checkpoint_is_there) {
  ASSERT_TRUE(child("step%", 1, 1).succeeded());
  for (const char* fault : {"pwrite ENOSPC 1", "fsync EIO 1", "rename EIO 1"}) {
    const Outcome outcome = child("step%", 2, 2, fault, "latest");
    EXPECT_TRUE(outcome.failed_with_error()) << outcome.output;
    EXPECT_THAT(outcome.output, AllOf(HasSubstr("'step2' is written and complete"), HasSubstr("`latest`")));
    EXPECT_EQ(newest(), 1) << "what latest still names";
    EXPECT_EQ(open(folder(), {.tag = "step2"}).document().find("global_steps")->as_int(), 2);
    EXPECT_FALSE(has_leftovers());
  }
}

TEST_F(Faults, short_writes_go_on_and_missing_abilities_are_done_without) {
  ASSERT_TRUE(child("t", 1, 1).succeeded());
  int64_t step = 1;
  for (const char* fault : {"pwrite short 1", "pwrite short 2", "fallocate EOPNOTSUPP 1", "renameat2 EINVAL 1"}) {
    ++step;
    const Outcome outcome = child("t", step, step, fault);
    EXPECT_TRUE(outcome.succeeded()) << fault << ": " << outcome.output;
    EXPECT_EQ(newest(), step) << fault;
    EXPECT_FALSE(has_leftovers()) << fault;
  }
}

TEST_F(Faults, a_kill_before_or_after_any_call_of_a_save_leaves_a_complete_checkpoint) {
  const bool is_full = std::getenv("GANNET_TEST_FULL");
  for (const char* tag : {"t", "step%"}) {  // replacing one, and beside one
    ASSERT_TRUE(child(tag, 1, 1, "", "", 1000).succeeded());
    int64_t done = 1;
    const bool replaces = std::string(tag) == "t";
    for (const char* call :
         replaces ? std::vector{"pwrite", "fsync", "rename", "renameat2", "ftruncate"} : std::vector{"rename", "fallocate"})
      for (const char* when : is_full ? std::vector{"kill", "killed"} : std::vector{"killed"})  // before the call, or after it
        for (int number = 1;; ++number) {
          const Outcome outcome =
              child(tag, done + 1, done + 1, std::string(call) + " " + when + " " + std::to_string(number), folder(), 1000);
          ASSERT_TRUE(outcome.was_killed() || outcome.succeeded()) << outcome.output;
          const int64_t step = newest();
          ASSERT_THAT(step, AnyOf(done, done + 1)) << call << " " << when << " " << number;
          done = step;
          if (outcome.succeeded()) break;
        }
    ASSERT_TRUE(child(tag, done + 1, done + 1, "", "", 1000).succeeded());
    EXPECT_FALSE(has_leftovers()) << "the next job clears away";
    fs::remove_all(folder());
  }
}

TEST_F(Faults, a_kill_while_a_tag_is_replaced_without_exchange_leaves_the_old_one) {
  ASSERT_TRUE(child("t", 1, 1, "", "", 1000).succeeded());
  fs::rename(folder() + "/t", folder() + "/.t.old-1-1");
  EXPECT_EQ(newest(), 1);
  ASSERT_TRUE(child("t", 2, 2, "", "", 1000).succeeded());
  EXPECT_EQ(newest(), 2);
  EXPECT_FALSE(has_leftovers());
}

TEST_F(Faults, kills_at_random_moments_lose_nothing) {
  std::mt19937 random(20);
  int64_t step = 0;
  for (int round = 0; round < (std::getenv("GANNET_TEST_FULL") ? 20 : 6); ++round) {
    Child job({folder(), round % 2 ? "t" : "step%", std::to_string(step + 1), "1000000", "3000000"}, "", "");
    ASSERT_TRUE(job.read_line_with("saved " + std::to_string(step + 1)));
    ::usleep(std::uniform_int_distribution<int>(0, 150'000)(random));
    job.kill();
    const Outcome outcome = job.wait();
    ASSERT_TRUE(outcome.was_killed());
    const size_t at = outcome.output.rfind("saved ");
    const int64_t announced = std::atoll(outcome.output.c_str() + at + 6);
    const int64_t found = newest();
    ASSERT_GE(found, announced);
    ASSERT_LE(found, announced + 1);
    step = found;
  }
}

TEST_F(Faults, where_flock_lies_the_record_of_a_living_owner_is_respected) {
  for (int round = 0; round < (std::getenv("GANNET_TEST_FULL") ? 4 : 2); ++round) {
    Child first({folder(), "step%", "1", "1000000", "1000"}, "flock lies 1", ".gannet.lock");
    ASSERT_TRUE(first.read_line_with("saved 1"));
    const Outcome second = child("other%", 1, 3, "flock lies 1", ".gannet.lock", 1000);
    EXPECT_TRUE(second.failed_with_error()) << second.output;
    EXPECT_THAT(second.output, AllOf(HasSubstr("error unavailable"), HasSubstr("saves checkpoints into")));
    first.kill();
    EXPECT_TRUE(first.wait().was_killed());
    EXPECT_TRUE(child("third%", 1, 1, "flock lies 1", ".gannet.lock", 1000).succeeded()) << "a dead owner's is taken over";
  }
}

TEST_F(Faults, of_jobs_that_start_at_once_where_flock_lies_one_goes_on) {
  for (int round = 0; round < (std::getenv("GANNET_TEST_FULL") ? 4 : 2); ++round) {
    fs::remove_all(folder());
    const auto start = [&] { return Child({folder(), "step%", "1", "1000000", "1000"}, "flock lies 1", ".gannet.lock"); };
    Child one = start(), two = start();
    // Each of them saves, or ends with an error: how long that takes does not matter.
    const bool first_saves = one.read_line_with("saved 1\n"), second_saves = two.read_line_with("saved 1\n");
    one.kill();
    two.kill();
    const Outcome first = one.wait(), second = two.wait();
    EXPECT_NE(first_saves, second_saves) << first.output.substr(0, 300) << second.output.substr(0, 300);
    const Outcome& refused = first_saves ? second : first;
    EXPECT_TRUE(refused.failed_with_error());
    EXPECT_THAT(refused.output, HasSubstr("saves checkpoints into"));
  }
}

// The first is stopped where it has yet to write who it is; the second starts, and saves; then the first continues.
TEST_F(Faults, where_flock_lies_a_maker_of_the_lock_that_was_held_up_is_refused) {
  Child late({folder(), "step%", "1", "1", "1000"}, "pwrite stop 1", folder(), /*flock_lies=*/true);
  ASSERT_TRUE(late.waits_stopped());
  Child owner({folder(), "step%", "1", "1000000", "1000"}, "flock lies 1", ".gannet.lock");
  EXPECT_TRUE(owner.read_line_with("saved 1\n"));
  late.resume();
  const Outcome refused = late.wait();
  EXPECT_TRUE(refused.failed_with_error()) << refused.output;
  EXPECT_THAT(refused.output, HasSubstr("saves checkpoints into"));
  EXPECT_TRUE(owner.read_line_with("saved 9\n")) << "the owner saves on";
  owner.kill();
  owner.wait();
  EXPECT_TRUE(child("third%", 1, 1, "flock lies 1", ".gannet.lock", 1000).succeeded());
  EXPECT_FALSE(has_leftovers());
}

TEST_F(Faults, a_read_that_fails_is_an_error_and_not_a_wrong_value) {
  // The library of faults is not in this process; a folder in a file's place is what fails here.
  Saver(folder(), {}).save(small_content("t"), {});
  const Opened opened = open(folder(), {});
  fs::remove(file("t", "rank-00000.safetensors"));
  fs::create_directories(file("t", "rank-00000.safetensors"));
  EXPECT_THROW(read_whole(opened, "a"), Error);
  EXPECT_THAT(opened.verify(), testing::Not(IsEmpty()));
}

TEST_F(Faults, a_checkpoint_that_does_not_fit_is_refused_before_anything_is_written) {
  Saver saver(folder(), {});
  saver.save(small_content("t"), {});
  // A tensor of 64 TiB: address space that is reserved and never touched.
  void* memory = ::mmap(nullptr, size_t{1} << 46, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const at::Tensor vast = at::from_blob(memory, {int64_t{1} << 46}, at::kByte);
  EXPECT_THAT(error_of(ErrorCode::kIo, [&] { saver.save({.tag = "vast", .slices = {whole("w", vast)}}, {}); }),
              AllOf(HasSubstr("takes 64.0 TiB"), HasSubstr("free"), HasSubstr("nothing was written")));
  ::munmap(memory, size_t{1} << 46);
  EXPECT_FALSE(has_leftovers());
  EXPECT_EQ(open(folder(), {}).tag(), "t");
}

TEST_F(Faults, one_ranks_failure_is_every_ranks_error) {
  // Rank 1's file cannot be made: a folder is in its place as soon as the staging folder is there.
  const at::Tensor data = at::zeros({4});
  const auto errors = ThreadRanks(3).run([&](const Ranks& ranks) {
    Ranks mine = ranks;
    mine.gather = [&](const std::string& what, const std::string& text) {
      auto texts = ranks.gather(what, text);
      if (what == "checkpoint: staging" && ranks.rank == 1)
        for (const auto& entry : fs::directory_iterator(folder()))
          if (entry.is_directory()) fs::create_directories(entry.path() / "rank-00001.safetensors");
      return texts;
    };
    Saver saver(folder(), mine);
    saver.save({.tag = "t", .slices = {whole("w" + std::to_string(ranks.rank), data)}}, {});
  });
  EXPECT_THAT(errors[0], AllOf(HasSubstr("rank 1: cannot create"), HasSubstr("Is a directory")));
  EXPECT_EQ(errors[0], errors[1]);
  EXPECT_EQ(errors[0], errors[2]);
  EXPECT_FALSE(has_leftovers());
  EXPECT_FALSE(fs::exists(folder() + "/t"));
}

}  // namespace
}  // namespace gannet::checkpoint
