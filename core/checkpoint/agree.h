// A barrier that shares errors: each rank does its part, and a failure on one rank is thrown on all
// ranks before any continues.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/value_json.h"

namespace gannet::checkpoint {

// Runs `part` and returns all ranks' results, by rank. If any rank failed, every rank throws the
// first error, prefixed with the rank if there are several ranks.
std::vector<Json> agree(const Ranks& ranks, const std::string& what, const std::function<Json()>& part);

}  // namespace gannet::checkpoint
