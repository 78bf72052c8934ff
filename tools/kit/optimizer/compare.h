// Whether two runs left the same, and where they differ first.
#pragma once

#include "kit/optimizer/engine.h"

namespace gannet::kit {

// Bit for bit. Throws Failed with tensor, element, both values; `what` says what was compared: "3 ranks against one".
void require_same(const Trained& found, const Trained& expected, const Problem& problem, const std::string& what);
// Of every tensor the 2-norm of the difference, relative to that of the expected one.
void require_close(const Trained& found, const Trained& expected, const Problem& problem, double tolerance,
                   const std::string& what);
// No parameter is NaN or infinite.
void require_finite(const Trained& found, const Problem& problem);
// Every rank has the same in its states that are no element's.
void require_ranks_agree(const Trained& found);

}  // namespace gannet::kit
