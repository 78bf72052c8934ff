// A host's view of a plugin in use, as a text: two hosts, or two builds of one rule, are the same
// if the texts are.
//   probe(plugin)   ->   "steady@cpu: parameters 12.345678901 of size 67.890123456"
#pragma once

#include <string>
#include <vector>

#include "plugin/plugin.h"

namespace gannet::sdk_tests {

// Opened without a registry: a file is refused for its contents, not for its location. Throws
// Error(kPlugin).
const std::vector<const plugin::Plugin*>& open_file(const std::string& file);

// An optimizer trains for 12 steps on 2 ranks in the kit's engine, in lists of 3 pieces where it takes lists, with a loss where
// it uses one: the sum of its parameters and of their absolute values; likewise of where it would perturb them to, and of its
// factors, if it does or has any; the number and the sum of the metrics that it shows on rank 0. A schedule is asked for 12
// values. Of the other kinds, and of other devices, nothing is called.
std::string probe(const plugin::Plugin& plugin);

}  // namespace gannet::sdk_tests
