// Construction of an engine: config -> device -> ranks -> parameters -> optimizer -> schedule.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <gannet/log.h>
#include <malloc.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/check.h"
#include "base/format.h"
#include "base/text.h"
#include "control/environment.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/named_plugins.h"
#include "interfaces/preference.h"
#include "tensor/dtype.h"
#include "tensor/torch_errors.h"
#include "tensor/vector_math.h"

namespace gannet {

EngineBase::EngineBase(std::shared_ptr<torch::nn::Module> module, const EngineOptions& options) try
    : impl_(std::make_unique<Impl>()) {
  static std::atomic<uint32_t> engines{0};
  Impl& impl = *impl_;
  impl.engine_id = engines++;
  if (!module)
    throw Error(ErrorCode::kArgument, "initialize was given no model (a null pointer)",
                "make it first: std::make_shared<Model>()");
  impl.module = std::move(module);
  Config config = options.config;
  if (!options.overwrite.empty()) config.overwrite(options.overwrite);
  if (config.empty())
    throw Error(ErrorCode::kConfig, "initialize was given no config",
                "pass {.config = \"ds_config.json\"}, or start the program with --deepspeed_config FILE");
  const config::Document& document = *config.document();

  impl.open_and_join(document, options);
  auto call = impl.process_group->world()->enter(*impl.world_group, "initialize");
  static const std::pair<const char*, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                             {"info", LogLevel::kInfo},
                                                             {"warning", LogLevel::kWarning},
                                                             {"error", LogLevel::kError},
                                                             {"critical", LogLevel::kError}};
  for (const auto& [name, level] : kLevels)
    if (impl.settings().log_level == name) set_log_level(level);
  if (impl.settings().deadline_seconds) impl.process_group->world()->set_deadline(*impl.settings().deadline_seconds);
  if (impl.is_first())
    for (const auto& notice : impl.resolved.notices) log_info(notice);

  if (options.inference && impl.is_first())
    for (const auto* choice : {&impl.settings().optimizer, &impl.settings().scheduler})
      if (!choice->type.empty())
        log_info(formatted("no effect: /{} (the engine was made for inference)",
                           choice == &impl.settings().optimizer ? "optimizer" : "scheduler"));
  impl.user_optimizer = options.inference ? nullptr : options.optimizer;
  impl.refuse_optimizers_with_closures();
  if (impl.user_optimizer && impl.settings().zero.stage > 0 && impl.comm->size() > 1)
    throw Error(
        ErrorCode::kUnsupported,
        formatted(
            "the program's own torch::optim::Optimizer updates whole parameters, and ZeRO stage {} cuts them among the ranks",
            impl.settings().zero.stage),
        "set zero_optimization.stage to 0, or name an optimizer in the config");
  impl.open_tiers(document);
  if (impl.user_optimizer && (impl.state_tier || impl.param_tier))
    throw Error(
        ErrorCode::kUnsupported,
        "the program's own torch::optim::Optimizer keeps its states itself and steps whole parameters in memory: they cannot "
        "be offloaded",
        "leave offload_optimizer and offload_param out of the config, or name an optimizer there");
  impl.collect_parameters(options);
  if (options.inference)
    impl.refuse_trained_elsewhere();
  else
    impl.refuse_shared_memory();
  if (!options.inference) impl.open_optimizer(document, options);
  if (impl.is_trained()) {
    impl.ownership = std::make_unique<Ownership>(impl.engine_id,
                                                 [&impl] { return impl.progress.is_whole() && impl.progress.has_begun_step(); });
    impl.ownership->check(impl.owned(), impl.module->parameters());
  }
  impl.create_scheduler(document, options);
  impl.check_fit();
  impl.agree_on_model();
  impl.agree_on_plugins();  // from here on the module is changed: what can be refused has been
  impl.move_module();
  if (!options.inference) impl.create_states();
#ifdef __GLIBC__
  ::malloc_trim(0);  // the memory of the parameters as the program made them goes back to the system
#endif
  if (impl.reducer) impl.schedule.apply();
  if (impl.ownership) impl.ownership->claim(impl.owned());
  if (impl.reducer) {
    impl.start_agreeing();
    if (impl.mesh->tensor()) impl.compare_fingerprints("at initialize");  // replicas are the program's to make
    impl.record_parameters();
  }
  impl.start_reporting();
  if (impl.settings().flops_profiler.enabled && impl.is_first()) impl.profiling = std::make_unique<Profiling>(impl);
  if (impl.settings().dump_state && impl.is_first()) log_info(formatted("effective config:\n{}", config_table()));
} catch (...) {
  rethrow_as_ours("initialize");
}

