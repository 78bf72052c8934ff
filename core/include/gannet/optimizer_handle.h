/// An engine's optimizer and schedule as the program holds them.
///
///   auto [engine, optimizer, loader, scheduler] = gannet::initialize(model, {.config = "ds_config.json"});
///   optimizer->group(0).set("lr", 1e-4);
///   scheduler->step(engine->mean(validation_loss));    // of a schedule that follows a metric
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gannet {

/// A learning rate per update: lr(step) for update number step + 1.
using LrFunction = std::function<double(int64_t step)>;

/// How the learning rate is chosen when the config's scheduler is not what is wanted.
struct LrSchedule {
  LrSchedule() = default;
  template <class Function>
    requires std::is_invocable_r_v<double, Function, int64_t>
  LrSchedule(Function function) : function(std::move(function)) {}

  LrFunction function;   ///< replaces the config's scheduler
  bool by_hand = false;  ///< the schedule advances when the program calls scheduler->step(), not after each update
  /// The function is a factor of each group's own learning rate, the one that its optimizer was made with, as that of
  /// torch.optim.lr_scheduler.LambdaLR: groups with rates of their own keep their ratio.
  ///   LrSchedule schedule([](int64_t step) { return std::pow(0.99, step); });
  ///   schedule.scales = true;
  bool scales = false;
};

/// What a handle holds of its engine. Every call of a handle whose engine has ended throws Error(kOrder).
using EngineReference = std::weak_ptr<void>;

/// The optimizer as the program sees it: its groups and their hyperparameters, readable and writable between steps.
///   optimizer->group(0).set("lr", 1e-4);
class OptimizerHandle {
 public:
  class Group {
   public:
    const std::string& name() const;
    std::vector<std::string> hyperparameters() const;  ///< "lr", "betas[0]", "weight_decay" ...
    double get(const std::string& hyperparameter) const;
    void set(const std::string& hyperparameter, double value);
    const std::vector<at::Tensor>& parameters() const;

   private:
    friend class OptimizerHandle;
    Group(EngineReference engine, size_t index) : engine_(std::move(engine)), index_(index) {}
    EngineReference engine_;
    size_t index_;
  };
  size_t group_count() const;
  Group group(size_t index);
  std::string type() const;  ///< the plugin's name, or "user" for a torch::optim::Optimizer of the program

 private:
  friend class EngineBase;
  explicit OptimizerHandle(EngineReference engine) : engine_(std::move(engine)) {}
  EngineReference engine_;
};

/// The schedule as the program sees it. With LrSchedule::by_hand the program calls step().
class SchedulerHandle {
 public:
  void step();  ///< advances by one and sets the groups' learning rates
  /// Of a schedule that follows what the program measures (ReduceLROnPlateau), which does not advance by itself. Every rank gives
  /// the same number; Error(kArgument) where it is not finite, and from a schedule that follows none.
  ///   scheduler->step(engine->mean(validation_loss));
  void step(double metric);
  void step_to(int64_t step);  ///< sets the position; Error(kUnsupported) of a schedule that depends on what came before
  int64_t position() const;
  std::vector<double> get_last_lr() const;
  std::string type() const;  ///< the plugin's name, "user", or "none"

 private:
  friend class EngineBase;
  explicit SchedulerHandle(EngineReference engine) : engine_(std::move(engine)) {}
  EngineReference engine_;
};

}  // namespace gannet
