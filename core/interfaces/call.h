// Calls functions of a plugin's C table and turns the plugin's error message into an exception. The
// C++ views of all five plugin kinds use it.
#pragma once

#include <gannet/error.h>

#include <exception>
#include <string>
#include <utility>

#include "base/text.h"
#include "plugin/inside.h"
#include "plugin/plugin.h"

namespace gannet::interfaces {

using plugin::CallPlace;

// The prefix of every plugin error: "optimizer plugin AdamW 1.0 (/path/gannet_optimizer_adam.so)",
// followed by the current call.
inline std::string who(const plugin::Plugin& plugin, const CallPlace& place = {}) {
  return std::string(plugin::kind_name(plugin.kind())) + " plugin " + plugin.name() + " " + plugin.version() + " (" +
         plugin.file + ")" + plugin::text_of(place);
}

// Calls function(arguments...) marked as a call of the plugin (plugin/inside.h). For functions that
// cannot fail.
template <class Function, class... Arguments>
auto marked(const plugin::Plugin& plugin, const CallPlace& place, Function function, Arguments... arguments) {
  const plugin::PluginCallMark inside(plugin, place);
  return function(arguments...);
}

// Like marked(), for a function that may throw, which happens if the plugin was written without the
// SDK's guard. The exception may belong to another C++ runtime, so it is caught here.
template <class Function, class... Arguments>
auto walled(const plugin::Plugin& plugin, const CallPlace& place, Function function, Arguments... arguments) {
  const plugin::PluginCallMark inside(plugin, place);
  try {
    return function(arguments...);
  } catch (const std::exception& thrown) {
    throw plugin::fault(
        plugin, who(plugin, place) + " threw an exception across the plugin contract: " + printable(thrown.what(), Lines::kMany));
  } catch (...) {
    throw plugin::fault(plugin, who(plugin, place) + " threw an exception across the plugin contract");
  }
}

// Calls function(arguments..., gannet_error*); throws unless it returns GANNET_OK.
template <class Function, class... Arguments>
void call(const plugin::Plugin& plugin, const CallPlace& place, Function function, Arguments... arguments) {
  plugin::ErrorBuffer error;
  const int32_t status = walled(plugin, place, function, arguments..., static_cast<gannet_error*>(error));
  if (status != GANNET_OK) plugin::raise_unless_ok(status, error, plugin, who(plugin, place));
}

template <class Api>
const Api* api_of(const plugin::Plugin& plugin) {
  return static_cast<const Api*>(plugin.descriptor->api);
}

}  // namespace gannet::interfaces
