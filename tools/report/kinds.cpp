#include "report/kinds.h"

#include <algorithm>
#include <iterator>

namespace gannet::report {
namespace {

struct Row {
  const char *in_file, *name, *meaning;
  int colour;
};

// In the order of core/observe/timers.h; docs/metrics.md has the meanings.
constexpr Row kPhases[] = {
    {"forward", "forward", "of all micro-batches", 0},
    {"evaluate", "evaluation", "forwards without gradients or in evaluation mode", 9},
    {"backward", "backward", "of all micro-batches", 1},
    {"reduce", "reduction wait", "waiting for the gradient reduction: the part that backward did not hide", 2},
    {"check", "norm and check", "the gradient's norm, and whether it is finite", 3},
    {"update", "optimizer", "the optimizer's update of the parameters", 4},
    {"publish", "parameter sync", "waiting until every rank has the new parameters", 5},
    {"forget", "free gradients", "releasing the gradients' memory", 11},
    {"offload", "offload wait", "waiting for pages of a slower tier", 6},
    {"gather", "gather wait", "stage 3: waiting for parameters, and for the other ranks", 8},
    {"pipe", "pipeline wait", "waiting for activations and gradients of the neighbouring stage", 12},
    {"checkpoint", "checkpoint", "saving and loading", 10},
    {"tell", "monitors", "writing the metrics of the previous step", 13},
};

constexpr Row kMemory[] = {{"parameters", "parameters", "", 0},
                           {"states", "states", "masters and optimizer states", 1},
                           {"gradients", "gradients", "", 2},
                           {"buffers", "buffers", "gathered parameters, buckets, pages of a tier", 3},
                           {"activations", "activations", "", 4}};

template <typename Rows>
Kind kind_in(const Rows& rows, const std::string& name, size_t index) {
  const auto found = std::find_if(std::begin(rows), std::end(rows), [&](const Row& row) { return name == row.in_file; });
  if (found == std::end(rows)) return {name, "", static_cast<int>(index % kOtherColour)};
  return {found->name, found->meaning, found->colour};
}

}  // namespace

Kind phase_kind(const std::string& name, size_t index) { return kind_in(kPhases, name, index); }
Kind memory_kind(const std::string& name, size_t index) { return kind_in(kMemory, name, index); }

}  // namespace gannet::report
