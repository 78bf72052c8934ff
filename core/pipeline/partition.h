// Divides a list of layers among the stages of a pipeline. Pure functions; methods that exist in
// DeepSpeed 0.19.6 give the same results.
//
//   partition_uniform(10, 3)                   // {0, 4, 7, 10}: the first layer of each stage, and the number of layers
//   partition_balanced({1, 2, 3, 4, 5}, 2)     // {0, 3, 5}: by weights
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace gannet::pipeline {

/// If there are fewer layers than stages, the last stages are empty.
std::vector<size_t> partition_uniform(size_t layers, size_t stages);
/// DeepSpeed's dynamic program: approximately minimises the difference between the largest and the
/// smallest sum of weights of a stage (not always the optimum).
std::vector<size_t> partition_balanced(const std::vector<int64_t>& weights, size_t stages);

/// Minimises the largest stage cost, then the sum of squared costs. `cost(stage, begin, end)` of
/// layers [begin, end) must grow as layers are added. Requires at least as many layers as stages.
std::vector<size_t> partition_bottleneck(size_t layers, size_t stages,
                                         const std::function<double(size_t stage, size_t begin, size_t end)>& cost);

/// The properties of a layer that the partition methods use.
struct LayerFacts {
  std::string name;
  std::string type;        // the class of its module without namespaces and "Impl"; `name` if it has no module, or several
  int64_t parameters = 0;  // elements that require a gradient
};

/// Whether the method needs LayerFacts::parameters.
bool is_by_parameters(const std::string& method);
bool is_by_time(const std::string& method);
bool is_by_memory(const std::string& method);
/// Throws Error(kConfig) if there are fewer layers than stages, naming the empty stages.
void check_layers(size_t layers, size_t stages);
/// `method`, in upper or lower case: "uniform", "parameters", "type:REGEX". Throws Error(kConfig) for
/// an unknown method, for a regex that is invalid or matches no layer, and for fewer layers than
/// stages, naming the empty stages. `where`: the source of the method, for messages.
std::vector<size_t> partition(const std::vector<LayerFacts>& layers, size_t stages, const std::string& method,
                              const std::string& where);
/// Validates pipe::Options::bounds; throws Error(kConfig).
void check_bounds(const std::vector<size_t>& bounds, size_t layers, size_t stages);

}  // namespace gannet::pipeline
