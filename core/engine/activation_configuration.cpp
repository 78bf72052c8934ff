#include "engine/activation_configuration.h"

#include <gannet/checkpointing_settings.h>
#include <gannet/distributed.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#include <utility>

#include "activation/input_store.h"
#include "base/format.h"
#include "config/cross_checks.h"
#include "config/resolve.h"
#include "config/status.h"
#include "control/world.h"
#include "plugin/named_plugins.h"

namespace gannet {
namespace {

using activation::Configuration;
using activation::InputStore;

bool says_anything(const config::ActivationCheckpointing& settings) {
  return settings.partition_activations || settings.cpu_checkpointing || settings.contiguous_memory_optimization ||
         settings.number_checkpoints || settings.synchronize_checkpoint_boundary || settings.profile;
}

// An offload tier with its own plugins and host table, since it may outlive the engine.
struct OwnTier {
  Host host;
  std::unique_ptr<plugin::Registry> registry;
  std::unique_ptr<Offload> offload;
};

// `key`: the config key that names the tier, "device" or "keep".
std::shared_ptr<Offload> open_tier(const config::Settings& settings, const config::Document& document, const char* key,
                                   const std::string& type, uint32_t rank, uint32_t ranks) {
  const config::ActivationCheckpointing& own = settings.activation_checkpointing;
  const std::string block = "gannet/activation_checkpointing";
  auto tier = std::make_shared<OwnTier>();
  tier->host.set_ranks(rank, ranks);
  tier->registry = std::make_unique<plugin::Registry>(plugin_places(settings));
  const plugin::Plugin& plugin = require(*tier->registry, GANNET_KIND_OFFLOAD, type, "cpu", document, block, key);
  Dict params = settings.aio;
  if (!own.nvme_path.empty()) params["nvme_path"] = own.nvme_path;
  for (const config::OffloadTarget* other : {static_cast<const config::OffloadTarget*>(&settings.zero.offload_optimizer),
                                             static_cast<const config::OffloadTarget*>(&settings.zero.offload_param)})
    if (const Value* path = other->params.find("nvme_path"); path && !path->is_null() && !params.find("nvme_path"))
      params["nvme_path"] = *path;
  tier->offload = std::make_unique<Offload>(
      plugin, plugin::parse_params(plugin, known_params(plugin, params), position_in_offload(document, block)), tier->host, rank);
  return {tier, tier->offload.get()};
}

// The communicator that moves the ranks' parts of partitioned activations.
struct Carrier {
  Comm& comm;
  DeviceComm::Memory memory;
  std::function<void*()> stream;
};
// Without an engine the device is unknown, so the host's Comm serves all devices.
Carrier any_carrier(const ProcessGroup& group) {
  return {group.world()->host_comm(), DeviceComm::kStaged, [] { return nullptr; }};
}

std::shared_ptr<DeviceComm> comm_of(const std::shared_ptr<ProcessGroup>& group, Carrier carrier) {
  struct Ranks {
    std::shared_ptr<ProcessGroup> group;
    DeviceComm comm;
  };
  const auto ranks =
      std::shared_ptr<Ranks>(new Ranks{group, {group->links().over(carrier.comm), std::move(carrier.stream), carrier.memory}});
  return {ranks, &ranks->comm};
}

// Returns null if the settings leave inputs in place.
std::shared_ptr<InputStore> store_of(const config::Settings& settings, const config::Document& document,
                                     const std::shared_ptr<ProcessGroup>& tensor_group, std::optional<Carrier> carrier,
                                     std::function<bool(const c10::StorageImpl*)> is_parameter, uint32_t rank, uint32_t ranks) {
  const config::ActivationCheckpointing& own = settings.activation_checkpointing;
  InputStore::Options options;
  if (own.partition_activations && tensor_group && tensor_group->size() > 1)
    options.ranks = comm_of(tensor_group, carrier ? *std::move(carrier) : any_carrier(*tensor_group));
  if (own.cpu_checkpointing)
    options.tier = std::make_shared<activation::TierMemory>(open_tier(settings, document, "device", own.device, rank, ranks));
  if (own.contiguous_memory_optimization) options.slots = own.number_checkpoints;
  if (!options.ranks && !options.tier && !options.slots) return nullptr;
  options.is_parameter = std::move(is_parameter);
  return std::make_shared<InputStore>(std::move(options));
}

}  // namespace

std::shared_ptr<const Configuration> configuration_of(EngineBase::Impl& impl, const config::Document& document) {
  // Shares ownership of the mesh, which the group belongs to.
  const std::shared_ptr<ProcessGroup> tensor_group(impl.mesh, impl.mesh->tensor());
  activation::note_tensor_rank(tensor_group ? tensor_group->rank() : 0);
  if (!says_anything(impl.settings().activation_checkpointing)) return nullptr;
  auto configuration = std::make_shared<Configuration>();
  configuration->settings = impl.settings().activation_checkpointing;
  if (tensor_group) configuration->tensor_group = tensor_group;
  const std::weak_ptr<void> engine = impl.self;
  const auto stream = [engine, &impl, on_host = impl.computes_on_host()]() -> void* {
    if (on_host) return nullptr;
    if (engine.expired())
      throw Error(ErrorCode::kOrder, "backward has come to a region with partitioned inputs, whose engine has ended",
                  "keep the engine until backward is over");
    return impl.current_stream();
  };
  configuration->span = [engine, &impl](const std::string& name, auto began, auto ended) {
    if (!engine.expired() && impl.trace) impl.trace->span(name.c_str(), began, ended);
  };
  const auto is_parameter = [module = std::weak_ptr(impl.module)](const c10::StorageImpl* storage) {
    const auto here = module.lock();
    if (!here) return false;
    for (const at::Tensor& parameter : here->parameters())
      if (parameter.has_storage() && parameter.storage().unsafeGetStorageImpl() == storage) return true;
    return false;
  };
  configuration->inputs =
      store_of(impl.settings(), document, tensor_group, Carrier{*impl.device_comm, impl.comm_memory(), stream}, is_parameter,
               impl.world_group->rank(), impl.world_group->size());
  return configuration;
}

std::shared_ptr<activation::SavedStore> saved_store_of(EngineBase::Impl& impl, const config::Document& document) {
  const std::string& keep = impl.settings().activation_checkpointing.keep;
  if (keep == config::kKeepOnDevice) return nullptr;
  activation::install_saved_tensor_hooks();
  return std::make_shared<activation::SavedStore>(
      open_tier(impl.settings(), document, "keep", keep, impl.world_group->rank(), impl.world_group->size()));
}

namespace checkpointing {
namespace {

// Returns a copy of the configuration in force, for modification.
Configuration present() {
  if (const auto now = activation::in_force()) return *now;
  Configuration none;
  none.settings = config::Settings().activation_checkpointing;
  return none;
}

void warn_of_number(const Configuration& configuration) {
  if (configuration.settings.contiguous_memory_optimization) return;
  log_warning(
      "activation checkpointing: the number of checkpoints is that of contiguous_memory_optimization's slots, which "
      "is off; regions of run_layers are as many as an engine's config says (docs/activation.md)");
}

// Makes the configuration keep inputs as `options` specify.
void set_inputs(Configuration& configuration, InputStore::Options options) {
  const bool has_any = options.ranks || options.tier || options.slots;
  configuration.inputs = has_any ? std::make_shared<InputStore>(std::move(options)) : nullptr;
}

void put_in_force(Configuration configuration) {
  activation::set_explicit(std::make_shared<const Configuration>(std::move(configuration)));
}

}  // namespace

void configure(const Configure& options) {
  activation::require_none_waiting();  // before anything is opened
  Config config = options.deepspeed_config.empty() ? Config(Dict()) : options.deepspeed_config;
  Dict section;
  const auto set = [&](const char* key, const auto& value) {
    if (value) section[key] = *value;
  };
  set("partition_activations", options.partition_activations);
  set("contiguous_memory_optimization", options.contiguous_checkpointing);
  set("number_checkpoints", options.num_checkpoints);
  set("cpu_checkpointing", options.checkpoint_in_cpu);
  set("synchronize_checkpoint_boundary", options.synchronize);
  set("profile", options.profile);
  if (!section.empty()) config.overwrite(Dict{{"activation_checkpointing", section}}, "configure()");
  const config::Document& document = *config.document();
  config::check_status(document);
  const config::Settings all = config::settings_of(document);
  const config::ActivationCheckpointing& settings = all.activation_checkpointing;
  config::check_activations(settings, document);
  const auto& group = options.model_parallel_group;
  const uint32_t rank = group ? group->rank() : 0, ranks = group ? group->size() : 1;
  Configuration configuration{settings, group, nullptr, {}};
  if (options.num_checkpoints) warn_of_number(configuration);
  configuration.inputs = store_of(all, document, group, std::nullopt, {}, rank, ranks);
  put_in_force(std::move(configuration));
}

bool is_configured() { return activation::explicit_configuration() != nullptr; }
void reset() { activation::set_explicit(nullptr); }

void set_num_layers(int64_t layers) {
  activation::require_none_waiting();
  Configuration configuration = present();
  if (layers < 1) throw Error(ErrorCode::kArgument, formatted("the number of layers is {}", layers), "give 1 or more");
  configuration.settings.number_checkpoints = layers;
  warn_of_number(configuration);
  if (configuration.inputs && configuration.inputs->options().slots) {
    InputStore::Options options = configuration.inputs->options();
    options.slots = layers;
    set_inputs(configuration, std::move(options));
  }
  put_in_force(std::move(configuration));
}

void partition_activations_in_checkpoint(bool partition) {
  activation::require_none_waiting();
  Configuration configuration = present();
  if (configuration.settings.partition_activations == partition) return put_in_force(std::move(configuration));
  configuration.settings.partition_activations = partition;
  InputStore::Options options = configuration.inputs ? configuration.inputs->options() : InputStore::Options();
  options.ranks = nullptr;
  if (partition && configuration.tensor_group && configuration.tensor_group->size() > 1)
    options.ranks = comm_of(configuration.tensor_group, any_carrier(*configuration.tensor_group));
  set_inputs(configuration, std::move(options));
  put_in_force(std::move(configuration));
}

}  // namespace checkpointing
}  // namespace gannet
