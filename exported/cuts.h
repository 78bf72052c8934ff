// Where a program's outermost graph is cut into layers.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "flow.h"
#include "program.h"

namespace gannet::exported {

// The layers begin before these steps; the first one before step 0. The loss begins before `loss`: from there on the graph
// uses no parameter.
struct Cuts {
  struct Begin {
    std::string name;  // of the module: "transformer.h.0"
    size_t step = 0;
  };
  std::vector<Begin> layers;
  size_t loss = 0;
};

// A layer is a module of the Python model: an element of a list of modules ("transformer.h.0"), or another module
// beside these ("transformer.ln_f"); those before the first block are one. Between two of them the cut is where
// fewest values cross. Layers between which no cut is possible are one.
Cuts cuts_of(const Program& program, const Flow& flow);

// The module of a layer's path: "transformer.h.0" of "transformer.h.0.attn.c_attn". Empty for a path that contains
// blocks, as "transformer". For tests.
std::vector<std::string> units_of(const std::vector<std::string>& paths);

}  // namespace gannet::exported
