#include "launch/cause.h"

#include <gannet/stop.h>
#include <signal.h>

#include <cstring>

#include "base/format.h"

namespace gannet::launch {

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name ? std::string("SIG") + name : formatted("signal {}", number);
}

std::string meaning_of_signal(int number) {
  switch (number) {
    case SIGSEGV:
      return "it accessed invalid memory: a null or dangling pointer, or infinite recursion";
    case SIGABRT:
      return "it called abort(): an uncaught exception, a failed assertion or a corrupted heap";
    case SIGBUS:
      return "the memory of a mapped file is gone: a full /dev/shm or disk, or a file truncated while in use";
    case SIGFPE:
      return "an integer was divided by zero";
    case SIGILL:
      return "an instruction that this processor lacks: the program was built for another one";
    case SIGPIPE:
      return "it wrote to a pipe or socket whose other end was closed";
    case SIGXCPU:
      return "the limit of processor time (`ulimit -t`) was used up";
    case SIGXFSZ:
      return "a file grew past the limit of `ulimit -f`";
    case SIGSYS:
      return "a system call that a sandbox forbids";
    case SIGTRAP:
      return "a debugger's trap without a debugger, or a check compiled into the program";
    case SIGTERM:
    case SIGINT:
    case SIGHUP:
    case SIGUSR1:
    case SIGUSR2:
      return "it was sent from outside, not by gannet run; gannet::StopSignals turns it into an orderly exit";
    default:
      return "";
  }
}

std::string meaning_of_exit_code(int code) {
  switch (code) {
    case 2:
      return "a user's mistake, if it came from a gannet::Error: the config, an argument or a file is wrong";
    case 3:
      return "the environment's fault, if it came from a gannet::Error: a disk, the network, another rank, memory, or numbers "
             "that are no longer finite";
    case 70:
      return "a defect, if it came from a gannet::Error: of Gannet itself, please report it with the lines below";
    case 71:
      return "a plugin's fault, if it came from a gannet::Error: its name and version are below; ask its author";
    case kStoppedExitCode:
      return "stopped on request after saving";
    case 126:
      return "a shell's code: a program was found but cannot be executed";
    case 127:
      return "a shell's code: a program or a shared library was not found";
    default:
      return "";
  }
}

int signal_in_exit_code(int code) {
  const int number = code - 128;
  return number > 0 && sigabbrev_np(number) ? number : 0;
}

std::string reason_not_to_repeat(int exit_code) {
  if (exit_code != 2 && exit_code != 126 && exit_code != 127) return "";
  return formatted("a program that ends with exit code {} would do so again", exit_code);
}

}  // namespace gannet::launch
