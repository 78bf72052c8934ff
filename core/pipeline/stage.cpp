#include "pipeline/stage.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/util/Type.h>
#include <gannet/checkpointing.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/split.h>

#include <algorithm>
#include <map>
#include <set>
#include <typeinfo>

#include "base/format.h"
#include "base/text.h"
#include "mesh/groups.h"

namespace gannet::pipeline {
namespace {

using torch::nn::Module;

Error wrong_model(const std::string& what, const std::string& next) { return {ErrorCode::kConfig, what, next}; }

// The names of the modules of all layers in the whole model.
class ModuleNames {
 public:
  ModuleNames(const std::shared_ptr<Module>& model, const std::vector<Layer>& layers) {
    if (model)
      for (const auto& entry : model->named_modules("", /*include_self=*/false)) names_.emplace(entry.value().get(), entry.key());
    for (const Layer& layer : layers)
      for (size_t i = 0; i < layer.modules().size(); ++i) {
        const auto& module = layer.modules()[i];
        if (model && !names_.contains(module.get()))
          throw wrong_model(
              formatted("layer '{}' uses a module that is not in the model, or is the model itself", printable(layer.name())),
              "register each of its modules in the model, and list those that the layer uses");
        if (!model) add(module, i == 0 ? layer.name() : formatted("{}_{}", layer.name(), i));
      }
    if (!model) refuse_names_within_others(layers);
  }
  const std::string& of(const Module& module) const { return names_.at(&module); }

 private:
  void add(const std::shared_ptr<Module>& module, const std::string& name) {
    if (!names_.emplace(module.get(), name).second) return;
    for (const auto& entry : module->named_modules("", /*include_self=*/false))
      names_.emplace(entry.value().get(), formatted("{}.{}", name, entry.key()));
  }
  // Layers named "h" and "h.0" would put the second one's module into the first one's.
  void refuse_names_within_others(const std::vector<Layer>& layers) const {
    for (const Layer& outer : layers)
      for (const Layer& layer : layers)
        if (!outer.modules().empty() && !layer.modules().empty() && layer.name().starts_with(outer.name() + ".") &&
            names_.at(layer.module().get()) == layer.name())
          throw wrong_model(
              formatted("layer '{}' has a name inside that of layer '{}'", printable(layer.name()), printable(outer.name())),
              "name the layers so that no name begins with another one and a dot");
  }
  std::map<const Module*, std::string> names_;
};

std::string type_of(const Layer& layer) {
  if (layer.modules().size() != 1) return layer.name();
  const Module& module = *layer.module();
  std::string type = c10::demangle(typeid(module).name());
  type = type.substr(0, type.find('<'));
  if (const size_t colon = type.rfind(':'); colon != std::string::npos) type = type.substr(colon + 1);
  if (type.ends_with("Impl") && type.size() > 4) type.resize(type.size() - 4);
  return type;
}

std::vector<LayerFacts> facts_of(const std::vector<Layer>& layers) {
  std::vector<LayerFacts> all;
  for (const Layer& layer : layers) {
    LayerFacts facts{layer.name(), type_of(layer), 0};
    std::set<const void*> seen;
    for (const auto& module : layer.modules())
      for (const at::Tensor& parameter : module->parameters())
        if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second)
          facts.parameters += parameter.numel();
    all.push_back(std::move(facts));
  }
  return all;
}

// The partition method, and the place that gives it, for messages.
std::pair<std::string, std::string> method_of(const pipe::Options& options, const Dict& section) {
  if (options.partition_method) return {*options.partition_method, "pipe::Options::partition_method"};
  const Value* const partition = section.find("partition");
  if (partition && partition->as_string() != "best") return {partition->as_string(), "/pipeline/partition"};
  return {"parameters", "the default partition method"};
}

uint32_t stage_of(const std::vector<size_t>& bounds, size_t layer) {
  return static_cast<uint32_t>(std::upper_bound(bounds.begin(), bounds.end(), layer) - bounds.begin() - 1);
}

// A tensor of the model, and the stages that use it.
struct UsedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = false;
  std::set<uint32_t> stages;
};

