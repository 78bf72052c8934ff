/// Makes an engine, an optimizer, a loader and a scheduler from a model and a config.
///
///   auto [engine, optimizer, loader, scheduler] =
///       gannet::initialize(model, {.config = "ds_config.json", .training_data = dataset});
///
/// `model` is a std::shared_ptr to any torch::nn::Module, or a ModuleHolder. `loader` is null
/// without training_data.
#pragma once

#include <gannet/config.h>
#include <gannet/data.h>
#include <gannet/engine.h>
#include <gannet/mesh.h>
#include <gannet/mpu.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gannet {

struct RankContext;

struct EngineOptions {
  Config config;
  Dict overwrite;
  std::vector<ParameterGroup> model_parameters;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  LrSchedule lr_scheduler;
  std::shared_ptr<ProcessGroup> process_group;
  bool inference = false;
  std::optional<MeshShape> mesh = {};
  std::shared_ptr<const Mpu> mpu = {};
  /// For a module that is built once the mesh is known, as a pipeline's is (gannet/pipe.h): the
  /// number of stages that the program requests, and the function that builds this rank's stage.
  std::optional<uint32_t> pipe_stages = {};
  std::function<void(const RankContext&)> build_stage = {};
};

template <class Batch = Example>
struct InitializeOptions {
  Config config;        ///< a path, JSON text, or a Dict
  Dict overwrite = {};  ///< merged over the config
  Dataset<Batch> training_data = {};
  Collate<Batch> collate_fn = {};
  std::vector<ParameterGroup> model_parameters = {};  ///< default: one group of all parameters that require a gradient
  /// The program's own optimizer instead of the config's. torch::optim::Adam, AdamW, SGD, Adagrad
  /// and RMSprop (not classes derived from them) work at every ZeRO stage and with offload. Any
  /// other class works only at stage 0, on unsharded fp32 masters (docs/program.md).
  std::shared_ptr<torch::optim::Optimizer> optimizer = {};
  LrSchedule lr_scheduler = {};                      ///< a callable step -> lr instead of the config's scheduler
  std::shared_ptr<ProcessGroup> process_group = {};  ///< the ranks that train together; default: all
  /// Makes an engine that only runs forward, without masters, gradients and states. At ZeRO stage 3
  /// it can run a model larger than one device's memory. The config's optimizer and scheduler are
  /// ignored, which is logged.
  bool inference = false;
  /// Layout of the ranks over the axes pipe, data and tensor; default: the config's gannet.mesh, or
  /// without it all ranks on the data axis.
  std::optional<MeshShape> mesh = {};
  /// The layout as described by the program's own groups, like DeepSpeed's `mpu` argument. The
  /// object is used only during initialize.
  std::shared_ptr<const Mpu> mpu = {};
};

template <class Model, class Batch>
struct Initialized {
  std::shared_ptr<Engine<Model>> engine;
  std::shared_ptr<OptimizerHandle> optimizer;
  std::shared_ptr<DataLoader<Batch>> loader;
  std::shared_ptr<SchedulerHandle> scheduler;
};

namespace detail {
template <class T>
std::shared_ptr<T> module_pointer(std::shared_ptr<T> model) {
  return model;
}
template <class Holder>
  requires requires(const Holder& holder) {
    typename Holder::ContainedType;
    holder.ptr();
  }
auto module_pointer(const Holder& holder) {
  return holder.ptr();
}
}  // namespace detail

template <class Batch = Example, class Model>
auto initialize(Model model, InitializeOptions<Batch> options) {
  auto module = detail::module_pointer(std::move(model));
  using Module = typename decltype(module)::element_type;
  Initialized<Module, Batch> made;
  made.engine = std::make_shared<Engine<Module>>(
      module, EngineOptions{std::move(options.config), std::move(options.overwrite), std::move(options.model_parameters),
                            std::move(options.optimizer), std::move(options.lr_scheduler), std::move(options.process_group),
                            options.inference, std::move(options.mesh), std::move(options.mpu)});
  made.optimizer = made.engine->optimizer_handle();
  made.scheduler = made.engine->scheduler_handle();
  if (options.training_data) {
    made.loader =
        make_loader<Batch>(std::move(options.training_data), std::move(options.collate_fn), made.engine->loader_options());
    made.engine->add_loader("training_data", made.loader);
    if constexpr (requires { made.engine->set_dataloader(made.loader); }) made.engine->set_dataloader(made.loader);
    if (made.engine->leftover_micro_batches() == "step") made.engine->end_steps_with_epochs_of(made.loader);
    if (made.loader->sized()) made.engine->announce_leftovers(made.loader->size(), made.loader->leftover_micro_batches());
  }
  return made;
}

/// The flags that DeepSpeed's add_config_arguments adds to a program. They are removed from the
/// command line, so that any parser can read the rest:
///   --deepspeed --deepspeed_config FILE    or    --deepspeed FILE    or    --deepspeed_config FILE
///   --set optimizer.params.lr=3e-4         overrides a value of the config; may be repeated
///   --estimate    or    --estimate=RANKS   print the memory that training takes (gannet/estimate.h) instead of training
///
///   auto arguments = gannet::take_config_arguments(argc, argv);
///   gannet::initialize(model, {.config = arguments.config, .overwrite = arguments.overrides});
struct ConfigArguments {
  bool enabled = false;              ///< --deepspeed or a config was passed
  std::string config;                ///< the path of the config file, or ""
  Dict overrides;                    ///< from --set
  std::optional<uint32_t> estimate;  ///< --estimate: the number of ranks; 0: the number in this run
  /// The config with its overrides.
  Config whole_config() const;
  /// Text about these flags for a program's --help.
  static const char* help();
};
ConfigArguments take_config_arguments(int& argc, char** argv);

}  // namespace gannet
