// A plugin's declarations as JSON: for `gannet plugins info NAME --json`, and for the pages
// docs/optimizers.md and docs/schedules.md.
#pragma once

#include <gannet/value.h>

#include "plugin/plugin.h"

namespace gannet::doctor {

// {"kind", "name", "version", "doc", "device", "tier", "abi", "file", "hash", "params": [{"name",
// "type", "range", "default", "doc", "required", "nullable", "dynamic", "deprecated", "roles"}]}.
// An optimizer also has a "description", taken from an object with the default params; null if no
// such object can be created, for example because a param is required.
Value plugin_json(const plugin::Plugin& plugin);

}  // namespace gannet::doctor