// A module that two stages use must have no modules of its own: one stage might use a part of it
// alone, and the parameters of the rest would have gradients on the other stages only.
void refuse_shared_blocks(const std::vector<Layer>& layers, const std::vector<size_t>& bounds, const ModuleNames& names) {
  std::map<const Module*, size_t> first;  // the first layer that uses each module
  for (size_t l = 0; l < layers.size(); ++l)
    for (const auto& module : layers[l].modules()) {
      const size_t other = first.emplace(module.get(), l).first->second;
      if (stage_of(bounds, other) == stage_of(bounds, l) || module->children().empty()) continue;
      throw wrong_model(
          formatted("layers '{}' and '{}' both use the module '{}', and are on the pipeline stages {} and {}",
                    printable(layers[other].name()), printable(layers[l].name()), names.of(*module), stage_of(bounds, other),
                    stage_of(bounds, l)),
          "name in each layer the innermost modules that it uses, or put both layers on one stage with pipe::Options::bounds");
    }
}

std::map<const void*, UsedTensor> used_tensors(const std::vector<Layer>& layers, const std::vector<size_t>& bounds,
                                               const ModuleNames& names) {
  std::map<const void*, UsedTensor> all;
  for (size_t l = 0; l < layers.size(); ++l)
    for (const auto& module : layers[l].modules())
      for (const bool is_parameter : {true, false})
        for (const auto& entry : is_parameter ? module->named_parameters() : module->named_buffers()) {
          UsedTensor& used = all[entry.value().unsafeGetTensorImpl()];
          if (used.name.empty()) used = {formatted("{}.{}", names.of(*module), entry.key()), entry.value(), is_parameter, {}};
          used.stages.insert(stage_of(bounds, l));
        }
  return all;
}

// A buffer that a layer changes, as batch norm does, would differ between the stages.
void refuse_shared_buffers(const std::map<const void*, UsedTensor>& used) {
  for (const auto& [address, one] : used)
    if (!one.is_parameter && one.stages.size() > 1)
      throw wrong_model(formatted("layers on the pipeline stages {} and {} both use the buffer '{}'", *one.stages.begin(),
                                  *one.stages.rbegin(), one.name),
                        "give each its own, or put both layers on one stage with pipe::Options::bounds");
}

// Every tensor of the model must be in the list, since initialize sees this stage's layers alone.
void refuse_unused_tensors(const Module& model, const std::map<const void*, UsedTensor>& used) {
  for (const auto& tensors : {model.named_parameters(), model.named_buffers()})
    for (const auto& entry : tensors)
      if (!used.contains(entry.value().unsafeGetTensorImpl()))
        throw wrong_model(formatted("'{}' of the model is in none of the modules that its layers name", entry.key()),
                          "name its module in the layer that uses it: gannet::function(name, {modules}, function)");
}

// Registers a module under a name with dots, in a tree of plain modules.
void register_at(Module& root, const std::string& name, const std::shared_ptr<Module>& module) {
  Module* at = &root;
  size_t begin = 0;
  for (size_t dot; (dot = name.find('.', begin)) != std::string::npos; begin = dot + 1) {
    const std::string part = name.substr(begin, dot - begin);
    const auto children = at->named_children();
    const auto* const child = children.find(part);
    at = child ? child->get() : at->register_module(part, std::make_shared<Module>()).get();
  }
  at->register_module(name.substr(begin), module);
}

// The modules of this stage, in the order of the layers, without those that are inside another one.
std::vector<std::pair<std::string, std::shared_ptr<Module>>> own_modules(const std::vector<Layer>& layers,
                                                                         const std::vector<size_t>& bounds, uint32_t stage,
                                                                         const ModuleNames& names) {
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> own;
  std::set<const Module*> known, inner;  // of this stage, and what is inside one of them
  for (size_t l = bounds[stage]; l < bounds[stage + 1]; ++l)
    for (const auto& module : layers[l].modules()) {
      if (known.insert(module.get()).second) own.emplace_back(names.of(*module), module);
      for (const auto& one : module->modules(/*include_self=*/false)) inner.insert(one.get());
    }
  std::erase_if(own, [&](const auto& one) { return inner.contains(one.second.get()); });
  return own;
}

