// The plain names, meanings and colours of a step's phases and of the kinds of memory. The metrics
// file has the short names; a name keeps its colour, whatever else a file contains.
#pragma once

#include <string>

namespace gannet::report {

constexpr int kOtherColour = 7;  // the palette's grey, for the time outside of the phases

struct Kind {
  std::string name;     // "norm and check"
  std::string meaning;  // "the gradient's norm, and whether it is finite"; may be empty
  int colour = 0;       // an index into the page's palette
};

// `index`: the name's place in its file, which chooses the colour of an unknown name.
Kind phase_kind(const std::string& name, size_t index);
Kind memory_kind(const std::string& name, size_t index);

}  // namespace gannet::report
