#include "comm/ranks.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gannet/error.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <random>
#include <set>

#include "comm/fork_server.h"

extern char** environ;

namespace ranks {
namespace {

constexpr const char* kBodyVariable = "GANNET_TEST_RANK_BODY";

std::map<std::string, Body>& bodies() {
  static auto& instance = *new std::map<std::string, Body>;
  return instance;
}

ForkServer* fork_server = nullptr;  // of main()

struct Process {
  pid_t pid = -1;
  int output = -1;
  bool stuck = false;
  bool of_server = false;
  Outcome outcome;
};

// Libraries read these variables while they are loaded, so that the process must be a new one. A sanitizer needs one too: its own
// threads do not survive a fork.
bool needs_exec(const std::map<std::string, std::string>& environment) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return true;
#endif
  const auto threads = environment.find("OMP_NUM_THREADS");
  if (threads == environment.end() || threads->second.empty()) return true;
  return std::any_of(environment.begin(), environment.end(), [](const auto& variable) {
    const std::string& name = variable.first;
    return name.starts_with("LD_") || name.starts_with("MALLOC_") || name.starts_with("GLIBC_") ||
           (name.starts_with("OMP_") && name != "OMP_NUM_THREADS");
  });
}

Process start(const std::string& body, const std::map<std::string, std::string>& environment) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    if (!environment.count(text.substr(0, text.find('=')))) entries.push_back(text);
  }
  for (const auto& [name, value] : environment)
    if (!value.empty()) entries.push_back(name + "=" + value);
  entries.push_back(std::string(kBodyVariable) + "=" + body);

  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2 failed");
  Process process;
  process.output = pipe_ends[0];
  if (!needs_exec(environment)) {
    process.of_server = true;
    process.pid = fork_server->start(body, entries, pipe_ends[1]);
    close(pipe_ends[1]);
    return process;
  }
  std::vector<char*> envp;
  for (auto& entry : entries) envp.push_back(entry.data());
  envp.push_back(nullptr);
  char program[] = "/proc/self/exe";
  char* argv[] = {program, nullptr};
  process.pid = fork();
  if (process.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(pipe_ends[1], 1);
    dup2(pipe_ends[1], 2);
    execve(program, argv, envp.data());
    _exit(127);
  }
  close(pipe_ends[1]);
  return process;
}

void finish(std::vector<Process>& processes, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  for (;;) {
    std::vector<pollfd> open;
    for (auto& process : processes)
      if (process.output >= 0) open.push_back({process.output, POLLIN, 0});
    if (open.empty()) break;
    if (std::none_of(processes.begin(), processes.end(),
                     [](const Process& process) { return process.output >= 0 && !process.stuck; }))
      for (auto& process : processes)
        if (process.stuck) kill(process.pid, SIGKILL);
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now()).count();
    if (left <= 0)
      for (auto& process : processes) kill(process.pid, SIGKILL);
    poll(open.data(), open.size(), left <= 0 ? 1000 : static_cast<int>(std::min<long>(left, 1000)));
    for (auto& process : processes) {
      const auto at = std::find_if(open.begin(), open.end(), [&](const pollfd& one) { return one.fd == process.output; });
      if (at == open.end() || at->revents == 0) continue;
      char text[4096];
      const ssize_t count = read(process.output, text, sizeof text);
      if (count > 0) {
        process.outcome.output.append(text, static_cast<size_t>(count));
      } else {
        close(process.output);
        process.output = -1;
      }
    }
  }
  for (auto& process : processes) {
    int status = 0;
    if (process.of_server)
      status = fork_server->wait(process.pid);
    else
      waitpid(process.pid, &status, 0);
    process.outcome.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
}

}  // namespace

bool add_body(const char* name, Body body) {
  if (bodies().emplace(name, body).second) return true;
  std::fprintf(stderr, "two rank bodies of this program are called '%s'\n", name);
  std::abort();
}

// Below the ports that the kernel gives to outgoing connections: one of those could take it before rank 0 does.
int free_port() {
  static std::mutex mutex;  // scenarios run side by side
  static std::set<int> given;
  static std::mt19937 random(std::random_device{}());
  const std::lock_guard lock(mutex);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int port = std::uniform_int_distribution<int>(12000, 31999)(random);
    // Closed on exec: a rank that is started meanwhile would keep the port.
    const int descriptor = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    const bool is_free = bind(descriptor, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(descriptor);
    if (is_free && given.insert(port).second) return port;
  }
  throw std::runtime_error("no free port");
}

std::vector<Outcome> run_ranks(const std::string& body, int count, const Options& options) {
  const std::string port = std::to_string(free_port());
  std::vector<Process> processes;
  for (int rank = 0; rank < count; ++rank) {
    if (std::count(options.absent.begin(), options.absent.end(), static_cast<uint32_t>(rank))) continue;
    std::map<std::string, std::string> environment = {{"RANK", std::to_string(rank)},
                                                      {"WORLD_SIZE", std::to_string(count)},
                                                      {"LOCAL_RANK", std::to_string(rank)},
                                                      {"MASTER_ADDR", "127.0.0.1"},
                                                      {"MASTER_PORT", port},
                                                      {"OMP_NUM_THREADS", "1"}};
    for (const auto& [name, value] : options.environment) environment[name] = value;
    processes.push_back(start(body, environment));
    processes.back().stuck = std::count(options.stuck.begin(), options.stuck.end(), static_cast<uint32_t>(rank)) > 0;
  }
  finish(processes, options.limit);
  std::vector<Outcome> outcomes;
  for (auto& process : processes) outcomes.push_back(process.outcome);
  return outcomes;
}

Outcome run_one(const std::string& body, const std::map<std::string, std::string>& environment) {
  std::vector<Process> processes{start(body, environment)};
  finish(processes, std::chrono::seconds(60));
  return processes[0].outcome;
}

bool is_full() {
  const char* value = std::getenv("GANNET_TEST_FULL");
  return value && *value;
}

void expect_all_succeed(const std::vector<Outcome>& outcomes) {
  for (size_t i = 0; i < outcomes.size(); ++i)
    EXPECT_EQ(outcomes[i].status, 0) << "process " << i << " said:\n" << outcomes[i].output;
}

}  // namespace ranks

namespace {

int run_body(const std::string& name) {
  try {
    ranks::bodies().at(name)();
    return 0;
  } catch (const gannet::Error& error) {
    std::cerr << "Error(" << gannet::to_string(error.code()) << "): " << error.what() << std::endl;
    return error.exit_code();
  } catch (const std::exception& error) {
    std::cerr << "exception: " << error.what() << std::endl;
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* name = std::getenv(ranks::kBodyVariable)) return run_body(name);
  ranks::ForkServer server(run_body);
  ranks::fork_server = &server;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
