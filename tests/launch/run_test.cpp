// `gannet run`, as a user runs it: the binary, shell scripts as ranks, and what is left of them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace {

using testing::HasSubstr;
using testing::Not;
using Clock = std::chrono::steady_clock;

class Launched {
 public:
  explicit Launched(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {GANNET_BINARY_DIR "/bin/gannet", "run"});
    std::vector<char*> argv;
    for (auto& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open("/dev/null", O_RDONLY), 0);
      dup2(out[1], 1);
      dup2(err[1], 2);
      execv(argv[0], argv.data());
      _exit(99);
    }
    close(out[1]);
    close(err[1]);
    readers_[0] = std::thread([this, fd = out[0]] { collect(fd, output_); });
    readers_[1] = std::thread([this, fd = err[0]] { collect(fd, error_); });
  }
  ~Launched() {
    if (!waited_) finish();
  }
  pid_t pid() const { return pid_; }
  int finish() {
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    for (auto& reader : readers_) reader.join();
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }
  const std::string& output() const { return output_; }
  const std::string& error() const { return error_; }

 private:
  static void collect(int descriptor, std::string& text) {
    char part[4096];
    ssize_t count;
    while ((count = read(descriptor, part, sizeof part)) > 0) text.append(part, static_cast<size_t>(count));
    close(descriptor);
  }
  pid_t pid_;
  bool waited_ = false;
  std::string output_, error_;
  std::thread readers_[2];
};

// A folder of this test's own, for files that ranks write.
class GannetRun : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("gannet-run-" + std::to_string(getpid()) + "-" + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static std::string content(const std::string& file) {
    std::ifstream stream(file);
    std::stringstream text;
    text << stream.rdbuf();
    return text.str();
  }
  // Waits until each file holds a line, and returns the numbers in them: process ids.
  static std::vector<pid_t> pids_in(const std::vector<std::string>& files) {
    std::vector<pid_t> pids;
    const auto end = Clock::now() + std::chrono::seconds(20);
    for (const auto& file : files) {
      while (content(file).find('\n') == std::string::npos && Clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      std::stringstream text(content(file));
      for (pid_t pid; text >> pid;) pids.push_back(pid);
    }
    return pids;
  }
  // A zombie counts as gone: it runs nothing.
  static bool alive(pid_t pid) {
    std::ifstream stream("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(stream, text);
    const size_t state = text.rfind(") ");
    return state != std::string::npos && text[state + 2] != 'Z' && text[state + 2] != 'X';
  }
  static void expect_gone(const std::vector<pid_t>& pids, double seconds) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (const pid_t pid : pids) {
      while (alive(pid) && Clock::now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_FALSE(alive(pid)) << "process " << pid << " is still there";
      if (alive(pid)) kill(pid, SIGKILL);
    }
  }
  std::filesystem::path folder_;
};

TEST_F(GannetRun, SetsTheEnvironmentAndPrefixesEachLine) {
  Launched run({"--num_procs", "2", "--master_port", "23456", "sh", "-c",
                "echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE $LOCAL_SIZE $MASTER_ADDR:$MASTER_PORT; echo bad $RANK >&2; "
                "printf 'no end'"});
  EXPECT_EQ(run.finish(), 0);
  for (const char* line : {"[0] 0/2 0/2 2 127.0.0.1:23456\n", "[1] 1/2 1/2 2 127.0.0.1:23456\n", "[0] no end\n", "[1] no end\n"})
    EXPECT_THAT(run.output(), HasSubstr(line));
  EXPECT_THAT(run.error(), HasSubstr("[0] bad 0\n"));
  EXPECT_THAT(run.error(), HasSubstr("[1] bad 1\n"));
}

TEST_F(GannetRun, LinesOfManyRanksNeverMix) {
  Launched run({"--num_procs", "3", "sh", "-c",
                "i=0; while [ $i -lt 300 ]; do printf 'aaaaaaaaaa'; printf 'bbbbbbbbbb\\n'; i=$((i+1)); done"});
  EXPECT_EQ(run.finish(), 0);
  std::stringstream lines(run.output());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_EQ(line.substr(4), "aaaaaaaaaabbbbbbbbbb");
  EXPECT_EQ(count, 900);
}

TEST_F(GannetRun, OneRankInheritsTheStreamsAndGetsItsVariables) {
  Launched run({"--num_gpus", "1", "sh", "-c", "echo rank $RANK of $WORLD_SIZE"});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.output(), "rank 0 of 1\n");
}

TEST_F(GannetRun, EverythingAfterTheProgramIsItsOwn) {
  Launched run({"--num_procs", "1", "echo", "--help", "--num_procs", "x", "-h", "config", "--", "a b"});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_EQ(run.output(), "--help --num_procs x -h config -- a b\n");
}

TEST_F(GannetRun, ExitsWithTheCodeOfTheRankThatFailedAndSaysWhich) {
  Launched run({"--num_procs", "3", "sh", "-c", "if [ $RANK = 1 ]; then echo the reason >&2; exit 7; fi; exec sleep 60"});
  const auto start = Clock::now();
  EXPECT_EQ(run.finish(), 7);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(4));
  EXPECT_THAT(run.error(),
              HasSubstr("rank 1 of 3 ended with exit code 7; stopping the others. Its last lines:\n    the reason\n"));
}

