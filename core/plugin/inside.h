// Marks the thread as "inside of plugin X 1.2, update, step 3". Every plugin call is made within a
// mark.
//
//   const PluginCallMark inside(plugin, {.call = "update", .step = 3, .tensor = "h.0.weight"});
//   api->update(...);
//
// While the mark lives:
//   - exit() on this thread ends the process with code 71 and a message (a program that is ended by
//     a plugin has not succeeded);
//   - `gannet run` reports _exit() and fatal signals; it reads the mark from shared memory
//     (call_record.h);
//   - an Error from the call names its origin (place()).
// When the mark ends, the rounding mode, the handling of denormals and the traps are restored; if
// the plugin changed them, one warning names the plugin. A mark costs a few tens of nanoseconds and
// allocates nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/call_record.h"
#include "base/float_environment.h"
#include "plugin/plugin.h"

namespace gannet::plugin {

// A thread's position inside a plugin. The strings must outlive the call.
struct CallPlace {
  const char* call = "";         // as in the contract's table: "update"
  uint64_t step = 0;             // 0: the call is not part of a step
  const char* tensor = nullptr;  // the first tensor of the call
};

// Returns ", in update of step 3, tensor 'w'".
std::string text_of(const CallPlace& place);

class PluginCallMark {
 public:
  PluginCallMark(const Plugin& plugin, const CallPlace& place);
  // Marks the opening of a file; its plugins are not known yet. `file` must outlive the mark.
  explicit PluginCallMark(const char* file);
  // Marks a worker thread as inside the caller's call: the thread runs a part of a loop that the
  // plugin runs on the host's threads. A null caller marks nothing.
  explicit PluginCallMark(const PluginCallMark* caller);
  ~PluginCallMark();
  PluginCallMark(const PluginCallMark&) = delete;

  // The innermost mark of this thread; null outside of plugins.
  static const PluginCallMark* current();
  // Drops the marks in the child of a fork(): its exit is not the end of the program.
  static void forget();
  const Plugin* plugin() const { return plugin_; }  // null: a file is being opened
  const CallPlace& place() const { return place_; }
  // The host's floating-point environment at the time of the call.
  const FloatEnvironment& environment() const { return environment_; }
  // Writes "inside of optimizer plugin X 1.2, update, step 3", for a message at the end of the
  // process. Allocates nothing.
  size_t write(char* into, size_t bytes) const;

 private:
  void enter();
  void record() const;
  void fill(CallRecord& record) const;
  void put_back() const;
  const Plugin* plugin_;
  const char* file_ = nullptr;
  CallPlace place_;
  const PluginCallMark* outer_ = nullptr;
  FloatEnvironment environment_;
};

// Restores the host's floating-point environment while a plugin runs a loop on the host's threads.
// The plugin's own settings return when the scope ends.
class HostEnvironmentScope {
 public:
  HostEnvironmentScope();
  ~HostEnvironmentScope();
  HostEnvironmentScope(const HostEnvironmentScope&) = delete;

 private:
  const FloatEnvironment before_;
};

// The number of calls in this process that have changed the floating-point environment, which was
// then restored.
uint64_t restored_environments();

// Installs handlers that print the mark if a signal (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT) kills
// the process inside a plugin, and then raise the signal with its default action. A library should
// not take over signals, so this is opt-in ("debug_plugins") and does not touch signals that have a handler;
// `gannet run` reports the same without it.
void tell_fatal_signals();

}  // namespace gannet::plugin
