#pragma once

namespace gannet::accelerators::checked {

void register_device_guard();

}  // namespace gannet::accelerators::checked
