// How the values of a program's outermost graph depend on each other, and where the graph may be cut.
#pragma once

#include <cstddef>
#include <vector>

#include "program.h"

namespace gannet::exported {

// A free step computes from inputs and constants alone: sizes, positions, masks. Each segment of a divided graph that needs
// its results runs it. All others are fixed: a parameter, a buffer or a random number goes into them, or they write into
// a value that such a one shares. A fixed step runs once, in its own segment, so that random numbers are drawn in the
// order of the whole graph.
//
// Slots whose values may share memory form a group, by the operators' schemas and tags. A group that is written into is
// one thing: where it is fixed, no cut parts its first value from its last write; where it is free, a segment that needs
// one of its values repeats the writes too.
struct Flow {
  static constexpr size_t kNone = ~size_t{0};
  enum class Kind { kTensor, kNumber, kList };

  explicit Flow(const Program& program);

  // The fixed values that are made before step `cut` and used by it or later, in the order of their slots.
  std::vector<size_t> crossing(size_t cut) const;
  // The free steps that `wanted` needs, and those of `wanted`, in order. `wanted` are fixed steps in order; `results`
  // are slots that are needed after the last of them.
  std::vector<size_t> with_free_steps(const std::vector<size_t>& wanted, const std::vector<size_t>& results) const;

  size_t inputs = 0, steps = 0;
  std::vector<bool> is_fixed;               // by step
  std::vector<bool> is_fixed_slot;          // by slot; parameters and buffers are fixed, inputs and constants are not
  std::vector<Kind> kinds;                  // by slot
  std::vector<size_t> made_by;              // by slot; kNone: a placeholder
  std::vector<size_t> last_fixed_use;       // by slot, of fixed steps; `steps` where the graph's output is the slot
  std::vector<std::vector<size_t>> reads;   // by step: slots, each once
  std::vector<size_t> group_of;             // by slot
  std::vector<std::vector<size_t>> writes;  // by group: the steps that write into it, in order
  std::vector<bool> may_cut;                // by step: before it, [0, steps]
  std::vector<size_t> crossings;            // by step: the number of values that cross before it
};

}  // namespace gannet::exported
