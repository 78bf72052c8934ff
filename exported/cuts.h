// Cuts a program's outermost graph into layers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "flow.h"
#include "program.h"

namespace gannet::exported {

// Layers begin before these steps; the first one begins before step 0. The loss begins before
// `loss`: the graph uses no parameter from there on.
struct Cuts {
  struct Begin {
    std::string name;  // of the module: "transformer.h.0"
    size_t step = 0;
  };
  std::vector<Begin> layers;
  size_t loss = 0;
};

// A layer is a module of the Python model: an element of a list of modules ("transformer.h.0"), or
// another module beside the list ("transformer.ln_f"); everything before the first block is one
// layer. Two layers are cut where the fewest values cross, and merged if no cut between them is
// possible.
Cuts cuts_of(const Program& program, const Flow& flow);

// The module of a layer's path: "transformer.h.0" for "transformer.h.0.attn.c_attn". Empty for a
// path that contains blocks, such as "transformer". Exposed for tests.
std::vector<std::string> units_of(const std::vector<std::string>& paths);

}  // namespace gannet::exported
