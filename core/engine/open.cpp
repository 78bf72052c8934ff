#include "engine/open.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <gannet/distributed.h>
#include <gannet/log.h>
#include <torch/csrc/autograd/autograd.h>

#include <atomic>

#include "base/format.h"
#include "base/text.h"
#include "control/environment.h"
#include "control/world.h"
#include "plugin/named_plugins.h"
#include "tensor/vector_math.h"

namespace gannet {
namespace {

void open_accelerator(RankContext& context, const config::Document& document) {
  const std::string wanted = context.settings().accelerator.type;
  auto open = [&](const std::string& name) {
    const plugin::Plugin& plugin = require(*context.registry, GANNET_KIND_ACCELERATOR, name, "", document, "accelerator");
    context.accelerator = std::make_unique<Accelerator>(
        plugin, plugin::parse_params(plugin, context.settings().accelerator.params, position_in(document, "accelerator")),
        context.host);
  };
  if (lower(wanted) != "auto") {
    open(wanted);
  } else {
    for (const plugin::Plugin* best : context.registry->accelerators_best_first()) {
      try {
        open(best->name());
        break;
      } catch (const Error& error) {
        // A missing driver or device is normal for "auto". A device that is present but unusable is
        // worth a warning.
        if (error.code() == ErrorCode::kUnavailable)
          log(LogLevel::kDebug, error.message());
        else if (error.code() == ErrorCode::kUnsupported)
          log_warning(error.message());
        else
          throw;
      }
    }
    if (!context.accelerator) open("cpu");
  }
}

// LibTorch creates one thread per known device at the process's first backward(), and none later.
// The trial backward below detects a missing thread before the program's first backward on this
// device does.
void require_backward_thread(const RankContext& context) {
  static std::atomic<uint64_t> tried{0};
  const uint64_t bit = uint64_t{1} << (context.device_index() % 64);
  if (c10::InferenceMode::is_enabled() || (tried & bit) != 0) return;
  try {
    const at::AutoGradMode grad(true);
    const at::Tensor one = at::ones({}, at::TensorOptions().device(context.device)).requires_grad_();
    torch::autograd::backward({one * one}, {});
    tried |= bit;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("INTERNAL ASSERT") == std::string::npos) throw;  // not from LibTorch's queues: the device's own error
    throw Error(
        ErrorCode::kOrder,
        formatted("LibTorch has no thread for backward on {}: a backward() ran in this process before accelerator '{}' was "
                  "opened with that device ({})",
                  context.device.str(), context.accelerator->name(), text.substr(0, text.find('\n'))),
        "make the engine that trains there before the first backward() of any kind, also before that of an engine on the "
        "CPU or with fewer devices");
  }
}

// Makes the device current before its Comm is opened: a vendor's communicator belongs to the
// current device.
void choose_device(RankContext& context) {
  const uint32_t index = context.accelerator->device_of(context.process_group->local_rank());
  const auto type = static_cast<c10::DeviceType>(context.accelerator->device(0).torch_device_type);
  if (type == c10::DeviceType::CPU) return;
  context.device = at::Device(type, static_cast<c10::DeviceIndex>(index));
  context.accelerator->set_device(index);
  require_backward_thread(context);
}

// Returns the name of the comm plugin for the device's tensors: the one that the config or the
// program names, or else the device's own. With one rank, or if the latter is not installed, it
// is the host's. A plugin that serves host memory works on host copies of the tensors.
std::string name_of_device_comm(const RankContext& context) {
  control::World& world = *context.process_group->world();
  const std::string wanted = context.settings().comm.type;
  if (lower(wanted) != "auto") return wanted;
  if (!world.comm_is_auto()) return world.comm_name();
  if (context.process_group->size() == 1) return world.host_comm().plugin().name();  // a Comm of one rank gets no tensors
  const std::string own = context.accelerator->default_comm();
  if (context.registry->find(GANNET_KIND_COMM, own)) return own;
  if (context.is_first())
    log_warning(
        formatted("comm plugin '{}', which accelerator '{}' would choose, is not installed", own, context.accelerator->name()));
  return world.host_comm().plugin().name();
}

void open_device_comm(RankContext& context) {
  control::World& world = *context.process_group->world();
  const Accelerator& accelerator = *context.accelerator;
  const std::string name = name_of_device_comm(context);
  const control::CommDevice device{.accelerator = accelerator.name(),
                                   .params = context.settings().accelerator.params,
                                   .index = context.device_index(),
                                   .plugin_device = accelerator.plugin_device()};
  const plugin::Plugin& carrier = world.require_comm(name, device);
  const std::string of = lower(carrier.device());
  const bool fits = of.empty() || of == lower(accelerator.plugin_device()) || of == lower(accelerator.name());
  const bool is_staged = !context.computes_on_host() && serves_host_memory(carrier);
  if (context.process_group->size() > 1 && !fits && !is_staged)
    throw Error(ErrorCode::kUnsupported,
                formatted("comm plugin '{}' moves memory of device '{}', and accelerator '{}' trains on its own", carrier.name(),
                          carrier.device(), accelerator.name()),
                formatted("set \"comm\": {{\"type\": \"{}\"}} in the config, or \"accelerator\": {{\"type\": \"{}\"}}",
                          accelerator.default_comm(), carrier.device()));
  context.device_comm = &world.open_comm(name, context.settings().comm.params, device);
  static std::atomic<bool> is_said{false};
  if (context.comm_memory() == DeviceComm::kStaged && context.process_group->size() > 1 && context.is_first() &&
      !is_said.exchange(true))
    log_info(
        formatted("comm plugin '{}' moves the tensors of accelerator '{}' through page-locked memory of the host: any number of "
                  "ranks may share a device, and every collective makes the host wait",
                  carrier.name(), accelerator.name()));
}

void join_ranks(RankContext& context, const config::Document& document, const EngineOptions& engine_options) {
  const config::Settings& settings = context.settings();
  std::shared_ptr<ProcessGroup> given = engine_options.process_group;
  if (!given) {
    DistributedOptions options;
    options.comm = settings.comm.type;
    options.comm_params = settings.comm.params;
    options.host_comm = settings.comm_host;
    options.plugin_paths = settings.plugin_paths;
    options.plugins_allowed = settings.plugins_allowed;
    options.plugins_trusted = settings.plugins_trusted;
    options.timeout_seconds = settings.timeout_seconds;
    options.deadline_seconds = settings.deadline_seconds;
    given = init_distributed(options);
  }
  context.process_group = std::move(given);
  // A world that the program created has already opened its Comm, without this config.
  for (const plugin::Plugin* opened : context.process_group->world()->registry().opened())
    context.registry->require_trust(*opened);
  {
    // First detect a rank that is still in a call of another engine: the collectives of that call
    // would mix with the ones here.
    const auto call = context.process_group->world()->enter(context.process_group->links().host, "initialize");
    context.mesh = MeshGroups::of(context.process_group, wanted_mesh(context, document, engine_options));
    choose_device(context);
    open_device_comm(context);
    context.comm = comm_of(context, context.mesh->data());
    if (ProcessGroup* const same = context.mesh->expert_data()) context.expert_comm = comm_of(context, *same);
  }
  context.host_group = &context.mesh->data().links().host;
  context.host.set_ranks(context.comm->rank(), context.comm->size());
  if (context.mesh->tensor()) context.tensor_group = &context.mesh->tensor()->links().host;
  if (ProcessGroup* const same = context.mesh->expert_data()) {
    context.expert_data_group = &same->links().host;
    context.expert_group = &context.mesh->expert()->links().host;
  }
  context.world_group = &context.process_group->links().host;
}

}  // namespace

