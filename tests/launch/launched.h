// `gannet run`, as a user runs it: the binary, shell scripts as ranks, and what is left of them.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "launch/launch.h"

using Clock = std::chrono::steady_clock;

// The program of stops_when_asked.cpp: steps until a stop is asked for.
inline const std::string kStopsWhenAsked = GANNET_BINARY_DIR "/tests/stops_when_asked";

class Launched {
 public:
  // `gannet run` with these arguments.
  explicit Launched(std::vector<std::string> arguments)
      : Launched([&] {
          arguments.insert(arguments.begin(), {GANNET_BINARY_DIR "/bin/gannet", "run"});
          std::vector<char*> argv;
          for (auto& argument : arguments) argv.push_back(argument.data());
          argv.push_back(nullptr);
          execv(argv[0], argv.data());
          return 99;
        }) {}
  // The same without the binary: `gannet` takes some tenths of a second to load, which many cases need not pay.
  explicit Launched(const gannet::launch::LaunchOptions& options,
                    std::chrono::milliseconds failure_grace = std::chrono::seconds(5))
      : Launched([&] { return gannet::launch::run(options, failure_grace); }) {}
  // A function as the whole program of a process; it returns the exit code. `reads` false: its
  // output is not read until finish_reading(), and it goes through one pipe.
  explicit Launched(const std::function<int()>& body, bool reads = true) {
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is cut off leaves nothing behind
      dup2(open("/dev/null", O_RDONLY), 0);
      dup2(out[1], 1);
      dup2(reads ? err[1] : out[1], 2);
      for (const int end : {out[0], out[1], err[0], err[1]}) close(end);  // a body need not exec
      _exit(body());
    }
    close(out[1]);
    close(err[1]);
    unread_ = reads ? -1 : out[0];
    if (reads) readers_[0] = std::thread([this, fd = out[0]] { collect(fd, output_); });
    readers_[1] = std::thread([this, fd = err[0]] { collect(fd, error_); });
  }
  // For `gannet run` without a reader.
  struct Unread {};
  Launched(Unread, const gannet::launch::LaunchOptions& options)
      : Launched([&] { return gannet::launch::run(options, std::chrono::seconds(2)); }, false) {}
  // The first `bytes` of unread output.
  std::string read_some(size_t bytes) {
    std::string text(bytes, '\0');
    size_t done = 0;
    for (ssize_t count; done < bytes && (count = read(unread_, text.data() + done, bytes - done)) > 0;)
      done += static_cast<size_t>(count);
    text.resize(done);
    return text;
  }
  void read_the_rest() {
    readers_[0] = std::thread([this, fd = unread_] { collect(fd, output_); });
    unread_ = -1;
  }
  void close_reader() {
    close(unread_);
    unread_ = -1;
  }
  // Seconds until it ended, at most `most`; it is not waited for.
  double ends_within(double most) {
    const auto start = Clock::now();
    const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
    siginfo_t info{};
    while (spent() < most) {
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == pid_) return spent();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return spent();
  }
  ~Launched() {
    if (!waited_) finish();
  }
  pid_t pid() const { return pid_; }
  int finish() {
    int status = 0;
    waitpid(pid_, &status, 0);
    waited_ = true;
    if (unread_ >= 0) read_the_rest();
    for (auto& reader : readers_)
      if (reader.joinable()) reader.join();
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
  int unread_ = -1;
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
  static std::vector<pid_t> children_of(pid_t pid) {
    std::stringstream text(content("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
    std::vector<pid_t> pids;
    for (pid_t child; text >> child;) pids.push_back(child);
    return pids;
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
