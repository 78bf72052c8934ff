// The plugins that a config names, and where their params stand: for `initialize`, and `gannet config check` alike.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "config/document.h"
#include "config/settings.h"
#include "plugin/plugin.h"

namespace gannet {

// Where plugins are looked for: "plugins": {"path": [...], "allow": [...], "trusted": ...}.
plugin::Registry::Options plugin_places(const config::Settings& settings);

// Where a param of a block stands, for plugin::parse_params.
std::function<std::string(const std::string& member)> position_in(const config::Document& document, const std::string& block);

// The plugin that a block's `type` (or what `key` names) says; where none has that name, the error says where the type stands.
const plugin::Plugin& require(plugin::Registry& registry, gannet_kind kind, const std::string& type, const std::string& device,
                              const config::Document& document, const std::string& block, const char* key = "type");

// Of all that the config says of an offload block and of aio, what the plugin knows; and where each of them stands.
Dict known_params(const plugin::Plugin& plugin, const Dict& given);
std::function<std::string(const std::string& member)> position_in_offload(const config::Document& document,
                                                                          const std::string& block);

}  // namespace gannet
