// The host's table, varied for a check (RelayOptions), with checks of how a plugin uses it.
#pragma once

#include <gannet/abi.h>

namespace gannet::kit {

// The table to hand to `create` in place of `host`. It lives as long as the process.
const gannet_host* varied_host(const gannet_host* host);

}  // namespace gannet::kit
