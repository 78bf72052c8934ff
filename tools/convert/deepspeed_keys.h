// The keys of DeepSpeed's model file that are not those of client_state.
#pragma once

#include <set>
#include <string>

namespace gannet::convert {

const std::set<std::string>& engine_keys();

}  // namespace gannet::convert