void log_stages(const std::vector<Layer>& layers, const std::vector<size_t>& bounds, const MeshGroups& mesh) {
  const std::vector<LayerFacts> facts = facts_of(layers);
  std::string table;
  const auto by_stage = mesh.shape().groups(kPipeAxis);  // [the other coordinates][stages]
  for (size_t stage = 0; stage + 1 < bounds.size(); ++stage) {
    int64_t parameters = 0;
    for (size_t l = bounds[stage]; l < bounds[stage + 1]; ++l) parameters += facts[l].parameters;
    std::vector<std::string> ranks;
    for (const auto& group : by_stage) ranks.push_back(formatted("{}", mesh.has_pipe_stages() ? group[stage] : group[0]));
    table +=
        formatted("\n  stage {}: ranks {}; {} layers, '{}' to '{}'; {} parameters", stage, join(ranks, ", "),
                  bounds[stage + 1] - bounds[stage], facts[bounds[stage]].name, facts[bounds[stage + 1] - 1].name, parameters);
  }
  log_info(formatted("pipeline of {} stages:{}", bounds.size() - 1, table));
}

}  // namespace

void Stage::build(pipe::ModuleImpl& module, const RankContext& ranks) {
  if (!module.bounds_.empty())
    throw Error(ErrorCode::kOrder, "a pipe::Module was given to a second engine: the first one has divided its layers",
                "make a pipe::Module for each engine");
  const MeshGroups& mesh = *ranks.mesh;
  const uint32_t stages = mesh.pipe_stages(), own_stage = mesh.pipe_stage();
  const std::vector<Layer>& layers = module.layers_;
  const ModuleNames names(module.model_, layers);
  std::vector<size_t> bounds = module.options_.bounds;
  if (!bounds.empty()) {
    check_bounds(bounds, layers.size(), stages);
  } else {
    const auto [method, where] = method_of(module.options_, ranks.settings().pipeline);
    bounds = partition(facts_of(layers), stages, method, where);
    for (size_t stage = 0; stage < stages; ++stage)
      if (bounds[stage] == bounds[stage + 1])
        throw Error(ErrorCode::kConfig, formatted("{}: '{}' leaves stage {} without layers", where, method, stage),
                    "use fewer stages, another method, or pipe::Options::bounds");
  }
  refuse_shared_blocks(layers, bounds, names);
  const auto used = used_tensors(layers, bounds, names);
  refuse_shared_buffers(used);
  if (module.model_) refuse_unused_tensors(*module.model_, used);
  const auto own = own_modules(layers, bounds, own_stage, names);
  if (mesh.is_first()) log_stages(layers, bounds, mesh);

  // From here on the module is changed.
  for (const auto& [name, child] : own) register_at(module, name, child);
  for (const auto& [address, one] : used) {
    if (!one.stages.contains(own_stage)) {
      at::Tensor tensor = one.tensor;
      tensor.set_data(at::empty({0}, tensor.options()));
    } else if (one.is_parameter && one.stages.size() > 1) {
      declare_tied(one.tensor, one.name);
    }
  }
  module.bounds_ = std::move(bounds);
}

Stage::Stage(pipe::ModuleImpl& module, const RankContext& ranks)
    : options_(module.options_),
      index_(ranks.mesh->pipe_stage()),
      stages_(ranks.mesh->pipe_stages()),
      data_rank_(ranks.comm->rank()),
      first_layer_(module.bounds_[index_]),
      layers_(module.layers_.begin() + static_cast<std::ptrdiff_t>(first_layer_),
              module.layers_.begin() + static_cast<std::ptrdiff_t>(module.bounds_[index_ + 1])),
      seeds_layers_(options_.seed_layers),
      interval_(options_.activation_checkpoint_interval) {
  const Dict& section = ranks.settings().pipeline;
  if (const Value* seeds = section.find("seed_layers"); seeds && seeds->as_bool()) seeds_layers_ = true;
  if (const Value* interval = section.find("activation_checkpoint_interval"); interval && interval_ == 0)
    interval_ = interval->as_int();
  module.layers_.clear();  // the functions of other stages' layers may hold memory
}

