#include "engine/open.h"

#include <gannet/distributed.h>
#include <gannet/log.h>

#include "base/format.h"
#include "base/text.h"
#include "control/environment.h"
#include "control/world.h"
#include "engine/named_plugins.h"
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
        // No driver or no device is what "auto" is for; a device that is here and cannot be used is worth a word.
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

void join_ranks(RankContext& context, const config::Document& document, const EngineOptions& engine_options) {
  const config::Settings& settings = context.settings();
  std::shared_ptr<ProcessGroup> given = engine_options.process_group;
  if (!given) {
    DistributedOptions options;
    const std::string wanted = settings.comm.type;
    // The program's own call of init_distributed may say what the environment does not.
    const uint32_t ranks = is_distributed_initialized() ? init_distributed()->size()
                                                        : control::discover(control::variables_of_this_process(), {}).world_size;
    const bool is_alone = ranks == 1;
    // A world that the program made has its Comm: "auto" takes it, where it can move this device's memory (below).
    const bool chooses = lower(wanted) == "auto" && !is_alone && !is_distributed_initialized();
    options.comm = chooses ? context.accelerator->default_comm() : wanted;
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
  // A world that the program made has opened its Comm already, without this config.
  for (const plugin::Plugin* opened : context.process_group->world()->registry().opened())
    context.registry->require_trust(*opened);
  {
    // Who is still in a call of another engine, whose collectives would meet with these, is found first.
    const auto call = context.process_group->world()->enter(context.process_group->links().host, "initialize");
    context.mesh = MeshGroups::of(context.process_group, wanted_mesh(context, document, engine_options));
  }
  control::Links& data = context.mesh->data().links();
  context.comm = std::make_unique<DeviceComm>(data.device, [&context] { return context.current_stream(); });
  context.host_group = &data.host;
  context.host.set_ranks(context.comm->rank(), context.comm->size());
  if (context.mesh->tensor()) context.tensor_group = &context.mesh->tensor()->links().host;
  if (ProcessGroup* const same = context.mesh->expert_data()) {
    context.expert_comm = std::make_unique<DeviceComm>(same->links().device, [&context] { return context.current_stream(); });
    context.expert_data_group = &same->links().host;
    context.expert_group = &context.mesh->expert()->links().host;
  }
  context.world_group = &context.process_group->links().host;

  const uint32_t index = context.accelerator->device_of(context.process_group->local_rank());
  const auto device_type = static_cast<c10::DeviceType>(context.accelerator->device(0).torch_device_type);
  // A comm plugin of the CPU reads and writes the host's memory; a device's gradients are not there.
  const plugin::Plugin& carrier = context.comm->comm().plugin();
  if (context.comm->size() > 1 && !carrier.device().empty() &&
      lower(carrier.device()) != lower(context.accelerator->plugin_device()) &&
      lower(carrier.device()) != lower(context.accelerator->name()))
    throw Error(ErrorCode::kUnsupported,
                formatted("comm plugin '{}' moves memory of device '{}', and accelerator '{}' trains on its own", carrier.name(),
                          carrier.device(), context.accelerator->name()),
                formatted("set \"comm\": {{\"type\": \"{}\"}} in the config, or \"accelerator\": {{\"type\": \"{}\"}}",
                          context.accelerator->default_comm(), carrier.device()));
  if (device_type == c10::DeviceType::CPU) return;
  context.device = at::Device(device_type, static_cast<c10::DeviceIndex>(index));
  context.accelerator->set_device(index);
}

}  // namespace

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
  const auto open = [&](const config::OffloadTo& to, const std::string& block) {
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
