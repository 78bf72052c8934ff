// Runs a check that may crash or hang in a child process.
//
//   const ChildAnswer answer = ask_child([&] { return describe(plugin); }, std::chrono::seconds(60));
//   if (!answer.failure.empty()) ...   // "it ended the process with signal 11 (Segmentation fault)"
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace gannet::doctor {

struct ChildAnswer {
  std::string text;     // what `body` returned
  std::string failure;  // why there is no text
};

// `body` runs in a fork of this process, without stdout and stderr. There is no answer if the body ends
// the process (with any exit code), misses the deadline, or writes without end. Processes that it started
// are killed when it ends. Call ask_child before this process has threads that hold locks.
ChildAnswer ask_child(const std::function<std::string()>& body, std::chrono::seconds deadline);

}  // namespace gannet::doctor
