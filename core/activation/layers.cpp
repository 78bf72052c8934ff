// Implements Layer and run_layers, which runs layers in regions if an engine requests that
// (recomputing.h), and otherwise calls them one after another.
#include <gannet/checkpointing.h>
#include <gannet/error.h>
#include <gannet/layers.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <chrono>

#include "activation/here.h"
#include "activation/recomputing.h"
#include "base/format.h"
#include "base/text.h"

namespace gannet {
namespace {

using activation::MeasuredLayer;
using activation::RecomputationPlanner;
using Storages = std::unordered_set<const c10::StorageImpl*>;

std::string tensors(size_t count) { return formatted("{} tensor{}", count, count == 1 ? "" : "s"); }
std::string name_of(const Layer& layer) { return formatted("layer '{}'", printable(layer.name())); }

// `from` names the source of the tensors.
void check_takes(const Layer& layer, const std::string& from, size_t count) {
  if (layer.takes().has(count)) return;
  throw Error(ErrorCode::kArgument, formatted("{} takes {}, {} gave {}", name_of(layer), layer.takes().to_string(), from, count),
              "let each layer return what the next one takes; what several need is passed on by each of them");
}

// Calls layers [begin, end) one after another.
Wire call_layers(const std::vector<Layer>& layers, size_t begin, size_t end, Wire wire) {
  for (size_t i = begin; i < end; ++i) {
    check_takes(layers[i], i == 0 ? "the call of run_layers" : formatted("{} before it", name_of(layers[i - 1])), wire.size());
    wire = layers[i](wire);
  }
  return wire;
}

std::string region_name(const std::vector<Layer>& layers, const activation::LayerGroup& group) {
  if (group.end - group.begin == 1) return layers[group.begin].name();
  return formatted("{} to {}", layers[group.begin].name(), layers[group.end - 1].name());
}

Wire call_group(const std::shared_ptr<const std::vector<Layer>>& layers, const activation::LayerGroup& group, Wire wire) {
  if (!group.is_region) return call_layers(*layers, group.begin, group.end, std::move(wire));
  return checkpointing::checkpoint(
      {.name = region_name(*layers, group)},
      [layers, group](const Wire& inputs) { return call_layers(*layers, group.begin, group.end, inputs); }, wire);
}

int64_t add_storages(const Wire& wire, Storages& seen) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : wire)
    if (tensor.defined() && tensor.has_storage() && seen.insert(tensor.storage().unsafeGetStorageImpl()).second)
      bytes += static_cast<int64_t>(tensor.storage().nbytes());
  return bytes;
}

// Calls a group of one layer, and measures the bytes that the layer would keep. `passed` holds the
// storages of parameters and of earlier wires.
Wire call_measured(const RecomputationPlanner& recomputing, const std::shared_ptr<const std::vector<Layer>>& layers,
                   const activation::LayerGroup& group, const Wire& wire, Storages& passed, MeasuredLayer& measured) {
  measured.name = (*layers)[group.begin].name();
  measured.input_bytes = add_storages(wire, passed);
  recomputing.wait();
  const activation::SavedBytes saved;
  const auto began = std::chrono::steady_clock::now();
  Wire results = call_group(layers, group, wire);
  recomputing.wait();
  measured.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  Storages others = passed;
  add_storages(results, others);
  measured.saved_bytes = saved.without(others);
  measured.largest_bytes = saved.largest_without(others);
  return results;
}

// Appends the tensors that a module of a Sequential returned to `wire`. Returns false if the value
// has none of the types Ts.
template <class... Ts>
bool give_if(torch::nn::AnyValue& value, Wire& wire) {
  return ((value.try_get<Ts>() != nullptr && (detail::OnWire<Ts>::give(wire, *value.try_get<Ts>()), true)) || ...);
}

using at::Tensor;
using TensorPair = std::tuple<Tensor, Tensor>;
using TensorTriple = std::tuple<Tensor, Tensor, Tensor>;
using TensorQuadruple = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// A Sequential passes the result of a module to the next module as one argument, so a tuple must
// stay a tuple.
std::vector<torch::nn::AnyValue> arguments_of(const Wire& wire, bool is_first) {
  std::vector<torch::nn::AnyValue> arguments;
  if (!is_first && wire.size() == 2)
    arguments.emplace_back(TensorPair{wire[0], wire[1]});
  else if (!is_first && wire.size() == 3)
    arguments.emplace_back(TensorTriple{wire[0], wire[1], wire[2]});
  else if (!is_first && wire.size() == 4)
    arguments.emplace_back(TensorQuadruple{wire[0], wire[1], wire[2], wire[3]});
  else
    for (const Tensor& tensor : wire) arguments.emplace_back(tensor);
  return arguments;
}

