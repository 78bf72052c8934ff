// Detects what a plugin changes in the process around it: settings that belong to the program.
//
//   const ProcessState before = ProcessState::now(ProcessScope::kAll);
//   foreign();
//   if (const std::string change = ProcessState::now(ProcessScope::kAll).change_since(before); !change.empty()) ...
//   // "it changed the working directory from / to /tmp"
#pragma once

#include <gannet/abi.h>
#include <sched.h>

#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/float_environment.h"

namespace gannet::kit {

// A Comm, a tier or an accelerator may have threads and open files of its own; an optimizer and a
// schedule may not.
enum class ProcessScope { kSettings, kAll };
inline ProcessScope process_scope(gannet_kind kind) {
  return kind == GANNET_KIND_OPTIMIZER || kind == GANNET_KIND_SCHEDULER ? ProcessScope::kAll : ProcessScope::kSettings;
}

class ProcessState {
 public:
  static ProcessState now(ProcessScope scope);
  // The first difference, as a sentence that begins with "it"; "" if there is none. Output and
  // child processes count as changes.
  std::string change_since(const ProcessState& before) const;

 private:
  using Handler = std::pair<uintptr_t, int>;  // the address of the function, the flags
  FloatEnvironment floats_ = FloatEnvironment::now();
  std::string locale_, folder_, mask_;
  uintptr_t thread_locale_ = 0;
  int umask_ = 0;
  std::vector<Handler> handlers_;  // [signal]
  std::vector<std::string> variables_;
  cpu_set_t processors_{};
  size_t printed_ = 0, threads_ = 0;
  bool has_child_ = false;
  std::map<std::string, std::string> files_;  // descriptors and what they refer to
};

}  // namespace gannet::kit
