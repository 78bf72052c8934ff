#include "estimate/estimate.h"

#include <gannet/estimate.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <unordered_set>

#include "base/format.h"
#include "base/machine_memory.h"
#include "base/table.h"
#include "base/text.h"
#include "config/document.h"
#include "config/param_groups.h"
#include "config/precision.h"
#include "config/resolve.h"
#include "control/environment.h"
#include "device/accelerator.h"
#include "estimate/fit.h"
#include "estimate/hints.h"
#include "estimate/measured_activations.h"
#include "interfaces/optimizer.h"
#include "plugin/named_plugins.h"
#include "tensor/dtype.h"

namespace gannet {
namespace {

using config::Document;
using zero::Tier;

// Guesses the size of the token embedding, which is the largest parameter of a transformer. 4000
// sqrt(P) is within a factor of 2.5 of it from GPT-2 (124 M) to Llama 3 (70 B).
uint64_t guessed_largest(uint64_t parameters) {
  return std::min(parameters, static_cast<uint64_t>(4000 * std::sqrt(static_cast<double>(parameters))));
}

// The settings that affect memory, from a config that may be incomplete (without a batch size).
// Without a config, they have their defaults.
struct MemorySettings {
  explicit MemorySettings(const Document* given)
      : document(given), settings(given ? config::settings_of(*given) : config::Settings()) {}

  Tier tier(const std::string& path, const std::string& device) const {
    const std::string name = lower(device);
    if (name.empty() || name == "none") return Tier::kNone;
    if (name == "cpu") return Tier::kCpu;
    if (name == "nvme") return Tier::kNvme;
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: {}: an estimate is made for none, cpu and nvme, not for '{}'", origin(path), path, name));
  }
  std::string origin(const std::string& path) const { return document ? document->origin_of(path).to_string() : ""; }
  // Training ignores pin_memory; the estimate shows how much memory it would pin.
  bool pins(bool otherwise) const {
    const Value* value = document ? document->find("/zero_optimization/offload_optimizer/pin_memory") : nullptr;
    return value && value->is_bool() ? value->as_bool() : otherwise;
  }