std::unique_ptr<DeviceComm> comm_of(const RankContext& context, ProcessGroup& ranks) {
  return std::make_unique<DeviceComm>(
      ranks.links().over(*context.device_comm), [&context] { return context.current_stream(); }, context.comm_memory());
}

void open_ranks(RankContext& context, const config::Document& document, const EngineOptions& options) {
  settle_vector_math();
  context.resolved.settings = config::settings_of(document);  // names the plugins; complete once the number of ranks is known
  context.registry = std::make_unique<plugin::Registry>(plugin_places(context.settings()));
  open_accelerator(context, document);
  join_ranks(context, document, options);
}

void open(RankContext& context, const config::Document& document, const EngineOptions& options) {
  open_ranks(context, document, options);
  context.resolved = config::resolve(document, context.comm->size(), control::variables_of_this_process().count("RANK") > 0);
}

void open_tiers(RankContext& context, const config::Document& document) {
  const auto open = [&](const config::OffloadTarget& to, const std::string& block) {
    if (!to) return std::shared_ptr<Offload>();
    const std::string place = formatted("zero_optimization/{}", block);
    const plugin::Plugin& plugin = require(*context.registry, GANNET_KIND_OFFLOAD, to.device, "cpu", document, place, "device");
    return std::make_shared<Offload>(
        plugin, plugin::parse_params(plugin, known_params(plugin, to.params), position_in_offload(document, place)), context.host,
        context.world_group->rank());
  };
  context.memory_is_apart = context.accelerator->has(GANNET_ACCELERATOR_SEPARATE_MEMORY);
  context.state_tier = open(context.settings().zero.offload_optimizer, "offload_optimizer");
  context.param_tier = open(context.settings().zero.offload_param, "offload_param");
  if (!context.param_tier) return;
  if (context.memory_is_apart && !context.state_tier)
    throw Error(
        ErrorCode::kUnsupported,
        formatted("{}: offload_param without offload_optimizer: the update would need both the device's memory and the host's",
                  document.origin_of("/zero_optimization/offload_param").to_string()),
        "add \"offload_optimizer\": {\"device\": \"cpu\"}");
  void* const region = context.param_tier->allocate(context.param_tier->alignment_bytes(), "probe");
  context.param_tier_is_drive = context.param_tier->address(region) == nullptr;
  context.param_tier->release(region);
}

}  // namespace gannet
