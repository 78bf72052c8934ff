// The list of the operators that a graph may call.
#pragma once

#include <string_view>

namespace gannet::exported {

// `name` is the ATen name without its overload: "add", or "add_" for the in-place form, which is
// allowed whenever "add" is.
bool is_allowed(std::string_view name);

}  // namespace gannet::exported