torch::nn::AnyValue call_any(torch::nn::AnyModule& module, std::vector<torch::nn::AnyValue> a) {
  switch (a.size()) {
    case 0:
      return module.any_forward();
    case 1:
      return module.any_forward(std::move(a[0]));
    case 2:
      return module.any_forward(std::move(a[0]), std::move(a[1]));
    case 3:
      return module.any_forward(std::move(a[0]), std::move(a[1]), std::move(a[2]));
    default:
      return module.any_forward(std::move(a[0]), std::move(a[1]), std::move(a[2]), std::move(a[3]));
  }
}

// Null: the layers are just called.
std::shared_ptr<RecomputationPlanner> planner_of(const std::vector<Layer>& layers) {
  const bool may_cut = checkpointing::detail::is_recorded() && !activation::is_in_region();
  const auto recomputing = may_cut ? RecomputationPlanner::of(layers) : nullptr;
  return recomputing && recomputing->is_on() ? recomputing : nullptr;
}

}  // namespace

bool Layer::Takes::has(size_t count) const {
  return numbers.empty() || std::find(numbers.begin(), numbers.end(), count) != numbers.end() ||
         (is_open && count > numbers.back());
}

std::string Layer::Takes::to_string() const {
  if (is_open) return formatted("{} or more tensors", numbers.front());
  std::string text;
  for (size_t i = 0; i < numbers.size(); ++i)
    text += formatted("{}{}", i == 0 ? "" : i + 1 < numbers.size() ? ", " : " or ", numbers[i]);
  return formatted("{} tensor{}", text, text == "1" ? "" : "s");
}

Layer::Layer(std::string name, Modules modules, Takes takes, std::function<Wire(const Wire&)> call)
    : name_(std::move(name)), modules_(std::move(modules)), takes_(std::move(takes)), call_(std::move(call)) {}

Wire Layer::operator()(const Wire& inputs) const {
  check_takes(*this, "its caller", inputs.size());
  return call_(inputs);
}

std::vector<Layer> layers_of(const std::shared_ptr<torch::nn::SequentialImpl>& sequential, const std::string& prefix) {
  std::vector<Layer> layers;
  const auto names = sequential->named_children().keys();
  for (size_t i = 0; i < sequential->size(); ++i) {
    const std::string name = prefix.empty() ? names[i] : formatted("{}.{}", prefix, names[i]);
    torch::nn::AnyModule module = *(sequential->begin() + static_cast<std::ptrdiff_t>(i));
    const auto call = [module, name, is_first = i == 0](const Wire& wire) {
      if (wire.size() > 4)
        throw Error(ErrorCode::kUnsupported,
                    formatted("layer '{}' of a Sequential was given {}", printable(name), tensors(wire.size())),
                    "up to 4 are passed there: give the model layers() of its own (gannet/layers.h)");
      torch::nn::AnyModule own = module;
      torch::nn::AnyValue value = call_any(own, arguments_of(wire, is_first));
      Wire results;
      if (!give_if<Tensor, TensorPair, TensorTriple, TensorQuadruple, std::pair<Tensor, Tensor>, Wire>(value, results))
        throw Error(ErrorCode::kUnsupported,
                    formatted("layer '{}' returned a {}: only tensors pass between layers", printable(name),
                              c10::demangle(value.type_info().name())),
                    "return a tensor, up to four in a std::tuple, or several in a std::vector");
      return results;
    };
    layers.emplace_back(name, Layer::Modules{module.ptr()}, Layer::Takes{}, call);
  }
  return layers;
}

namespace detail {

bool has_regions(const std::vector<Layer>& layers) { return planner_of(layers) != nullptr; }

Wire run_layers(const std::vector<Layer>& layers, Wire wire) {
  const auto recomputing = planner_of(layers);
  if (!recomputing) return call_layers(layers, 0, layers.size(), std::move(wire));
  const auto kept = std::make_shared<const std::vector<Layer>>(layers);  // for the recomputation
  const RecomputationPlanner::Plan plan = recomputing->plan(layers);
  if (!plan.is_measured) {
    for (const auto& group : plan.groups) wire = call_group(kept, group, std::move(wire));
    return wire;
  }
  Storages passed = recomputing->parameter_storages();
  std::vector<MeasuredLayer> measured(plan.groups.size());
  std::vector<Wire> alive;  // keeps storages alive: they are identified by address, which could be reused
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    alive.push_back(wire);
    wire = call_measured(*recomputing, kept, plan.groups[i], wire, passed, measured[i]);
  }
  recomputing->add(layers, std::move(measured));
  return wire;
}

void check_results(const std::vector<Layer>& layers, size_t found, size_t least, bool is_open) {
  if (is_open ? found >= least : found == least) return;
  const std::string from =
      layers.empty() ? std::string("an empty list of layers") : formatted("the last {}", name_of(layers.back()));
  throw Error(
      ErrorCode::kArgument,
      formatted("{} gave {}, and run_layers is to return {}{}", from, tensors(found), tensors(least), is_open ? " or more" : ""),
      "name the type of what it returns: run_layers<std::tuple<at::Tensor, at::Tensor>>(...)");
}

}  // namespace detail
}  // namespace gannet
