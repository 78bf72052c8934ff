// A tiny process that outlives the launcher by an instant: when the launcher ends in any way, kill -9 included, it kills
// every process group that was entrusted to it and not taken back, and then every process that bears the launch's mark
// (launch/marked.h). The kernel's parent-death signal alone reaches a rank but not what the rank started.
#pragma once

#include <sys/types.h>

#include <string>

namespace gannet::launch {

class Guard {
 public:
  explicit Guard(const std::string& mark);  // forks
  ~Guard();                                 // kills what is still entrusted, and what is marked
  Guard(const Guard&) = delete;

  // A process id, or minus a process group's, as kill(2) takes them.
  void entrust(pid_t target);
  void take_back(pid_t target);

 private:
  void tell(char what, pid_t target);
  int channel_ = -1;
  pid_t pid_ = -1;
};

}  // namespace gannet::launch