  const Document* document;
  config::Settings settings;
};

uint32_t size_of_dtype(const std::string& name) { return name == "fp64" ? 8 : name == "fp32" ? 4 : 2; }

std::string estimated_dtype(const EstimateRequest& request, const MemorySettings& read) {
  if (!request.dtype.empty()) return request.dtype;
  const auto model = config::precision_of(read.settings, /*on_cpu=*/true).model;
  if (model == config::DType::kFloat16) return "fp16";
  return !request.document || model ? "bf16" : "fp32";
}

struct DeclaredStates {
  uint32_t state_bytes = 0;
  bool perturbs = false, takes_second_gradients = false;
};

// Returns the per-element states of the configured optimizer and what its passes keep, as declared
// by its plugin.
std::optional<DeclaredStates> declared(plugin::Registry& registry, const MemorySettings& read, uint32_t master_bytes,
                                       const Host& host) {
  const std::string& type = read.settings.optimizer.type;
  if (type.empty()) return std::nullopt;
  const plugin::Plugin& plugin = registry.require(GANNET_KIND_OPTIMIZER, type, "cpu");
  // The parameter group with the most bytes counts: the sizes of the groups are not known here.
  const auto groups = config::param_groups_of(read.settings.optimizer.param_groups,
                                              [&](const std::string& path) { return formatted("{}: ", read.origin(path)); });
  DeclaredStates all;
  for (size_t g = 0; g <= groups.size(); ++g) {
    const Dict overrides = g > 0 ? groups[g - 1].overrides : Dict();
    Dict params = config::with_overrides(read.settings.optimizer.params, overrides);
    std::erase_if(params.entries(), [](const Dict::Entry& one) {  // filled in later, same bytes
      return one.second.is_string() && one.second.as_string() == "auto";
    });
    const auto where = config::position_in_param_group(*read.document, g > 0 ? g - 1 : 0, overrides);
    Optimizer optimizer(plugin, plugin::parse_params(plugin, params, where), host);
    optimizer.describe({});
    uint32_t of_group = 0;
    for (const auto& state : optimizer.states())
      if (state.extent == GANNET_STATE_PER_ELEMENT)
        of_group += state.dtype == GANNET_DTYPE_NONE ? master_bytes
                                                     : static_cast<uint32_t>(c10::elementSize(to_scalar_type(state.dtype)));
    all.state_bytes = std::max(all.state_bytes, of_group);
    all.perturbs |= optimizer.perturbs();
    all.takes_second_gradients |= optimizer.takes_second_gradients();
  }
  return all;
}

// The bytes per element of a master, whose type also applies to states that declare none.
uint32_t master_type_bytes(const MemorySettings& read, uint32_t param_bytes) {
  return param_bytes == 2 && read.settings.bf16.without_masters ? 2 : std::max(4u, param_bytes);
}

// An incomplete config may lack the accumulation steps or the batch sizes.
bool accumulates(const config::Settings& settings, uint32_t ranks) {
  if (settings.accumulation_steps > 0) return settings.accumulation_steps > 1;
  return settings.micro_batch_size > 0 && settings.train_batch_size > settings.micro_batch_size * ranks;
}

zero::Plan plan_of(const EstimateRequest& request, const MemorySettings& read, const std::optional<DeclaredStates>& of_plugin,
                   const std::string& dtype) {
  zero::Plan plan;
  plan.model.parameters = request.parameters;
  plan.model.largest = request.largest.value_or(guessed_largest(request.parameters));
  plan.model.param_bytes = size_of_dtype(dtype);
  plan.model.master_bytes = plan.model.param_bytes == 2 && !read.settings.bf16.without_masters ? 4 : 0;
  const auto accumulation = read.settings.grad_accum_dtype;
  plan.model.grad_bytes = !accumulation || dtype == "fp64"           ? plan.model.param_bytes
                          : *accumulation == config::DType::kFloat32 ? 4
                                                                     : 2;
  plan.model.state_bytes = of_plugin ? of_plugin->state_bytes : 2 * master_type_bytes(read, plan.model.param_bytes);
  if (read.settings.ema.decay) plan.model.average_bytes = std::max(plan.model.master_bytes, plan.model.param_bytes);
  plan.model.keeps_masters = of_plugin && of_plugin->perturbs;
  plan.model.has_second_gradient = of_plugin && of_plugin->takes_second_gradients;
  plan.ranks = request.ranks;
  plan.ranks_per_host = request.ranks_per_host > 0 ? std::min(request.ranks, request.ranks_per_host) : request.ranks;

  const config::Zero& zero = read.settings.zero;
  auto& buffers = plan.buffers;
  buffers.reduce_bucket_size = static_cast<uint64_t>(zero.reduce_bucket_size);
  buffers.prefetch_bucket_size = static_cast<uint64_t>(zero.prefetch_bucket_size);
  buffers.max_live_parameters = static_cast<uint64_t>(zero.max_live_parameters);
  buffers.sub_group_size = static_cast<uint64_t>(zero.sub_group_size);
  buffers.buffer_count = static_cast<uint64_t>(zero.offload_optimizer.buffer_count);
  buffers.max_in_cpu = static_cast<uint64_t>(zero.offload_param.max_in_cpu);
  buffers.pin_memory = read.pins(buffers.pin_memory);
  plan.gradients_stay =
      plan.ranks > 1 || plan.model.grad_bytes != plan.model.param_bytes || accumulates(read.settings, plan.ranks);
  plan.placement.stage = static_cast<int>(zero.stage);
  if (zero.stage >= 1)
    plan.placement.offload_optimizer = read.tier("/zero_optimization/offload_optimizer/device", zero.offload_optimizer.device);
  if (zero.stage == 3)
    plan.placement.offload_param = read.tier("/zero_optimization/offload_param/device", zero.offload_param.device);
  return plan;
}

// Opens the device that ranks on this machine would train on. Returns nullptr, with the reason in
// `why_not`, if there is only the CPU.
std::unique_ptr<Accelerator> open_accelerator(plugin::Registry& registry, const std::string& wanted, const Host& host,
                                              std::string& why_not) {
  why_not = "no plugin of an accelerator was found";
  std::vector<const plugin::Plugin*> candidates;
  if (wanted == "auto")
    candidates = registry.accelerators_best_first();
  else if (const plugin::Plugin* named = registry.find(GANNET_KIND_ACCELERATOR, wanted))
    candidates = {named};
  for (const plugin::Plugin* plugin : candidates) {
    if (wanted == "auto" && plugin::priority_of(*plugin) <= GANNET_PRIORITY_HOST) continue;
    try {
      return std::make_unique<Accelerator>(
          *plugin, plugin::parse_params(*plugin, {}, [](const std::string& member) { return member; }), host);
    } catch (const Error& error) {
      why_not = error.message();
    }
  }
  return nullptr;
}

std::optional<uint64_t> known(uint64_t free) { return free == UINT64_MAX ? std::nullopt : std::optional(free); }

std::string this_machine(const MachineMemory& memory, const zero::FreeSpace& room, const std::string& nvme,
                         const std::string& checkpoints, const Accelerator* accelerator) {
  std::string text =
      formatted("This machine: {} of memory, {} available", size_text(memory.physical_bytes), size_text(memory.available_bytes));
  if (memory.cgroup.limit_bytes)
    text += formatted("; its cgroup may take {}, {} of it still free", size_text(*memory.cgroup.limit_bytes),
                      size_text(*memory.cgroup.free_bytes));
  if (memory.address_space_limit_bytes) text += formatted("; ulimit -v {}", size_text(*memory.address_space_limit_bytes));
  if (memory.data_limit_bytes) text += formatted("; ulimit -d {}", size_text(*memory.data_limit_bytes));
  if (accelerator) {
    const Accelerator::Device device = accelerator->device(0);
    text += formatted("; {} x {} with {}, {} free", accelerator->device_count(), device.name, size_text(device.memory_bytes),
                      size_text(device.free_bytes));
  }
  if (room.nvme) text += formatted("; {} of disk free in {}", size_text(*room.nvme), nvme);
  if (room.checkpoint) text += formatted("; {} in {}", size_text(*room.checkpoint), checkpoints);
  return text;
}

std::string table_of(const zero::Plan& plan, const zero::FreeSpace& room, const std::string& config) {
  std::vector<std::string> header = {"stage", "offload_optimizer", "offload_param"};
  for (const char* name : {"device", "host", "of it pinned"})
    if (!plan.device_is_host || name == std::string("host")) header.push_back(plan.device_is_host ? "memory" : name);
  for (const char* name : {"NVMe", "checkpoint", "on this machine"}) header.push_back(name);
  Table table(header);
  for (const zero::Placement& placement : zero::legal_placements()) {
    zero::Plan one = plan;
    one.placement = placement;
    const zero::RankBytes bytes = zero::estimate(one);
    std::vector<std::string> row = {std::to_string(placement.stage), to_string(placement.offload_optimizer),
                                    to_string(placement.offload_param)};
    const auto add = [&](uint64_t size) { row.push_back(size == 0 ? "-" : size_text(size)); };
    if (!plan.device_is_host) add(bytes.device);
    add(bytes.host);
    if (!plan.device_is_host) add(bytes.pinned);
    add(bytes.nvme);
    add(bytes.checkpoint);
    std::vector<std::string> unknown, lacking;
    if (!plan.device_is_host && !room.device) unknown.push_back("device");
    if (bytes.nvme > 0 && !room.nvme) unknown.push_back("NVMe");
    for (const zero::MemoryLack& lack : zero::lacks(one, room))
      lacking.push_back(formatted("{} of {}", size_text(lack.needed - lack.free), lack.kind));
    row.push_back(!lacking.empty()  ? formatted("lacks {}", join(lacking, ", "))
                  : unknown.empty() ? "fits"
                                    : formatted("unknown: {}", join(unknown, ", ")));
    if (!config.empty() && placement == plan.placement) row.back() += formatted("   <- {}", config);
    table.add(row);
  }
  return table.to_string();
}

std::string kept_between_passes(const zero::ModelSize& model) {
  std::vector<std::string> kept;
  if (model.keeps_masters) kept.push_back("its kept master");
  if (model.has_second_gradient) kept.push_back("its second gradient");
  return kept.empty() ? ""
                      : formatted(", and {} more between the passes of a step ({})",
                                  kept.size() * std::max(model.master_bytes, model.param_bytes), join(kept, ", "));
}

// Returns the free space by tier: host (held_bytes counted as free), device (from the request, else
// detected), NVMe, and the folder of checkpoints.
zero::FreeSpace room_of(const EstimateRequest& request, const MachineMemory& memory, const std::string& nvme,
                        Accelerator* accelerator) {
  zero::FreeSpace room = zero::room_of(memory);
  for (auto* free : {&room.host, &room.process})
    if (*free) **free += request.held_bytes;
  if (request.device_bytes)
    room.device = request.device_bytes;
  else if (accelerator)
    room.device = accelerator->device(0).free_bytes;
  if (!nvme.empty()) room.nvme = known(free_bytes(nvme));
  if (!request.checkpoints.empty()) room.checkpoint = known(free_bytes(request.checkpoints));
  return room;
}

std::string nvme_folder(const EstimateRequest& request, const MemorySettings& read) {
  if (!request.nvme.empty()) return request.nvme;
  for (const Dict* params : {&read.settings.zero.offload_optimizer.params, &read.settings.zero.offload_param.params})
    if (const Value* folder = params->find("nvme_path"); folder && !folder->as_string().empty()) return folder->as_string();
  return "";
}

std::optional<activation::ActivationMeasurement> activations_of(const EstimateRequest& request, const std::string& dtype) {
  if (request.kept) return scaled(*request.kept, static_cast<double>(size_of_dtype(dtype)) / request.kept_element_bytes);
  if (request.transformer) return kept_by_formula(*request.transformer, size_of_dtype(dtype));
  return std::nullopt;
}

std::string bytes_text(const EstimateRequest& request, const zero::Plan& plan, const zero::FreeSpace& room,
                       const std::string& dtype, bool has_states, bool has_activations, const std::string& machine) {
  return formatted(
      "Bytes on each of {}{}{} on a host), for {} parameters in {}, the largest one with {} elements{}, with {} bytes of "
      "optimizer states for "
      "each{}{}{}:\n\n{}\n{} A checkpoint has {}, shared among the ranks.\n{}.\n",
      plan.ranks, plan.ranks == 1 ? " rank (" : " ranks (", plan.ranks_per_host, request.said, dtype, plan.model.largest,
      request.largest ? "" : " (a guess; --largest gives it)", plan.model.state_bytes, has_states ? "" : " (Adam)",
      plan.model.average_bytes > 0 ? formatted(", {} of its moving average", plan.model.average_bytes) : "",
      kept_between_passes(plan.model), table_of(plan, room, request.config_name),
      has_activations ? "Activations of one micro-batch are in it. Not counted: the program itself."
                      : "Not counted: activations, which grow with the batch, and the program itself.",
      size_text(zero::checkpoint_bytes(plan.model)), machine);
}

}  // namespace

std::string estimate_text(const EstimateRequest& request) {
  const MemorySettings read(request.document.get());
  const Host host;
  plugin::Registry registry(plugin_places(read.settings));

  const std::string dtype = estimated_dtype(request, read);
  const auto states = declared(registry, read, master_type_bytes(read, size_of_dtype(dtype)), host);
  zero::Plan plan = plan_of(request, read, states, dtype);
  const std::string named = !request.accelerator.empty() ? request.accelerator : read.settings.accelerator.type;
  const std::string wanted = named.empty() ? "auto" : lower(named);
  plan.device_is_host = wanted == "cpu";
  std::string why_not;
  const auto accelerator = plan.device_is_host ? nullptr : open_accelerator(registry, wanted, host, why_not);
  if (accelerator && accelerator->device(0).torch_device_type == static_cast<int>(c10::DeviceType::CPU))
    plan.device_is_host = true;
  const bool falls_back = wanted == "auto" && !accelerator && !request.device_bytes;  // as training would, to the CPU
  plan.device_is_host = plan.device_is_host || falls_back;

  const MachineMemory memory = machine_memory();
  const std::string nvme = nvme_folder(request, read);
  zero::FreeSpace room = room_of(request, memory, nvme, accelerator.get());
  const auto kept = activations_of(request, dtype);
  if (kept) add_activations(plan, *kept, read.settings.activation_checkpointing, room);

  std::string text = bytes_text(request, plan, room, dtype, states.has_value(), kept.has_value(),
                                this_machine(memory, room, nvme, request.checkpoints, accelerator.get()));
  if (falls_back)
    text += formatted("Training here takes the CPU ({}): --device-memory 80GiB estimates for another machine.\n", why_not);
  else if (!plan.device_is_host && !accelerator)
    text += formatted(
        "The device is not usable here ({}): --device-memory 80GiB says what yours has, --accelerator cpu trains in the host's "
        "memory.\n",
        why_not);
  if (kept) text += formatted("\n{}\n", activations_text(plan, *kept, room, request.micro_batch));
  text += formatted("\n{}\n{}{}", building_text(plan, room), speed_text(plan, room), shapes_text(request.sizes));
  if (!request.document) return text;
  try {
    zero::fit(plan, room);
    return formatted("{}{}: {} fits{}.\n", text, request.config_name, to_string(plan.placement),
                     plan.device_is_host || room.device ? "" : ", if the device does");
  } catch (const Error& error) {
    return formatted("{}{}: {}\n", text, request.config_name, error.what());
  }
}

std::string estimate(const torch::nn::Module& module, const Config& config, const EstimateOptions& options) {
  if (config.empty())
    throw Error(ErrorCode::kConfig, "gannet::estimate was given no config", "pass the one that initialize gets");
  EstimateRequest request;
  request.document = config.document();
  request.config_name = "the config";
  uint64_t largest = 0;
  std::unordered_set<const void*> seen;  // tied parameters count once
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& parameter = entry.value();
    if (!parameter.requires_grad() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
    request.parameters += static_cast<uint64_t>(parameter.numel());
    largest = std::max(largest, static_cast<uint64_t>(parameter.numel()));
    // The first two sizes are the rows and columns of a matrix, or the channels of a convolution.
    for (int64_t d = 0; parameter.dim() >= 2 && d < 2; ++d)
      request.sizes.emplace_back(formatted("{}'s {}", entry.key(), d == 0 ? "rows" : "columns"), parameter.size(d));
    if (parameter.is_cpu()) request.held_bytes += parameter.nbytes();
    if (parameter.scalar_type() == at::kDouble) request.dtype = "fp64";
  }
  if (request.parameters == 0) throw Error(ErrorCode::kArgument, "gannet::estimate: the module has no parameter that is trained");
  request.largest = largest;
  request.said = std::to_string(request.parameters);
  const auto variables = control::variables_of_this_process();
  const auto count = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? 1u : static_cast<uint32_t>(std::max(1, std::atoi(found->second.c_str())));
  };
  request.ranks = options.ranks > 0 ? options.ranks : count("WORLD_SIZE");
  request.ranks_per_host = options.ranks_per_host > 0 ? options.ranks_per_host
                           : options.ranks > 0        ? options.ranks
                                                      : count("LOCAL_WORLD_SIZE");
  if (options.forward) {
    const auto given = config::given_batch(*request.document);
    const int64_t accumulation = given.accumulation.value_or(1);
    request.micro_batch = given.micro   ? *given.micro
                          : given.train ? std::max<int64_t>(1, *given.train / (accumulation * request.ranks))
                                        : 1;
    const auto settings = config::settings_of(*request.document);
    request.kept = measure_activations(
        module, [&] { return options.forward(request.micro_batch); }, settings.activation_checkpointing.recompute);
    request.kept_element_bytes = static_cast<uint32_t>(module.parameters().front().element_size());
  }
  return estimate_text(request);
}

}  // namespace gannet
