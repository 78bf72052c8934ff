// What the views of the five kinds share: one call through a C table, with the plugin's sentence as the exception.
#pragma once

#include "plugin/plugin.h"

#include <string>
#include <utility>

namespace gannet::interfaces {

// "optimizer plugin AdamW (/path/gannet_optimizer_adam.so)", the head of every error of a plugin.
inline std::string who(const plugin::Plugin& plugin) {
  return std::string(plugin::kind_name(plugin.kind())) + " plugin " + plugin.name() + " (" + plugin.file + ")";
}

// function(arguments..., gannet_error*): throws unless it returns GANNET_OK.
template <class Function, class... Arguments>
void call(const plugin::Plugin& plugin, Function function, Arguments... arguments) {
  plugin::ErrorBuffer error;
  const int32_t status = function(arguments..., error);
  if (status != GANNET_OK) plugin::raise_unless_ok(status, error, who(plugin));
}

template <class Api>
const Api* api_of(const plugin::Plugin& plugin) {
  return static_cast<const Api*>(plugin.descriptor->api);
}

}  // namespace gannet::interfaces
