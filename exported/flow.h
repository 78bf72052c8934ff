// How the values of a program's outermost graph depend on each other, and where the graph may be cut.
#pragma once

#include <cstddef>
#include <vector>

#include "program.h"

namespace gannet::exported {

// A free step depends only on inputs and constants: sizes, positions, masks. Each segment of a
// divided graph that needs its results runs it again. All other steps are fixed: they depend on a
// parameter, a buffer or a random number, or write into a value that shares memory with a fixed
// one. A fixed step runs once, in its own segment, so that random numbers are drawn in the order of
// the whole graph.
//
// Slots whose values may share memory, according to the operators' schemas and tags, form a group.
// A group that is written into is indivisible: if it is fixed, no cut separates its first value
// from its last write; if it is free, a segment that needs one of its values repeats the writes as
// well.
struct Flow {
  static constexpr size_t kNone = ~size_t{0};
  enum class Kind { kTensor, kNumber, kList };

  explicit Flow(const Program& program);

  // The fixed values that are made before step `cut` and used at or after it, in slot order.
  std::vector<size_t> crossing(size_t cut) const;
  // The steps of `wanted` and the free steps that they need, in order. `wanted` lists fixed steps
  // in order; `results` are the slots needed after the last of them.
  std::vector<size_t> with_free_steps(const std::vector<size_t>& wanted, const std::vector<size_t>& results) const;

  size_t inputs = 0, steps = 0;
  std::vector<bool> is_fixed;               // by step
  std::vector<bool> is_fixed_slot;          // by slot; parameters and buffers are fixed, inputs and constants are not
  std::vector<Kind> kinds;                  // by slot
  std::vector<size_t> made_by;              // by slot; kNone: a placeholder
  std::vector<size_t> last_fixed_use;       // by slot, of fixed steps; `steps` if the slot is a graph output
  std::vector<std::vector<size_t>> reads;   // by step: slots, each once
  std::vector<size_t> group_of;             // by slot
  std::vector<std::vector<size_t>> writes;  // by group: the steps that write into it, in order
  std::vector<bool> may_cut;                // by step: whether a cut before it is possible, [0, steps]
  std::vector<size_t> crossings;            // by step: the number of values that cross before it
};

}  // namespace gannet::exported
