// Facts about a pipeline's layers, for the partition and the log. Also constructs lazy modules,
// which exist only on the stages that use them.
#pragma once

#include <gannet/pipe.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mesh/groups.h"
#include "pipeline/partition.h"

namespace gannet::pipeline {

/// The name of a layer's module `i` within the whole model, if the model is a list of layers.
std::string module_name(const Layer& layer, size_t i);

/// Calls `visit` with every module of a list of layers and its name. A lazy module is built for the
/// call and then destroyed. Throws Error(kArgument) if a constructor throws.
void visit_modules(const std::vector<Layer>& layers,
                   const std::function<void(const std::string& name, const torch::nn::Module& module)>& visit);

/// `counts`: also counts parameters, which builds lazy modules temporarily as visit_modules() does.
std::vector<LayerFacts> facts_of(const std::vector<Layer>& layers, bool counts);

/// Builds the lazy modules of the layers `own`, seeded by base_seed plus the number of the first layer
/// that uses them, regardless of the number of stages. Returns all layers, with built modules in
/// place of lazy ones; lazy modules that this rank does not build are omitted. Throws Error(kOrder)
/// if one was built before, and Error(kArgument) if a constructor throws.
std::vector<Layer> with_built_modules(const std::vector<Layer>& layers, const std::vector<size_t>& own,
                                      const pipe::Options& options);

/// Destroys the built lazy modules after an error.
void release_built_modules(const std::vector<Layer>& layers);

/// The number of trainable elements of each stage. Collective. `own`: this stage's layers, built.
std::vector<int64_t> trained_by_stage(const std::vector<Layer>& own, const MeshGroups& mesh);

}  // namespace gannet::pipeline
