// What "auto" means for an accelerator: the best of these that is usable here, else "cpu".
#pragma once

#include <array>

namespace gannet {

inline constexpr std::array kAcceleratorsBestFirst = {"cuda", "rocm"};

}  // namespace gannet
