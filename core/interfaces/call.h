// What the views of the five kinds share: one call through a C table, with the plugin's sentence as the exception.
#pragma once

#include <gannet/error.h>

#include <exception>
#include <string>
#include <utility>

#include "plugin/plugin.h"

namespace gannet::interfaces {

// "optimizer plugin AdamW (/path/gannet_optimizer_adam.so)", the head of every error of a plugin.
inline std::string who(const plugin::Plugin& plugin) {
  return std::string(plugin::kind_name(plugin.kind())) + " plugin " + plugin.name() + " (" + plugin.file + ")";
}

// function(arguments..., gannet_error*): throws unless it returns GANNET_OK.
template <class Function, class... Arguments>
void call(const plugin::Plugin& plugin, Function function, Arguments... arguments) {
  plugin::ErrorBuffer error;
  int32_t status = GANNET_INTERNAL;
  // A plugin written without the SDK's wall may throw. What it threw may be of another C++ runtime: it ends here.
  try {
    status = function(arguments..., error);
  } catch (const std::exception& thrown) {
    throw Error(ErrorCode::kPlugin, who(plugin) + " threw an exception across the plugin contract: " + thrown.what(),
                "its functions must return a status: gannet/sdk.hpp does this");
  } catch (...) {
    throw Error(ErrorCode::kPlugin, who(plugin) + " threw an exception across the plugin contract",
                "its functions must return a status: gannet/sdk.hpp does this");
  }
  if (status != GANNET_OK) plugin::raise_unless_ok(status, error, who(plugin));
}

template <class Api>
const Api* api_of(const plugin::Plugin& plugin) {
  return static_cast<const Api*>(plugin.descriptor->api);
}

}  // namespace gannet::interfaces
