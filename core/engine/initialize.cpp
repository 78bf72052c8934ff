// The construction of an engine: config -> device -> ranks -> parameters -> optimizer -> schedule.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Type.h>
#include <gannet/log.h>
#include <malloc.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <typeinfo>
#include <utility>

#include "activation/saved_tensors.h"
#include "base/check.h"
#include "base/format.h"
#include "base/text.h"
#include "config/effective.h"
#include "config/precision.h"
#include "control/environment.h"
#include "control/world.h"
#include "engine/activation_configuration.h"
#include "engine/config_table.h"
#include "engine/construction.h"
#include "engine/group_optimizers.h"
#include "engine/impl.h"
#include "engine/open.h"
#include "engine/recomputation.h"
#include "engine/report.h"
#include "engine/ties.h"
#include "engine/used_plugins.h"
#include "plugin/named_plugins.h"
#include "tensor/dtype.h"
#include "tensor/torch_errors.h"
#include "tensor/vector_math.h"
#include "update/group_states.h"

namespace gannet {

namespace {

// LibTorch has autocast operator lists for the CPU and CUDA only.
std::optional<at::ScalarType> autocast_dtype(const EngineBase::Impl& impl) {
  const auto dtype = impl.precision().autocast;
  if (!dtype) return std::nullopt;
  if (!impl.computes_on_host() && !impl.device.is_cuda())
    throw Error(ErrorCode::kUnsupported, formatted("LibTorch has no autocast for the device {}", impl.device.str()),
                "leave torch_autocast and amp out, and write fp16 or bf16");
  return scalar_type(*dtype);
}

void open_optimizer(EngineBase::Impl& impl, const config::Document& document) {
  const auto& fp16 = impl.settings().fp16;
  const auto precision = impl.precision();
  const bool is_fp16 = precision.scales_loss || precision.model == config::DType::kFloat16;
  impl.skip_policy = {.skips = is_fp16 || (impl.settings().bf16.enabled && impl.settings().bf16.check_grad_overflow),
                      .is_fp16 = is_fp16,
                      .scale_can_mend = precision.is_scale_dynamic,
                      .max_consecutive = impl.settings().max_consecutive_skips};
  if (precision.scales_loss) {
    impl.scaler = fp16.loss_scale > 0 ? LossScaler::fixed(fp16.loss_scale)
                                      : LossScaler({.initial_scale_power = fp16.initial_scale_power,
                                                    .window = fp16.loss_scale_window,
                                                    .hysteresis = fp16.hysteresis,
                                                    .consecutive_hysteresis = fp16.consecutive_hysteresis,
                                                    .min_scale = static_cast<double>(fp16.min_loss_scale)});
  }

  std::vector<Group> made;
  if (impl.torch_optimizer) {
    impl.torch_optimizer->set_offloaded(impl.state_tier != nullptr);
    made = make_optimizers(impl, impl.store, impl.groups,
                           [&](size_t g) { return impl.torch_optimizer->make_rule(g, impl.update_device()); });
  } else if (!impl.user_optimizer && !impl.settings().optimizer.type.empty()) {
    const plugin::Plugin& plugin =
        require(*impl.registry, GANNET_KIND_OPTIMIZER, impl.settings().optimizer.type,
                impl.updates_on_host() ? "cpu" : impl.accelerator->plugin_device(), document, "optimizer");
    made = make_optimizers(impl, impl.store, impl.groups, plugin, [&](size_t g) {
      return GroupParams{impl.group_rules.params(g, impl.settings().optimizer.params), impl.group_rules.position(g, document)};
    });
  }
  for (size_t g = 0; g < made.size(); ++g) {
    take_optimizer(impl.groups[g], made[g]);
    const Optimizer& optimizer = *impl.groups[g].optimizer;
    impl.store.align_ranges(g, static_cast<int64_t>(optimizer.range_alignment()));
    if (optimizer.needs_whole_tensors()) impl.store.keep_whole_tensors(g);
    if (optimizer.owns_grad_reduction()) impl.store.set_optimizer_reduced(g);
  }
}

// Without an optimizer an engine only evaluates: backward and step report that there is none.
bool is_trained(const EngineBase::Impl& impl) {
  return impl.user_optimizer || (!impl.groups.empty() && impl.groups[0].optimizer);
}

// An engine for inference takes over the parameters that it changes. It must not take those of an
// engine that trains.
void refuse_trained_elsewhere(const EngineBase::Impl& impl) {
  const auto dtype = training_dtype(impl.settings());
  for (const auto& entry : impl.module->named_parameters()) {
    const std::string owner = Ownership::owner_of(entry.value());
    if (owner.empty() || (impl.settings().zero.stage < 3 && (!dtype || *dtype == entry.value().scalar_type()))) continue;
    throw Error(
        ErrorCode::kOrder,
        formatted(
            "parameter '{}' is trained by {}, and an engine for inference in another dtype or at ZeRO stage 3 would take it over",
            entry.key(), owner),
        "evaluate with the engine that trains (engine->eval()), give the same precision at a stage below 3, or end that engine");
  }
}

void create_states(EngineBase::Impl& impl) {
  if (impl.user_optimizer) {
    impl.user_optimizer->adopt(impl.store.ranges(), impl.groups);
  } else if (!is_trained(impl)) {
    return;
  }
  for (auto& range : impl.store.ranges())
    if (const auto& optimizer = impl.groups[range.group].optimizer) impl.store.add_states(range, *optimizer);
  for (size_t g = 0; g < impl.groups.size(); ++g) {
    grow_group_states(impl.groups[g]);
    grow_squares(impl.groups[g], g, impl, impl.store);
  }
  impl.updater.run_seed = impl.settings().seed;
  if (impl.torch_optimizer) {  // the program may have used the optimizer before
    impl.torch_optimizer->follow(impl.store, impl.groups, 0);
    impl.torch_optimizer->show_states(impl.store, 0);
  }
  Reducer::Options reduction;
  if (impl.settings().communication_data_type)
    reduction.communication_dtype = scalar_type(*impl.settings().communication_data_type);
  else
    reduction.communication_dtype = training_dtype(impl.settings());  // DeepSpeed's default
  const double world = impl.comm->size();
  const bool is_fp16_wire = reduction.communication_dtype
                                ? *reduction.communication_dtype == at::kHalf
                                : std::any_of(impl.store.ranges().begin(), impl.store.ranges().end(),
                                              [](const Range& range) { return range.grad_dtype == at::kHalf; });
  if (impl.settings().gradient_sum) {
    reduction.post_factor = 1.0;
  } else if (impl.settings().prescale_gradients) {
    reduction.pre_factor = 1.0 / world;
  } else if (is_fp16_wire && impl.settings().gradient_predivide_factor == 1.0) {
    // A sum of W halves can overflow where their mean does not. Dividing by a power of two first
    // rounds only values that become subnormal in fp16. The rest of the division becomes a factor
    // in the update.
    const double power = std::exp2(std::ceil(std::log2(world)));
    reduction.pre_factor = 1.0 / power;
    reduction.post_factor = power / world;
  } else {  // divide by the predivide factor before, and by the rest of the world size after
    reduction.pre_factor = 1.0 / impl.settings().gradient_predivide_factor;
    reduction.post_factor = impl.settings().gradient_predivide_factor / world;
  }
  reduction.sums_gradients = impl.settings().gradient_sum;
  reduction.bucket_numel = impl.store.bucket_numel();
  reduction.host = impl.host_gradients.get();
  impl.reducer = std::make_unique<Reducer>(impl.store.ranges(), impl.comm.get(), impl.timers, reduction);
}

void create_scheduler(EngineBase::Impl& impl, const config::Document& document, const EngineOptions& options) {
  impl.schedule.use(options.lr_scheduler.function, options.lr_scheduler.by_hand);
  if (!impl.schedule.has_function() && !impl.settings().scheduler.type.empty() && is_trained(impl)) {
    const plugin::Plugin& plugin = require(*impl.registry, GANNET_KIND_SCHEDULER, impl.settings().scheduler.type,
                                           impl.accelerator->plugin_device(), document, "scheduler");
    auto scheduler = std::make_unique<Scheduler>(
        plugin, plugin::parse_params(plugin, impl.settings().scheduler.params, position_in(document, "scheduler")), impl.host,
        static_cast<uint32_t>(impl.groups.size()), static_cast<uint64_t>(impl.settings().total_steps));
    impl.schedule.use(std::move(scheduler));
  }
  if (!impl.schedule.exists() || !is_trained(impl) || impl.user_optimizer) return;  // a UserOptimizer's groups all have a rate
  impl.schedule.check(
      impl.groups,
      impl.schedule.has_function() ? "the program's schedule" : formatted("scheduler '{}'", impl.settings().scheduler.type),
      formatted("optimizer '{}'", impl.optimizer_name()));
}

// Wraps the program's optimizer: in a TorchOptimizer if its rule is known to work element by
// element, so that sharding and offload may cut tensors; in a UserOptimizer otherwise.
void take_program_optimizer(EngineBase::Impl& impl, const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  impl.torch_optimizer = TorchOptimizer::of(optimizer);
  if (!impl.torch_optimizer) impl.user_optimizer = std::make_unique<UserOptimizer>(optimizer);
  if (impl.settings().bf16.without_masters)
    throw Error(
        ErrorCode::kUnsupported,
        "the program gave an optimizer of LibTorch, and bf16.bf16_master_weights_and_grads leaves out the fp32 masters: it "
        "would round small updates away",
        "name AdamWBF16 in the config's optimizer, which rounds stochastically, or leave the key out");
}

void refuse_cuts(const EngineBase::Impl& impl, const std::string& what) {
  if (!impl.user_optimizer) return;
  const torch::optim::Optimizer& optimizer = impl.user_optimizer->get();
  throw Error(ErrorCode::kUnsupported,
              formatted("the program's own optimizer is a {}, and {}, which takes a rule that works element by element: those of "
                        "torch::optim::Adam, AdamW, SGD, Adagrad and RMSprop do (with complex parameters only SGD's), those of "
                        "other classes and of subclasses are not known to",
                        c10::demangle(typeid(optimizer).name()), what),
              "set zero_optimization.stage to 0 without offload, name an optimizer in the config, or write the rule as an "
              "optimizer plugin (docs/plugin_authors.md)");
}

// A UserOptimizer saves its states in the order of the parameters, so the states of several ranks
// could not be combined.
void refuse_experts_states(const EngineBase::Impl& impl) {
  if (!impl.user_optimizer || !impl.store.has_experts()) return;
  const torch::optim::Optimizer& optimizer = impl.user_optimizer->get();
  throw Error(ErrorCode::kUnsupported,
              formatted("the program's own optimizer is a {}, whose states cannot be cut by experts",
                        c10::demangle(typeid(optimizer).name())),
              "name an optimizer in the config, or use torch::optim::Adam, AdamW, SGD, Adagrad or RMSprop itself");
}

LogLevel log_level_of(const std::string& name) {
  if (name == "debug") return LogLevel::kDebug;
  if (name == "info") return LogLevel::kInfo;
  return name == "warning" ? LogLevel::kWarning : LogLevel::kError;  // DeepSpeed's "critical" as well
}

Config config_of(const EngineOptions& options) {
  Config config = options.config;
  if (!options.overwrite.empty()) config.overwrite(options.overwrite);
  if (config.empty())
    throw Error(ErrorCode::kConfig, "initialize was given no config",
                "pass {.config = \"ds_config.json\"}, or start the program with --deepspeed_config FILE");
  return config;
}

}  // namespace

Construction::Construction(EngineBase::Impl& impl, const EngineOptions& options)
    : impl_(impl), options_(options), config_(config_of(options)), document_(*config_.document()) {}

void Construction::open() {
  if (!options_.inference && c10::InferenceMode::is_enabled())
    throw Error(
        ErrorCode::kOrder,
        "initialize was called under c10::InferenceMode: LibTorch records no graph there, so that nothing could be trained",
        "call it outside of that scope, or with {.inference = true} for an engine that evaluates");
  gannet::open(impl_, document_, options_);
  impl_.number_in_group = impl_.process_group->world()->next_engine_in(impl_.world_group->name());
  call_.emplace(impl_.process_group->world()->watch(), *impl_.world_group, "initialize", -1, "", control::Watch::Call::kTogether);
  const config::Settings& settings = impl_.settings();
  if (!settings.log_level.empty()) set_log_level(log_level_of(settings.log_level));
  if (settings.deadline_seconds) impl_.process_group->world()->set_deadline(*settings.deadline_seconds);
  if (!impl_.is_first()) return;
  if (!options_.build_stage)
    for (const char* const key : {"partition", "seed_layers", "activation_checkpoint_interval"})
      if (document_.find(formatted("/pipeline/{}", key)))
        log_info(formatted("no effect: pipeline.{} (the model is not a gannet::pipe::Module)", key));
  for (const auto& notice : impl_.resolved.notices) log_info(notice);
  log_config(impl_);
  if (options_.inference)
    for (const auto& [block, type] :
         {std::pair("optimizer", settings.optimizer.type), std::pair("scheduler", settings.scheduler.type)})
      if (!type.empty()) log_info(formatted("no effect: {} (the engine was made for inference)", block));
}

void Construction::read_rules() {
  const config::Settings& settings = impl_.settings();
  if (!options_.inference && options_.optimizer) take_program_optimizer(impl_, options_.optimizer);
  if (settings.zero.stage > 0 && impl_.comm->size() > 1)
    refuse_cuts(impl_, formatted("ZeRO stage {} cuts parameters among the ranks", settings.zero.stage));
  open_tiers(impl_, document_);
  if (impl_.state_tier || impl_.param_tier) refuse_cuts(impl_, "offload updates them a page at a time");
  impl_.activations.operators = activation::CheapOperators(
      settings.activation_checkpointing.recompute, config::where(document_, "/gannet/activation_checkpointing/recompute"));
  if (!impl_.activations.operators.empty()) activation::install_saved_tensor_hooks();
  if (!options_.inference) impl_.group_rules = GroupRules::read(settings, document_, options_);
  impl_.passes.autocast_dtype = autocast_dtype(impl_);
}

void Construction::collect(std::shared_ptr<torch::nn::Module> module) {
  impl_.module = std::move(module);
  impl_.activations.configuration = configuration_of(impl_, document_);
  if (!options_.inference) impl_.activations.saved = saved_store_of(impl_, document_);
  impl_.module_audit = std::make_unique<ModuleAudit>(impl_, *impl_.module, impl_.store);
  collect_parameters(impl_, options_);
}

void Construction::check() {
  if (options_.inference) {
    refuse_trained_elsewhere(impl_);
  } else {
    refuse_shared_memory(*impl_.module, impl_.store);
    refuse_experts_states(impl_);
    open_optimizer(impl_, document_);
  }
  if (is_trained(impl_)) {
    EngineBase::Impl& impl = impl_;
    impl.ownership = std::make_unique<Ownership>(
        impl.engine_id, [&impl] { return impl.progress.is_whole() && (impl.progress.has_begun_step() || impl.passes.earlier); });
    impl.ownership->check(impl.store.owned(), impl.module->parameters());
  }
  create_scheduler(impl_, document_, options_);
  check_fit(impl_, impl_.store, impl_.groups);
}

void Construction::agree() {
  const bool may_split = impl_.tensor_group || impl_.expert_group;
  if (may_split) impl_.splits = agree_on_splits(impl_, *impl_.module);  // an error about splits is the most specific
  impl_.ties = Ties::agree(impl_);
  agree_on_model(impl_, impl_.store);
  if (!may_split) impl_.splits = agree_on_splits(impl_, *impl_.module);
  if (impl_.torch_optimizer) agree_on_program_optimizer(impl_, impl_.torch_optimizer->text());
  agree_on_plugins(impl_);
  agree_on_descriptions(impl_, impl_.groups, impl_.schedule);
}

void Construction::take_over_module() {
  move_module(impl_);
  if (impl_.ties) impl_.ties->adopt(impl_.store);
  if (!options_.inference) create_states(impl_);
  start_average(impl_);
#ifdef __GLIBC__
  ::malloc_trim(0);  // the parameters that the program created are freed: return their memory to the system
#endif
  if (impl_.reducer) impl_.schedule.apply();
  if (impl_.ownership) impl_.ownership->claim(impl_.store.owned());
  impl_.activations.layers = recomputing_of(impl_);
  if (impl_.ownership) {
    std::vector<at::Tensor> trained;
    for (const auto& [name, tensor] : impl_.store.owned()) trained.push_back(tensor);
    impl_.activations.layers->own(trained);
  }
}

void Construction::start() {
  if (impl_.reducer) {
    impl_.agreement = std::make_unique<Agreement>(impl_.number_in_group, impl_.groups);
    if (impl_.tensor_group) impl_.compare_fingerprints("at initialize");  // the program itself must make replicas equal
    impl_.module_audit->record();
    impl_.module_audit->compared(impl_.module_audit->frozen());
  }
  start_reporting(impl_);
  if (impl_.reducer && impl_.group_rules.are_by_name() && impl_.is_first())
    log_info(formatted("parameter groups:{}", group_table(impl_.groups)));
  if (impl_.settings().flops_profiler.enabled && impl_.is_first()) impl_.profiling = std::make_unique<Profiling>(impl_);
}

EngineBase::EngineBase(std::shared_ptr<torch::nn::Module> module, const EngineOptions& options) try
    : impl_(std::make_unique<Impl>()) {
  static std::atomic<uint32_t> engines{0};
  impl_->engine_id = engines++;
  if (!module)
    throw Error(ErrorCode::kArgument, "initialize was given no model (a null pointer)",
                "make it first: std::make_shared<Model>()");
  Construction construction(*impl_, options);
  construction.open();
  if (options.build_stage) options.build_stage(*impl_);
  construction.read_rules();
  construction.collect(std::move(module));
  construction.check();
  construction.agree();
  // From here on, the module is changed. All checks that can refuse it are done.
  construction.take_over_module();
  construction.start();
} catch (...) {
  rethrow_as_ours("initialize");
}

}  // namespace gannet
