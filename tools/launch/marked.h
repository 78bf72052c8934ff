// Finds processes by a mark in their environment, which every child process inherits. This finds a
// program that a rank started even if it left its process group and its session, as daemons do.
//
//   const std::string mark = new_mark();              // goes into the environment of each rank
//   for (pid_t pid : marked_processes(mark)) kill(pid, SIGKILL);
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gannet::launch {

inline constexpr const char* kMarkVariable = "GANNET_RUN_ID";

std::string new_mark();
// Processes of this user, except the caller; a process that has ended and was not reaped is left
// out.
std::vector<pid_t> marked_processes(const std::string& mark);
std::string program_of(pid_t pid);  // its short name, "" if it has ended

}  // namespace gannet::launch
