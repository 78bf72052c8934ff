// What the partition and the log of a pipeline need to know of its layers, and the building of those
// that are built on their stage alone.
#pragma once

#include <gannet/pipe.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "mesh/groups.h"
#include "pipeline/partition.h"

namespace gannet::pipeline {

/// `counts`: also the parameters. A lazy module is built for that, and dropped.
std::vector<LayerFacts> facts_of(const std::vector<Layer>& layers, bool counts);

/// Builds the lazy modules of the layers that are this rank's own, each with a seed of its own, so
/// that its values do not depend on the number of stages. Returns all layers, with built modules in
/// place of lazy ones, and without those that this rank does not build.
std::vector<Layer> with_built_modules(const std::vector<Layer>& layers, const std::vector<size_t>& own,
                                      const pipe::Options& options);

/// The trained elements of each stage. Every rank calls it, with the layers of its stage, built.
std::vector<int64_t> trained_by_stage(const std::vector<Layer>& own, const MeshGroups& mesh);

}  // namespace gannet::pipeline