TEST_F(GannetRun, NamesTheSignalThatKilledARank) {
  Launched run({"--num_procs", "2", "sh", "-c", "if [ $RANK = 0 ]; then kill -SEGV $$; fi; exec sleep 60"});
  EXPECT_EQ(run.finish(), 128 + SIGSEGV);
  EXPECT_THAT(run.error(), HasSubstr("rank 0 of 2 was killed by SIGSEGV (Segmentation fault)"));
}

TEST_F(GannetRun, KillsARankThatDoesNotEndOnSigterm) {
  Launched run(
      {"--num_procs", "2", "sh", "-c", "trap '' TERM; if [ $RANK = 1 ]; then sleep 0.3; exit 3; fi; while :; do sleep 1; done"});
  const auto start = Clock::now();
  EXPECT_EQ(run.finish(), 3);
  EXPECT_GT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(9));
  EXPECT_THAT(run.error(), HasSubstr("killing rank 0, which did not end on SIGTERM"));
}

TEST_F(GannetRun, ForwardsSignalsToEveryRank) {
  for (const int number : {SIGUSR1, SIGHUP, SIGINT, SIGTERM}) {
    Launched run(
        {"--num_procs", "2", "sh", "-c",
         "trap 'echo got it; exit 0' USR1 HUP INT TERM; echo $$ > " + at("ready") + "$RANK; while :; do sleep 0.05; done"});
    pids_in({at("ready0"), at("ready1")});
    kill(run.pid(), number);
    EXPECT_EQ(run.finish(), 0) << number;
    EXPECT_THAT(run.output(), HasSubstr("[0] got it\n"));
    EXPECT_THAT(run.output(), HasSubstr("[1] got it\n"));
    std::filesystem::remove(at("ready0"));
    std::filesystem::remove(at("ready1"));
  }
}

TEST_F(GannetRun, ASignalThatEndsTheRanksIsTheExitCode) {
  Launched run({"--num_procs", "2", "sh", "-c", "echo $$ > " + at("ready") + "$RANK; exec sleep 60"});
  pids_in({at("ready0"), at("ready1")});
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.finish(), 128 + SIGTERM);
  EXPECT_THAT(run.error(), Not(HasSubstr("was killed")));  // it was asked for
}

TEST_F(GannetRun, LeavesNoOrphanOfARankThatEnds) {
  Launched run({"--num_procs", "2", "sh", "-c", "sleep 60 & echo $! > " + at("child") + "$RANK; exit 0"});
  EXPECT_EQ(run.finish(), 0);
  expect_gone(pids_in({at("child0"), at("child1")}), 1);
}

