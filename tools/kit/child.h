// Runs a function in a child process, where it may crash, hang, exit or print.
//
//   const ChildAnswer answer = ask_child([&] { return text; }, std::chrono::seconds(30));
//   if (!answer.failure.empty()) ...   // "it ended the process with signal 11 (Segmentation fault)", answer.where
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace gannet::kit {

struct ChildAnswer {
  std::string text;     // what the body returned
  std::string failure;  // why there is no text
  std::string where;    // what the body was doing then (place.h)
  std::string printed;  // the beginning of its output on stdout and stderr
  double seconds = 0;
};

// Call only while this process has one thread. Processes started by the body are killed with it.
// Throws Error(kUnavailable) if no child process can be started.
ChildAnswer ask_child(const std::function<std::string()>& body, std::chrono::seconds limit);

// In the child: what it has printed so far.
std::string printed_so_far();

}  // namespace gannet::kit
