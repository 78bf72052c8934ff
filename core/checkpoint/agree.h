// A barrier with errors: each rank does its part, and the failure of one is thrown on all before any continues.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/value_json.h"

namespace gannet::checkpoint {

// Runs `part` and gives what all ranks' parts returned, by rank. Where any threw, every rank throws the first such error, with
// the rank in front of it when there are several.
std::vector<Json> agree(const Ranks& ranks, const std::string& what, const std::function<Json()>& part);

}  // namespace gannet::checkpoint