// The layers with the seed of each one set before it runs, also when it is recomputed.
std::vector<Layer> Stage::seeded(int64_t micro_batch) const {
  std::vector<Layer> layers;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    // Ranks along data have the same layers and numbers of micro-batches, and need other masks.
    const uint64_t seed = static_cast<uint64_t>(options_.base_seed) * static_cast<uint64_t>(micro_batch + 1) + first_layer_ + l +
                          data_rank_ * 0x9E3779B97F4A7C15ull;
    layers.emplace_back(layer.name(), layer.modules(), layer.takes(),
                        [layer, seed, seed_fn = options_.seed_fn](const Wire& wire) {
                          if (seed_fn)
                            seed_fn(seed);
                          else
                            at::manual_seed(seed);
                          return layer(wire);
                        });
  }
  return layers;
}

Wire Stage::run(const Wire& inputs, int64_t micro_batch) const {
  const std::vector<Layer>& plain = layers_;
  const std::vector<Layer> with_seeds = seeds_layers_ ? seeded(micro_batch) : std::vector<Layer>();
  const std::vector<Layer>& layers = seeds_layers_ ? with_seeds : plain;
  if (interval_ <= 0) return detail::run_layers(layers, inputs);
  std::vector<Layer> blocks;
  for (size_t begin = 0; begin < layers.size(); begin += static_cast<size_t>(interval_)) {
    const size_t end = std::min(begin + static_cast<size_t>(interval_), layers.size());
    std::vector<Layer> of_block(layers.begin() + static_cast<std::ptrdiff_t>(begin),
                                layers.begin() + static_cast<std::ptrdiff_t>(end));
    Layer::Modules modules;
    for (const Layer& layer : of_block) modules.insert(modules.end(), layer.modules().begin(), layer.modules().end());
    const bool has_parameters =
        std::any_of(modules.begin(), modules.end(), [](const auto& one) { return !one->parameters().empty(); });
    if (!has_parameters) {  // as in DeepSpeed, what has no parameters is not recomputed
      blocks.insert(blocks.end(), of_block.begin(), of_block.end());
      continue;
    }
    const std::string name =
        end - begin == 1 ? of_block[0].name() : formatted("{} to {}", of_block[0].name(), of_block.back().name());
    const Layer::Takes takes = of_block[0].takes();
    blocks.emplace_back(name, std::move(modules), takes, [name, of_block = std::move(of_block)](const Wire& wire) {
      return checkpointing::checkpoint(
          {.name = name}, [of_block](const Wire& in) { return detail::run_layers(of_block, in); }, wire);
    });
  }
  return detail::run_layers(blocks, inputs);
}

at::Tensor Stage::loss(const Wire& outputs, const Wire& labels) const {
  if (!options_.loss_fn && outputs.size() != 1)
    throw Error(ErrorCode::kArgument,
                formatted("the last layer of the pipeline gave {} tensors, and there is no loss_fn to make a loss of them",
                          outputs.size()),
                "give pipe::Options a loss_fn");
  at::Tensor loss = options_.loss_fn ? options_.loss_fn(outputs, labels) : outputs[0];
  if (!loss.defined() || loss.numel() != 1)
    throw Error(ErrorCode::kArgument,
                formatted("the loss of a pipeline is a tensor of one element, found {}",
                          loss.defined() ? shape_text(loss.sizes()) : std::string("an undefined one")),
                "let loss_fn reduce it, for example with .mean()");
  return loss;
}

}  // namespace gannet::pipeline
