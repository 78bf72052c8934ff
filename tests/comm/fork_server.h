// Starts copies of this test program only by fork(). A process that execs spends 0.3 s loading
// LibTorch before its first line, more than most tests on ranks take. The server is forked from
// main() before any thread exists and only ever runs fork(), so that each copy begins like a
// program that has just loaded its libraries.
//
//   ForkServer server(run_body);                      // first thing in main()
//   const pid_t pid = server.start("adds", environment, descriptor);
//   const int status = server.wait(pid);
#pragma once

#include <sys/types.h>

#include <mutex>
#include <string>
#include <vector>

namespace ranks {

class ForkServer {
 public:
  // `run` is called in each copy with the name it was started with; the copy ends with what it returns.
  explicit ForkServer(int (*run)(const std::string& name));
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // A copy with exactly these variables ("NAME=value"), its stdout and stderr in `output`. Any thread may call this.
  pid_t start(const std::string& name, const std::vector<std::string>& environment, int output);
  // The copy's status as waitpid gives it. Blocks the server until the copy has ended.
  int wait(pid_t pid);

 private:
  std::mutex mutex_;
  int socket_ = -1;
  pid_t pid_ = -1;
};

}  // namespace ranks