void EngineBase::Impl::open_and_join(const config::Document& document, const EngineOptions& options) {
  settle_vector_math();
  resolved.settings = config::settings_of(document);  // names the plugins; complete once the number of ranks is known
  registry = std::make_unique<plugin::Registry>(plugin_places(settings()));
  open_accelerator(document);
  join(document, options);
  resolved = config::resolve(document, comm->size(), control::variables_of_this_process().count("RANK") > 0);
}

void EngineBase::Impl::open_accelerator(const config::Document& document) {
  const std::string wanted = settings().accelerator.type;
  auto open = [&](const std::string& name) {
    const plugin::Plugin& plugin = require(*registry, GANNET_KIND_ACCELERATOR, name, "", document, "accelerator");
    accelerator = std::make_unique<Accelerator>(
        plugin, plugin::parse_params(plugin, settings().accelerator.params, position_in(document, "accelerator")), host);
  };
  if (lower(wanted) != "auto") {
    open(wanted);
  } else {
    for (const char* name : kAcceleratorsBestFirst) {  // best first; what is not here is no error under "auto"
      if (!registry->find(GANNET_KIND_ACCELERATOR, name)) continue;
      try {
        open(name);
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
    if (!accelerator) open("cpu");
  }
}

void EngineBase::Impl::join(const config::Document& document, const EngineOptions& engine_options) {
  std::shared_ptr<ProcessGroup> given = engine_options.process_group;
  if (!given) {
    DistributedOptions options;
    const std::string wanted = settings().comm.type;
    // The program's own call of init_distributed may say what the environment does not.
    const uint32_t ranks = is_distributed_initialized() ? init_distributed()->size()
                                                        : control::discover(control::variables_of_this_process(), {}).world_size;
    const bool is_alone = ranks == 1;
    // A world that the program made has its Comm: "auto" takes it, where it can move this device's memory (below).
    const bool chooses = lower(wanted) == "auto" && !is_alone && !is_distributed_initialized();
    options.comm = chooses ? accelerator->default_comm() : wanted;
    options.comm_params = settings().comm.params;
    options.host_comm = settings().comm_host;
    options.plugin_paths = settings().plugin_paths;
    options.plugins_allowed = settings().plugins_allowed;
    options.timeout_seconds = settings().timeout_seconds;
    options.deadline_seconds = settings().deadline_seconds;
    given = init_distributed(options);
  }
  process_group = std::move(given);
  mesh = MeshGroups::of(process_group, wanted_mesh(document, engine_options));
  comm = std::make_unique<DeviceComm>(mesh->data().links().device, [this] { return current_stream(); });
  host_group = &mesh->data().links().host;
  world_group = &process_group->links().host;
  number_in_group = next_number_in(world_group->name());

  const uint32_t index = accelerator->device_of(process_group->local_rank());
  const auto device_type = static_cast<c10::DeviceType>(accelerator->device(0).torch_device_type);
  // A comm plugin of the CPU reads and writes the host's memory; a device's gradients are not there.
  const plugin::Plugin& carrier = comm->comm().plugin();
  if (comm->size() > 1 && !carrier.device().empty() && lower(carrier.device()) != lower(accelerator->plugin_device()) &&
      lower(carrier.device()) != lower(accelerator->name()))
    throw Error(ErrorCode::kUnsupported,
                formatted("comm plugin '{}' moves memory of device '{}', and accelerator '{}' trains on its own", carrier.name(),
                          carrier.device(), accelerator->name()),
                formatted("set \"comm\": {{\"type\": \"{}\"}} in the config, or \"accelerator\": {{\"type\": \"{}\"}}",
                          accelerator->default_comm(), carrier.device()));
  if (device_type == c10::DeviceType::CPU) return;
  device = at::Device(device_type, static_cast<c10::DeviceIndex>(index));
  accelerator->set_device(index);
}

void EngineBase::Impl::open_tiers(const config::Document& document) {
  const auto open = [&](const config::OffloadTo& to, const std::string& block) {
    if (!to) return std::shared_ptr<Offload>();
    const std::string place = formatted("zero_optimization/{}", block);
    const plugin::Plugin& plugin = require(*registry, GANNET_KIND_OFFLOAD, to.device, "cpu", document, place, "device");
    return std::make_shared<Offload>(
        plugin, plugin::parse_params(plugin, known_params(plugin, to.params), position_in_offload(document, place)), host,
        world_group->rank());
  };
  memory_is_apart = accelerator->has(GANNET_ACCELERATOR_SEPARATE_MEMORY);
  state_tier = open(settings().zero.offload_optimizer, "offload_optimizer");
  param_tier = open(settings().zero.offload_param, "offload_param");
  if (!param_tier) return;
  if (memory_is_apart && !state_tier)
    throw Error(
        ErrorCode::kUnsupported,
        formatted("{}: offload_param without offload_optimizer: the update would need both the device's memory and the host's",
                  document.origin_of("/zero_optimization/offload_param").to_string()),
        "add \"offload_optimizer\": {\"device\": \"cpu\"}");
  void* const region = param_tier->allocate(param_tier->alignment_bytes(), "probe");
  param_tier_is_drive = param_tier->address(region) == nullptr;
  param_tier->release(region);
}

void EngineBase::Impl::open_optimizer(const config::Document& document, const EngineOptions& options) {
  const auto& fp16 = settings().fp16;
  skip_policy = {.skips = fp16.enabled || (settings().bf16.enabled && settings().bf16.check_grad_overflow),
                 .is_fp16 = fp16.enabled,
                 .scale_can_mend = fp16.enabled && fp16.loss_scale == 0,
                 .max_consecutive = settings().max_consecutive_skips};
  if (fp16.enabled) {
    scaler = fp16.loss_scale > 0 ? LossScaler::fixed(fp16.loss_scale)
                                 : LossScaler({.initial_scale_power = fp16.initial_scale_power,
                                               .window = fp16.loss_scale_window,
                                               .hysteresis = fp16.hysteresis,
                                               .consecutive_hysteresis = fp16.consecutive_hysteresis,
                                               .min_scale = static_cast<double>(fp16.min_loss_scale)});
  }

  if (!user_optimizer && !settings().optimizer.type.empty()) {
    const plugin::Plugin& plugin = require(*registry, GANNET_KIND_OPTIMIZER, settings().optimizer.type,
                                           updates_on_host() ? "cpu" : accelerator->plugin_device(), document, "optimizer");
    for (size_t g = 0; g < groups.size(); ++g) {
      Dict params = settings().optimizer.params;
      if (g < options.model_parameters.size())
        for (const auto& [key, value] : options.model_parameters[g].overrides.entries()) params[key] = value;
      Group& group = groups[g];
      group.optimizer =
          std::make_unique<Optimizer>(plugin, plugin::parse_params(plugin, params, position_in(document, "optimizer")), host);
      group.hyper_names = group.optimizer->hyper_names();
      group.hyper = group.optimizer->hyper_values();
      if (const double* lr = group.find("lr")) group.base_lr = *lr;
      if (group.optimizer->has(GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION))
        throw Error(ErrorCode::kUnsupported,
                    formatted("optimizer '{}' averages gradients itself, which this engine does not support yet",
                              settings().optimizer.type),
                    "choose another optimizer");
      if (group.optimizer->has(GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR) && settings().zero.stage > 0 && comm->size() > 1)
        throw Error(ErrorCode::kUnsupported,
                    formatted("optimizer '{}' needs whole tensors, and ZeRO stage {} cuts them among the ranks",
                              settings().optimizer.type, settings().zero.stage),
                    "set zero_optimization.stage to 0, or choose another optimizer");
    }
  }
}

// Without an optimizer an engine evaluates: backward and step say that there is none.
bool EngineBase::Impl::is_trained() const { return user_optimizer || (!groups.empty() && groups[0].optimizer); }

// An engine for inference takes over what it changes: not the parameters of one that trains.
void EngineBase::Impl::refuse_trained_elsewhere() const {
  const auto dtype = settings().fp16.enabled   ? std::optional(at::kHalf)
                     : settings().bf16.enabled ? std::optional(at::kBFloat16)
                                               : std::nullopt;
  for (const auto& entry : module->named_parameters()) {
    const std::string owner = Ownership::owner_of(entry.value());
    if (owner.empty() || (settings().zero.stage < 3 && (!dtype || *dtype == entry.value().scalar_type()))) continue;
    throw Error(
        ErrorCode::kOrder,
        formatted(
            "parameter '{}' is trained by {}, and an engine for inference in another dtype or at ZeRO stage 3 would take it over",
            entry.key(), owner),
        "evaluate with the engine that trains (engine->eval()), give the same precision at a stage below 3, or end that engine");
  }
}

void EngineBase::Impl::create_states() {
  if (user_optimizer) {
    adopt_user_optimizer();
    user_lr_seen.resize(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) user_lr_seen[g] = groups[g].hyper[0];
  } else if (!is_trained()) {
    return;
  }
  for (auto& range : ranges)
    if (groups[range.group].optimizer) create_states(range);
  Reducer::Options reduction;
  if (settings().communication_data_type)
    reduction.communication_dtype = scalar_type(*settings().communication_data_type);
  else if (settings().fp16.enabled)
    reduction.communication_dtype = at::kHalf;  // the reference's defaults
  else if (settings().bf16.enabled)
    reduction.communication_dtype = at::kBFloat16;
  const double world = comm->size();
  const bool is_fp16_wire =
      reduction.communication_dtype
          ? *reduction.communication_dtype == at::kHalf
          : std::any_of(ranges.begin(), ranges.end(), [](const Range& range) { return range.grad_dtype == at::kHalf; });
  if (settings().gradient_sum) {
    reduction.post_factor = 1.0;
  } else if (settings().prescale_gradients) {
    reduction.pre_factor = 1.0 / world;
  } else if (is_fp16_wire && settings().gradient_predivide_factor == 1.0) {
    // A sum of W halves overflows where their mean does not. Divided by a power of two first nothing is rounded, but for numbers
    // that fp16 has no exponent for; what is left of the division is a factor of the update.
    const double power = std::exp2(std::ceil(std::log2(world)));
    reduction.pre_factor = 1.0 / power;
    reduction.post_factor = power / world;
  } else {  // divide by the predivide factor before, by what is left of the world's size after
    reduction.pre_factor = 1.0 / settings().gradient_predivide_factor;
    reduction.post_factor = settings().gradient_predivide_factor / world;
  }
  reduction.bucket_numel = bucket_numel();
  reduction.host = host_gradients.get();
  reducer = std::make_unique<Reducer>(ranges, comm.get(), timers, reduction);
}

void EngineBase::Impl::create_states(Range& range) {
  Optimizer* optimizer = groups[range.group].optimizer.get();
  optimizer->require_support(to_dtype(range.master_dtype), to_dtype(range.grad_dtype),
                             range.has_master_copy() ? to_dtype(range.dtype) : GANNET_DTYPE_NONE);
  for (const auto& state : optimizer->states()) {
    if (state.extent == GANNET_STATE_SCALAR && range.is_sharded())
      throw Error(ErrorCode::kUnsupported,
                  formatted("optimizer '{}' keeps the state '{}' for a whole group, which ZeRO stage {} updates shard by shard",
                            settings().optimizer.type, state.name, settings().zero.stage),
                  "set zero_optimization.stage to 0, or choose another optimizer");
    const auto has_its_rest_elsewhere = [&](const Range& other) {
      return other.group == range.group && other.dtype == range.dtype && other.placement != range.placement;
    };
    if (state.extent == GANNET_STATE_SCALAR && std::any_of(ranges.begin(), ranges.end(), has_its_rest_elsewhere))
      throw Error(ErrorCode::kUnsupported,
                  formatted("optimizer '{}' keeps the state '{}' for a whole group, of which max_in_cpu leaves a part in memory",
                            settings().optimizer.type, state.name),
                  "set zero_optimization.offload_param.max_in_cpu to 0, or choose another optimizer");
    const int64_t numel = state.extent == GANNET_STATE_PER_ELEMENT  ? range.own_numel
                          : state.extent == GANNET_STATE_PER_TENSOR ? static_cast<int64_t>(range.parameters.size())
                                                                    : 1;
    const auto dtype = state.dtype == GANNET_DTYPE_NONE ? range.master_dtype : to_scalar_type(state.dtype);
    Array array = state.extent == GANNET_STATE_PER_ELEMENT
                      ? make_array(state_tier, numel, dtype, state.name)
                      : Array::in_memory(allocate_flat(numel, dtype, updates_on_host() ? at::Device(at::kCPU) : device));
    if (state.initial_value != 0) array.fill(state.initial_value);
    range.states.push_back(std::move(array));
  }
}

void EngineBase::Impl::create_scheduler(const config::Document& document, const EngineOptions& options) {
  schedule.use(options.lr_scheduler.function, options.lr_scheduler.by_hand);
  if (!schedule.has_function() && !settings().scheduler.type.empty() && is_trained()) {
    const plugin::Plugin& plugin =
        require(*registry, GANNET_KIND_SCHEDULER, settings().scheduler.type, accelerator->plugin_device(), document, "scheduler");
    auto scheduler = std::make_unique<Scheduler>(
        plugin, plugin::parse_params(plugin, settings().scheduler.params, position_in(document, "scheduler")), host,
        static_cast<uint32_t>(groups.size()));
    const Scheduler::Value first = scheduler->at(0, 0, groups[0].base_lr);
    if (first.beta1 && !groups[0].find("betas[0]"))
      log_warning(formatted("scheduler '{}' cycles momentum, but the optimizer has no betas: its momentum has no effect",
                            settings().scheduler.type));
    schedule.use(std::move(scheduler));
  }
}

std::string EngineBase::plugin_table() const {
  std::string table;
  std::vector<const plugin::Plugin*> used = {&impl_->accelerator->plugin(), &impl_->comm->comm().plugin()};
  if (!impl_->groups.empty() && impl_->groups[0].optimizer) used.push_back(&impl_->groups[0].optimizer->plugin());
  if (const Scheduler* plugin = impl_->schedule.plugin()) used.push_back(&plugin->plugin());
  for (const auto* plugin : used) {
    auto column = [](std::string text, size_t width) {
      return text.size() < width ? text + std::string(width - text.size(), ' ') : formatted("{} ", text);
    };
    table += formatted("{}{}{}{}\n", column(plugin::kind_name(plugin->kind()), 12), column(plugin->name(), 16),
                       column(plugin->version(), 8), plugin->file);
  }
  return table;
}

std::string EngineBase::config_table() const {
  std::string table;
  for (const auto& entry : impl_->resolved.effective)
    table += formatted("{} = {}   # {}\n", entry.path, entry.value.to_json(), entry.origin);
  return table;
}

}  // namespace gannet
