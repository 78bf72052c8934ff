// The mark "inside of plugin X 1.2, update, step 3": every call of a plugin, of every kind, is made within one.
//
//   const Inside inside(plugin, {.call = "update", .step = 3, .tensor = "h.0.weight"});
//   api->update(...);
//
// While it lives
//   - exit() on this thread ends the process with 71 and the sentence (a program that a plugin ends has not succeeded);
//   - _exit() and fatal signals are reported by `gannet run`, which reads the mark from memory that it shares (call_record.h);
//   - an Error of the call says where it came from (where()).
// Behind it the thread computes as before: rounding mode, denormals and traps are put back, with one warning that names the
// plugin. Costs some tens of nanoseconds, and allocates nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/call_record.h"
#include "base/float_environment.h"
#include "plugin/plugin.h"

namespace gannet::plugin {

// Where in a plugin. The texts outlive the call.
struct Place {
  const char* call = "";         // as in the contract's table: "update"
  uint64_t step = 0;             // 0: the call is not of a step
  const char* tensor = nullptr;  // the first that the call is about
};

// ", in update of step 3, tensor 'w'"
std::string text_of(const Place& place);

class Inside {
 public:
  Inside(const Plugin& plugin, const Place& place);
  // Of a file that is being opened: what is in it is not known. `file` outlives the mark.
  explicit Inside(const char* file);
  // The same call on a thread that works for it: a part of the loop that the plugin runs on the host's threads.
  explicit Inside(const Inside* caller);
  ~Inside();
  Inside(const Inside&) = delete;

  // The innermost of this thread; null: it is in no plugin.
  static const Inside* current();
  // In the child of a fork(): its end is not the program's.
  static void forget();
  const Plugin* plugin() const { return plugin_; }  // null: of a file
  const Place& place() const { return place_; }
  // How the host computed when it called.
  const FloatEnvironment& environment() const { return environment_; }
  // "inside of optimizer plugin X 1.2, update, step 3", for the end of the process: no memory is asked for.
  size_t write(char* into, size_t bytes) const;

 private:
  void enter();
  void record() const;
  void fill(CallRecord& record) const;
  void put_back() const;
  const Plugin* plugin_;
  const char* file_ = nullptr;
  Place place_;
  const Inside* outer_ = nullptr;
  FloatEnvironment environment_;
};

// A host's loop that a plugin runs computes as the host does, on every thread: what the plugin set for itself is set aside.
class AsTheHost {
 public:
  AsTheHost();
  ~AsTheHost();
  AsTheHost(const AsTheHost&) = delete;

 private:
  const FloatEnvironment before_;
};

// Prints the mark when a signal kills the process inside of a plugin (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT), and then lets
// the signal do what it does. A library owns no signals, so this is asked for ("debug_plugins") and takes only those that nobody
// handles; `gannet run` tells the same without it.
void tell_fatal_signals();

}  // namespace gannet::plugin
