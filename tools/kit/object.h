// A plugin object of any kind, created only through its C table, and the outcome of a plugin
// call.
#pragma once

#include <gannet/abi.h>

#include <string>
#include <utility>

#include "base/format.h"
#include "interfaces/call.h"
#include "kit/check.h"
#include "kit/place.h"

namespace gannet::kit {

struct CallOutcome {
  int32_t status = GANNET_OK;
  std::string message;
  bool ok() const { return status == GANNET_OK; }
};

// Calls function(arguments..., gannet_error*). Throws CheckFailure if an exception crosses the
// plugin contract.
template <class Function, class... Arguments>
CallOutcome call(const char* name, const plugin::Plugin& plugin, Function function, Arguments... arguments) {
  const CallScope calling(name, place().step, place().detail);
  plugin::ErrorBuffer error;
  CallOutcome outcome;
  try {
    outcome.status = interfaces::walled(plugin, {name}, function, arguments..., static_cast<gannet_error*>(error));
  } catch (const Error&) {
    throw CheckFailure(formatted("{} threw an exception across the plugin contract", name), text_of(place()), "",
                       "catch everything in it and return a code with a sentence (gannet::sdk::guarded)");
  }
  outcome.message = error.message();
  return outcome;
}

// Throws CheckFailure if the call failed with an unknown code, or without an error message.
void require_explained(const char* name, const CallOutcome& outcome);
// Throws CheckFailure unless the call succeeded.
void require_ok(const char* name, const CallOutcome& outcome);

// Owns the object and destroys it.
class PluginObject {
 public:
  // `outcome`: whether the object was created. A Comm is the only rank of its world.
  PluginObject(const plugin::Plugin& plugin, const gannet_params& params, const gannet_host* host, CallOutcome& outcome);
  ~PluginObject();
  PluginObject(const PluginObject&) = delete;
  void* self() const { return self_; }

 private:
  const plugin::Plugin& plugin_;
  void* self_ = nullptr;
};

// Whether the plugin works on host memory, the only memory that the kit has.
bool works_on_host(const plugin::Plugin& plugin);

}  // namespace gannet::kit
