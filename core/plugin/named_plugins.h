// The plugins named in a config and the positions of their params, for `initialize` and `gannet
// config check`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/settings.h"
#include "plugin/plugin.h"

namespace gannet {

// The settings for the plugin search, from the section "plugins": {"path": [...], "allow": [...],
// "trusted": ...}.
plugin::Registry::Options plugin_places(const config::Settings& settings);

// Returns a function that gives the position of each param of a block, for plugin::parse_params.
std::function<std::string(const std::string& member)> position_in(const config::Document& document, const std::string& block);

// The plugin named by a block's `type` (or by `key`). An error, for example if no plugin has that
// name, begins with the position of the type.
const plugin::Plugin& require(plugin::Registry& registry, gannet_kind kind, const std::string& type, const std::string& device,
                              const config::Document& document, const std::string& block, const char* key = "type");

// known_params: the values of an offload block and of aio that are in the plugin's schema.
// position_in_offload: the position of each.
Dict known_params(const plugin::Plugin& plugin, const Dict& given);
std::function<std::string(const std::string& member)> position_in_offload(const config::Document& document,
                                                                          const std::string& block);

}  // namespace gannet