TEST_F(GannetRun, LeavesNoOrphanWhenItIsKilledItself) {
  // Rank and grandchild alike: a script that starts the real program is the usual case.
  Launched run({"--num_procs", "2", "sh", "-c", "trap '' HUP TERM; sleep 60 & echo $! $$ > " + at("both") + "$RANK; wait"});
  const auto pids = pids_in({at("both0"), at("both1")});
  ASSERT_EQ(pids.size(), 4u);
  for (const pid_t pid : pids) EXPECT_TRUE(alive(pid));
  kill(run.pid(), SIGKILL);
  expect_gone(pids, 2);
  EXPECT_EQ(run.finish(), -SIGKILL);
}

TEST_F(GannetRun, AlsoASingleRankDiesWithIt) {
  Launched run({"--num_procs", "1", "sh", "-c", "sleep 60 & echo $! $$ > " + at("both") + "; wait"});
  const auto pids = pids_in({at("both")});
  ASSERT_EQ(pids.size(), 2u);
  kill(run.pid(), SIGKILL);
  expect_gone(pids, 2);
  run.finish();
}

TEST_F(GannetRun, AProgramThatIsNotThereIsOneSentence) {
  Launched run({"--num_procs", "2", "./no-such-program"});
  EXPECT_EQ(run.finish(), 127);
  EXPECT_THAT(run.error(), HasSubstr("cannot start './no-such-program': there is no such file"));
  EXPECT_EQ(run.output(), "");
}

TEST_F(GannetRun, AFileThatCannotBeExecutedIsOneSentence) {
  std::ofstream(at("plain")) << "echo hello\n";
  {
    Launched run({"--num_procs", "2", at("plain")});
    EXPECT_EQ(run.finish(), 126);
    EXPECT_THAT(run.error(), HasSubstr("it is not executable"));
  }
  std::filesystem::permissions(at("plain"), std::filesystem::perms::owner_all);
  {
    Launched run({"--num_procs", "2", at("plain")});
    EXPECT_EQ(run.finish(), 126);
    EXPECT_THAT(run.error(), HasSubstr("this machine cannot execute it"));
  }
  std::ofstream(at("script")) << "#!/no/such/interpreter\n";
  std::filesystem::permissions(at("script"), std::filesystem::perms::owner_all);
  Launched run({"--num_procs", "2", at("script")});
  EXPECT_EQ(run.finish(), 127);
  EXPECT_THAT(run.error(), HasSubstr("the interpreter or loader that it names is not"));
}

TEST_F(GannetRun, WrongOptionsAreOneSentenceEach) {
  const auto refusal = [](std::vector<std::string> arguments) {
    Launched run(std::move(arguments));
    EXPECT_EQ(run.finish(), 2);
    return run.error();
  };
  EXPECT_THAT(refusal({"true"}), HasSubstr("give --num_gpus N or --num_procs N"));
  EXPECT_THAT(refusal({"--num_procs", "2"}), HasSubstr("no PROGRAM was named"));
  EXPECT_THAT(refusal({"--num_procs", "2", "--bind-cores", "true"}), HasSubstr("unknown option '--bind-cores' before PROGRAM"));
  EXPECT_THAT(refusal({"--num_procs", "2", "--num_gpus", "3", "true"}), HasSubstr("differ"));
  EXPECT_THAT(refusal({"--num_procs", "0", "true"}), HasSubstr("--num_procs"));
  EXPECT_THAT(refusal({"--num_procs", "two", "true"}), HasSubstr("--num_procs"));
  EXPECT_THAT(refusal({"--num_procs", "4000", "--bind_cores_to_rank", "true"}), HasSubstr("4000 ranks and only"));
}

TEST_F(GannetRun, BindsEachRankToCoresOfItsOwn) {
  Launched run({"--num_procs", "1", "--bind_cores_to_rank", "sh", "-c",
                "grep Cpus_allowed_list /proc/self/status; echo threads $OMP_NUM_THREADS"});
  EXPECT_EQ(run.finish(), 0);
  EXPECT_THAT(run.output(), HasSubstr("threads "));
}

}  // namespace
