// The list of the operators that a graph may call.
#pragma once

#include <string_view>

namespace gannet::exported {

// `name` is that of aten, without its overload: "add", or "add_" for the form that writes into its first
// argument, which is allowed together with the other one.
bool is_allowed(std::string_view name);

}  // namespace gannet::exported
