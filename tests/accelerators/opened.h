// An accelerator of the build, opened as the engine opens it.
#pragma once

#include <gannet/error.h>
#include <gannet/value.h>

#include <string>

#include "device/queue.h"

namespace gannet::test {

struct Opened {
  explicit Opened(const std::string& name, const Dict& params = {})
      : plugin(registry.require(GANNET_KIND_ACCELERATOR, name)),
        accelerator(plugin, plugin::parse_params(plugin, params, [](const std::string&) { return std::string(); }), host) {}
  Accelerator* operator->() { return &accelerator; }

  plugin::Registry registry{{}};
  const plugin::Plugin& plugin;
  Host host;
  Accelerator accelerator;
};

}  // namespace gannet::test
