// One started rank: its process, its pipes and how it ended.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "launch/last_call.h"
#include "launch/lines.h"
#include "launch/output.h"

namespace gannet::launch {

struct StartOptions {
  std::string file;                  // the file to execute
  std::vector<std::string> command;  // argv
  std::vector<std::string> environment;
  std::vector<int> cores;        // the cores to bind it to; empty: no binding
  bool own_group = true;         // its own process group, so that all processes that it starts can be signalled together
  pid_t group = 0;               // else the group to join
  bool piped[2] = {true, true};  // stdout, stderr come through pipes, else the launcher's own are inherited
  bool merged = false;           // both through one pipe, in the order in which they are written
  bool prefixed = true;          // prefix lines with the rank, else pass them unchanged
  bool no_input = false;         // stdin is /dev/null
};

class Rank {
 public:
  Rank(uint32_t rank, const StartOptions& options);  // throws StartError when the file cannot be executed
  ~Rank();
  Rank(const Rank&) = delete;

  uint32_t rank() const { return rank_; }
  pid_t pid() const { return pid_; }
  pid_t target() const { return own_group_ ? -pid_ : pid_; }  // the argument for kill(2)

  // Checks, without waiting, whether the rank has ended. If so, asks the rest of its group to end
  // as well.
  bool reap();
  bool ended() const { return ended_; }
  bool killed_by_signal() const;
  int exit_code() const;             // the shell's: 128 + signal for a signal; 71 if it ended inside a plugin with code 0
  int signal_number() const;         // the signal that killed the rank or, by a shell's exit code, its child; 0: none
  std::string how_it_ended() const;  // "ended with exit code 3", "was killed by SIGSEGV (Segmentation fault)"
  const std::string& last_call() const { return last_call_; }  // "inside of optimizer plugin X 1.2, update, step 3"; "": none
  bool group_alive();                                          // whether it, or another process of its group, still runs
  void signal(int number) const;

  // The pipes: -1 if closed or not piped. read_output() copies one part of the available output
  // from pipe 0 or 1 to the launcher's own stdout and stderr; returns false if nothing is
  // available.
  const int* pipes() const { return pipes_; }
  bool read_output(int pipe, Output& output);
  void finish_output(Output& output);
  const std::deque<std::string>& last_lines() const { return last_.lines(); }  // empty when not piped

 private:
  uint32_t rank_;
  bool own_group_;
  pid_t pid_ = -1;
  bool ended_ = false;
  int status_ = 0;
  LastCall calls_;  // created before the process
  std::string last_call_;
  int pipes_[2] = {-1, -1};  // for its stdout and stderr
  LastLines last_;
  LinePrefixer lines_[2];
};

}  // namespace gannet::launch
