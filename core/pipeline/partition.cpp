#include "pipeline/partition.h"

#include <gannet/error.h>

#include <algorithm>
#include <limits>
#include <regex>

#include "base/format.h"
#include "base/text.h"

namespace gannet::pipeline {
namespace {

// Returns 1 for each layer with a type that matches the regex, ignoring case.
std::vector<int64_t> weights_by_type(const std::vector<LayerFacts>& layers, const std::string& pattern,
                                     const std::string& where) {
  std::regex regex;
  try {
    regex.assign(pattern, std::regex::ECMAScript | std::regex::icase);
  } catch (const std::regex_error& error) {
    throw Error(ErrorCode::kConfig, formatted("{}: 'type:{}' has no regular expression: {}", where, pattern, error.what()),
                "write an ECMAScript one, such as type:block");
  }
  std::vector<int64_t> weights;
  for (const LayerFacts& layer : layers) weights.push_back(std::regex_search(layer.type, regex) ? 1 : 0);
  if (std::find(weights.begin(), weights.end(), 1) != weights.end()) return weights;
  std::vector<std::string> types;
  for (const LayerFacts& layer : layers)
    if (std::find(types.begin(), types.end(), layer.type) == types.end()) types.push_back(layer.type);
  throw Error(ErrorCode::kConfig, formatted("{}: 'type:{}' finds no layer", where, pattern),
              formatted("the layers' types are {}", join(types, ", ")));
}

}  // namespace

std::vector<size_t> partition_uniform(size_t layers, size_t stages) {
  std::vector<size_t> bounds{0};
  for (size_t stage = 0; stage < stages; ++stage) {
    const size_t own = layers <= stages ? 1 : layers / stages + (stage < layers % stages ? 1 : 0);
    bounds.push_back(std::min(bounds.back() + own, layers));
  }
  return bounds;
}

// Dynamic programming over (first i layers, j stages); k is the first layer of the last stage. The
// largest of several k with the same cost wins, as in DeepSpeed.
std::vector<size_t> partition_balanced(const std::vector<int64_t>& weights, size_t stages) {
  const size_t layers = weights.size();
  if (layers <= stages) return partition_uniform(layers, stages);
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  struct Cell {
    double largest = kInfinite, smallest = kInfinite, cost = kInfinite;
    size_t begin = 0;  // the first layer of the last stage
  };
  std::vector<std::vector<Cell>> cells(layers + 1, std::vector<Cell>(stages + 1));
  cells[0][0] = {0, kInfinite, 0, 0};
  std::vector<double> sums{0};  // [i] sum over the first i layers
  for (const int64_t weight : weights) sums.push_back(sums.back() + static_cast<double>(weight));
  for (size_t i = 1; i <= layers; ++i)
    for (size_t j = 1; j <= std::min(i, stages); ++j)
      for (size_t k = 0; k < i; ++k) {
        const Cell& before = cells[k][j - 1];
        const double sum = sums[i] - sums[k];
        const double largest = std::max(before.largest, sum), smallest = std::min(before.smallest, sum);
        if (Cell& cell = cells[i][j]; largest - smallest <= cell.cost) cell = {largest, smallest, largest - smallest, k};
      }
  std::vector<size_t> bounds{layers};
  for (size_t j = stages; j > 0; --j) bounds.push_back(cells[bounds.back()][j].begin);
  std::reverse(bounds.begin(), bounds.end());
  return bounds;
}

// Dynamic programming as above.
std::vector<size_t> partition_bottleneck(size_t layers, size_t stages,
                                         const std::function<double(size_t, size_t, size_t)>& cost) {
  struct Cell {
    double largest = std::numeric_limits<double>::infinity(), squares = 0;
    size_t begin = 0;  // the first layer of the last stage
    bool operator<(const Cell& other) const {
      return largest != other.largest ? largest < other.largest : squares < other.squares;
    }
  };
  std::vector<std::vector<Cell>> cells(layers + 1, std::vector<Cell>(stages + 1));
  cells[0][0] = {0, 0, 0};
  for (size_t j = 1; j <= stages; ++j)
    for (size_t i = j; i <= layers - (stages - j); ++i)
      for (size_t k = j - 1; k < i; ++k) {
        const Cell& before = cells[k][j - 1];
        const double own = cost(j - 1, k, i);
        if (const Cell cell{std::max(before.largest, own), before.squares + own * own, k}; cell < cells[i][j]) cells[i][j] = cell;
      }
  std::vector<size_t> bounds{layers};
  for (size_t j = stages; j > 0; --j) bounds.push_back(cells[bounds.back()][j].begin);
  std::reverse(bounds.begin(), bounds.end());
  return bounds;
}

bool is_by_parameters(const std::string& method) { return lower(method) == "parameters"; }
bool is_by_time(const std::string& method) { return lower(method) == "time"; }
bool is_by_memory(const std::string& method) { return lower(method) == "memory"; }

void check_layers(size_t layers, size_t stages) {
  if (layers >= stages) return;
  throw Error(ErrorCode::kConfig,
              formatted("the model has {} layer{}, and the pipeline {} stages: stages {} to {} would be empty", layers,
                        layers == 1 ? "" : "s", stages, layers, stages - 1),
              "use fewer stages, or divide the model into more layers");
}

std::vector<size_t> partition(const std::vector<LayerFacts>& layers, size_t stages, const std::string& method,
                              const std::string& where) {
  check_layers(layers.size(), stages);
  const std::string wanted = lower(method);
  if (wanted == "uniform") return partition_uniform(layers.size(), stages);
  std::vector<int64_t> weights;
  if (wanted == "parameters") {
    for (const LayerFacts& layer : layers) weights.push_back(layer.parameters);
  } else if (wanted.starts_with("type:")) {
    weights = weights_by_type(layers, method.substr(5), where);
  } else {
    throw Error(ErrorCode::kConfig, formatted("{}: there is no way to divide layers named '{}'", where, method),
                "write uniform, parameters, type:REGEX, time or memory, or give pipe::Options::bounds");
  }
  return partition_balanced(weights, stages);
}

void check_bounds(const std::vector<size_t>& bounds, size_t layers, size_t stages) {
  std::vector<std::string> texts;
  for (const size_t bound : bounds) texts.push_back(formatted("{}", bound));
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorCode::kConfig, formatted("pipe::Options::bounds is {{{}}}: {}", join(texts, ", "), why),
                formatted("give {} ascending numbers: the first layer of each stage, from 0, and the number of layers, {}",
                          stages + 1, layers));
  };
  if (bounds.size() != stages + 1) refuse(formatted("{} stages take {} numbers", stages, stages + 1));
  if (bounds.front() != 0 || bounds.back() != layers) refuse(formatted("they must lead from 0 to {}", layers));
  for (size_t stage = 0; stage < stages; ++stage)
    if (bounds[stage] >= bounds[stage + 1]) refuse(formatted("stage {} would be empty", stage));
}

}  // namespace gannet::pipeline
