#include "pipeline/stage.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <gannet/checkpointing.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/split.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "base/outcome.h"
#include "base/text.h"
#include "control/network.h"
#include "mesh/groups.h"
#include "params/other_stages.h"
#include "pipeline/chosen_schedule.h"
#include "pipeline/division.h"
#include "pipeline/layer_facts.h"

namespace gannet::pipeline {
namespace {

using torch::nn::Module;

Error wrong_model(const std::string& what, const std::string& next) { return {ErrorCode::kConfig, what, next}; }

// The names that the modules of all layers have in the whole model.
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
        if (!model) add(module, module_name(layer, i));
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

// A stage's engine needs a parameter to train, unless all stages are frozen and nothing is trained.
void refuse_untrained_stages(const std::vector<int64_t>& trained, const std::vector<Layer>& layers, const Division& cut) {
  const auto none = std::find(trained.begin(), trained.end(), 0);
  if (none == trained.end() || std::count(trained.begin(), trained.end(), 0) == std::ssize(trained)) return;
  const auto stage = static_cast<uint32_t>(none - trained.begin());
  const std::vector<size_t> own = cut.layers_of(stage);
  throw wrong_model(formatted("stage {} of the pipeline, layers '{}' to '{}', has no parameter that requires a gradient", stage,
                              printable(layers[own.front()].name()), printable(layers[own.back()].name())),
                    "give it a layer that is trained, with the partition method \"parameters\" or with pipe::Options::bounds");
}

// A tensor of the model, and the stages that use it.
struct UsedTensor {
  std::string name;
  at::Tensor tensor;
  bool is_parameter = false;
  std::set<uint32_t> stages;
};

// A module that two stages use must not have submodules: one stage might use only a part of it, and
// the remaining parameters would have gradients only on the other stage.
void refuse_shared_blocks(const std::vector<Layer>& layers, const Division& cut, const ModuleNames& names) {
  std::map<const Module*, size_t> first;  // the first layer that uses each module
  for (size_t l = 0; l < layers.size(); ++l)
    for (const auto& module : layers[l].modules()) {
      const size_t other = first.emplace(module.get(), l).first->second;
      if (cut.stage_of(other) == cut.stage_of(l) || module->children().empty()) continue;
      throw wrong_model(
          formatted("layers '{}' and '{}' both use the module '{}', and are on the pipeline stages {} and {}",
                    printable(layers[other].name()), printable(layers[l].name()), names.of(*module), cut.stage_of(other),
                    cut.stage_of(l)),
          "name in each layer the innermost modules that it uses, or put both layers on one stage with pipe::Options::bounds");
    }
}

std::map<const void*, UsedTensor> used_tensors(const std::vector<Layer>& layers, const Division& cut, const ModuleNames& names) {
  std::map<const void*, UsedTensor> all;
  for (size_t l = 0; l < layers.size(); ++l)
    for (const auto& module : layers[l].modules())
      for (const bool is_parameter : {true, false})
        for (const auto& entry : is_parameter ? module->named_parameters() : module->named_buffers()) {
          UsedTensor& used = all[entry.value().unsafeGetTensorImpl()];
          if (used.name.empty()) used = {formatted("{}.{}", names.of(*module), entry.key()), entry.value(), is_parameter, {}};
          used.stages.insert(cut.stage_of(l));
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

// Every tensor of the model must be in a layer, since initialize sees only this stage's layers.
void refuse_unused_tensors(const Module& model, const std::map<const void*, UsedTensor>& used) {
  for (const auto& tensors : {model.named_parameters(), model.named_buffers()})
    for (const auto& entry : tensors)
      if (!used.contains(entry.value().unsafeGetTensorImpl()))
        throw wrong_model(formatted("'{}' of the model is in none of the modules that its layers name", entry.key()),
                          "name its module in the layer that uses it: gannet::function(name, {modules}, function)");
}

// Registers a module under a dotted name, in a tree of plain modules.
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

// The modules of this stage, in the order of the layers, without those inside another module.
std::vector<std::pair<std::string, std::shared_ptr<Module>>> own_modules(const std::vector<Layer>& layers,
                                                                         const std::vector<size_t>& own_layers,
                                                                         const ModuleNames& names) {
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> own;
  std::set<const Module*> known, inner;  // this stage's modules, and those nested inside them
  for (const size_t l : own_layers)
    for (const auto& module : layers[l].modules()) {
      if (known.insert(module.get()).second) own.emplace_back(names.of(*module), module);
      for (const auto& one : module->modules(/*include_self=*/false)) inner.insert(one.get());
    }
  std::erase_if(own, [&](const auto& one) { return inner.contains(one.second.get()); });
  return own;
}

// The host of each rank; empty if all are on one machine.
std::vector<std::string> host_names(HostGroup& world) {
  std::vector<std::string> machines = world.gather_texts(control::machine_identity());
  if (std::set<std::string>(machines.begin(), machines.end()).size() == 1) return {};
  for (std::string& machine : machines) machine = printable(machine.substr(0, machine.find(' ')));
  return machines;
}

void log_stages(const std::vector<Layer>& layers, const Division& cut, const std::vector<int64_t>& trained,
                const std::vector<std::string>& hosts, const MeshGroups& mesh) {
  std::string table;
  const auto by_stage = mesh.shape().groups(kPipeAxis);  // [the other coordinates][stages]
  for (uint32_t stage = 0; stage < cut.stages; ++stage) {
    std::vector<std::string> ranks, chunks;
    for (const auto& group : by_stage) {
      const uint32_t rank = mesh.has_pipe_stages() ? group[stage] : group[0];
      ranks.push_back(hosts.empty() ? formatted("{}", rank) : formatted("{} ({})", rank, hosts[rank]));
    }
    for (size_t part = 0; part < cut.stage_of_part.size(); ++part)
      if (cut.stage_of_part[part] == stage)
        chunks.push_back(formatted("{} layers, '{}' to '{}'", cut.bounds[part + 1] - cut.bounds[part],
                                   layers[cut.bounds[part]].name(), layers[cut.bounds[part + 1] - 1].name()));
    table +=
        formatted("\n  stage {}: ranks {}; {}; {} parameters", stage, join(ranks, ", "), join(chunks, " and "), trained[stage]);
  }
  log_info(formatted("pipeline of {} stages:{}", cut.stages, table));
}

}  // namespace

void Stage::build(pipe::ModuleImpl& module, const RankContext& ranks) {
  if (!module.bounds_.empty())
    throw Error(ErrorCode::kOrder, "a pipe::Module was given to a second engine: the first one has divided its layers",
                "make a pipe::Module for each engine");
  const MeshGroups& mesh = *ranks.mesh;
  const uint32_t own_stage = mesh.pipe_stage();
  std::shared_ptr<ChosenSchedule> schedule;
  // A rank may lack the schedule's file, and the program's schedule may differ between ranks.
  const auto hashes = results_of(ranks.world_group->gather_texts(outcome([&] {
    const int64_t count = ranks.settings().accumulation_steps;
    schedule = std::make_shared<ChosenSchedule>(
        ChosenSchedule::ScheduleConfig{ranks.settings().pipe_schedule, ranks.settings().pipe_memory_limit}, module.options_,
        mesh.pipe_stages(), count);
    return formatted("{}", schedule->hash_of(count));
  })));
  const auto other = std::find_if(hashes.begin(), hashes.end(), [&](const std::string& hash) { return hash != hashes[0]; });
  if (other != hashes.end())
    throw Error(ErrorCode::kMismatch,
                formatted("ranks 0 and {} have different schedules of the pipeline", other - hashes.begin()),
                "give every rank the same file, or the same pipe::Options::schedule");
  Division cut = divided(module.layers_, module.options_, ranks, *schedule);
  const std::vector<size_t> own_layers = cut.layers_of(own_stage);
  const std::vector<Layer> layers = with_built_modules(module.layers_, own_layers, module.options_);
  std::vector<int64_t> trained;
  std::map<const void*, UsedTensor> used;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> own;
  const std::vector<std::string> hosts = host_names(*ranks.world_group);
  try {
    std::vector<Layer> built;
    for (const size_t l : own_layers) built.push_back(layers[l]);
    trained = trained_by_stage(built, mesh);
    refuse_untrained_stages(trained, layers, cut);
    const ModuleNames names(module.model_, layers);
    refuse_shared_blocks(layers, cut, names);
    used = used_tensors(layers, cut, names);
    refuse_shared_buffers(used);
    if (module.model_) refuse_unused_tensors(*module.model_, used);
    own = own_modules(layers, own_layers, names);
    if (mesh.is_first()) log_stages(layers, cut, trained, hosts, mesh);
  } catch (...) {
    release_built_modules(module.layers_);
    throw;
  }

  // From here on the module is changed.
  for (const auto& [name, child] : own) register_at(module, name, child);
  for (const auto& [address, one] : used) {
    if (!one.stages.contains(own_stage))
      leave_to_other_stages(one.tensor);
    else if (one.is_parameter && one.stages.size() > 1)
      declare_tied(one.tensor, one.name);
  }
  module.layers_ = layers;
  module.bounds_ = std::move(cut.bounds);
  module.trained_ = std::move(trained);
  module.schedule_ = std::move(schedule);
}

Stage::Stage(pipe::ModuleImpl& module, const RankContext& ranks, uint32_t part)
    : options_(module.options_),
      stage_of_(module.schedule_->stage_of()),
      stages_(ranks.mesh->pipe_stages()),
      part_(part),
      parts_(static_cast<uint32_t>(stage_of_.size())),
      data_rank_(ranks.comm->rank()),
      first_layer_(module.bounds_[part_]),
      layers_(module.layers_.begin() + static_cast<std::ptrdiff_t>(first_layer_),
              module.layers_.begin() + static_cast<std::ptrdiff_t>(module.bounds_[part_ + 1])),
      seeds_layers_(options_.seed_layers),
      interval_(options_.activation_checkpoint_interval) {
  const Dict& section = ranks.settings().pipeline;
  if (const Value* seeds = section.find("seed_layers"); seeds && seeds->as_bool()) seeds_layers_ = true;
  if (const Value* interval = section.find("activation_checkpoint_interval"); interval && interval_ == 0)
    interval_ = interval->as_int();
}

std::vector<Stage> Stage::chunks_of(pipe::ModuleImpl& module, const RankContext& ranks) {
  std::vector<Stage> chunks;
  const std::vector<uint32_t>& stage_of = module.schedule_->stage_of();
  for (uint32_t part = 0; part < stage_of.size(); ++part)
    if (stage_of[part] == ranks.mesh->pipe_stage()) chunks.push_back(Stage(module, ranks, part));
  module.layers_.clear();  // the functions of other stages' layers may hold memory
  return chunks;
}

// The layers, each wrapped to set its seed before it runs, including when it is recomputed.
std::vector<Layer> Stage::seeded(int64_t micro_batch) const {
  std::vector<Layer> layers;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = layers_[l];
    // Ranks along the data axis have the same layers and micro-batch numbers, but need different dropout masks.
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
    if (!has_parameters) {  // as in DeepSpeed, a block without parameters is not recomputed
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

at::Tensor Stage::loss(const Wire& outputs, const pipe::MicroBatch& micro_batch) const {
  if (!options_.loss_fn && outputs.size() != 1)
    throw Error(ErrorCode::kArgument,
                formatted("the last layer of the pipeline gave {} tensors, and there is no loss_fn to make a loss of them",
                          outputs.size()),
                "give pipe::Options a loss_fn");
  at::Tensor loss = options_.loss_fn ? options_.loss_fn(outputs, micro_batch.labels) : outputs[0];
  if (!loss.defined() || loss.numel() != 1)
    throw Error(ErrorCode::kArgument,
                formatted("the loss of a pipeline is a tensor of one element, found {}",
                          loss.defined() ? shape_text(loss.sizes()) : std::string("an undefined one")),
                "let loss_fn reduce it, for example with .mean()");
  if (micro_batch.weight == 1) return loss;
  const bool has_16_bits = loss.scalar_type() == at::kHalf || loss.scalar_type() == at::kBFloat16;
  return (has_16_bits ? loss.to(at::kFloat) : loss) * micro_batch.weight;  // 16 bits lose precision
}

}  // namespace gannet::pipeline
