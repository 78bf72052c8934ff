// What the views of the five kinds share: one call through a C table, with the plugin's sentence as the exception.
#pragma once

#include <gannet/error.h>

#include <exception>
#include <string>
#include <utility>

#include "base/text.h"
#include "plugin/plugin.h"

namespace gannet::interfaces {

// "optimizer plugin AdamW (/path/gannet_optimizer_adam.so)", the head of every error of a plugin.
inline std::string who(const plugin::Plugin& plugin) {
  return std::string(plugin::kind_name(plugin.kind())) + " plugin " + plugin.name() + " (" + plugin.file + ")";
}

// function(arguments...), whatever it returns. A plugin written without the SDK's wall may throw, and what it throws may be of
// another C++ runtime: it ends here.
template <class Function, class... Arguments>
auto walled(const plugin::Plugin& plugin, Function function, Arguments... arguments) {
  try {
    return function(arguments...);
  } catch (const std::exception& thrown) {
    throw plugin::fault(
        plugin, who(plugin) + " threw an exception across the plugin contract: " + printable(thrown.what(), Lines::kMany));
  } catch (...) {
    throw plugin::fault(plugin, who(plugin) + " threw an exception across the plugin contract");
  }
}

// function(arguments..., gannet_error*): throws unless it returns GANNET_OK.
template <class Function, class... Arguments>
void call(const plugin::Plugin& plugin, Function function, Arguments... arguments) {
  plugin::ErrorBuffer error;
  const int32_t status = walled(plugin, function, arguments..., static_cast<gannet_error*>(error));
  if (status != GANNET_OK) plugin::raise_unless_ok(status, error, plugin, who(plugin));
}

template <class Api>
const Api* api_of(const plugin::Plugin& plugin) {
  return static_cast<const Api*>(plugin.descriptor->api);
}

}  // namespace gannet::interfaces
