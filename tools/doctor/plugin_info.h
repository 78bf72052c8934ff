// gannet plugins info NAME|PATH [--json]: a plugin's documentation, parameters and capabilities.
#pragma once

#include <gannet/abi.h>

#include <string>

namespace gannet::doctor {

// Prints a plugin's declarations, read in a child process. Throws the errors of opening it, and
// Error(kPluginFault) if its code ended that process. `as_json`: prints them as a JSON list
// (plugin_json.h).
void print_plugin_info(const std::string& name_or_path, bool as_json);

inline const char* tier_name(uint32_t tier) { return tier == GANNET_TIER_PINNED ? "pinned" : "stable"; }
inline std::string or_any(const std::string& device) { return device.empty() ? "any" : device; }

}  // namespace gannet::doctor
