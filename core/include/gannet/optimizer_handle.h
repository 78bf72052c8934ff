/// Handles by which the program accesses an engine's optimizer and schedule.
///
///   auto [engine, optimizer, loader, scheduler] = gannet::initialize(model, {.config = "ds_config.json"});
///   optimizer->group(0).set("lr", 1e-4);
///   scheduler->step(engine->mean(validation_loss));    // for a schedule that follows a metric
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

/// Returns the learning rate of each update: lr(step) is the rate for update number step + 1.
using LrFunction = std::function<double(int64_t step)>;

/// Replaces the learning rate of the config's scheduler.
struct LrSchedule {
  LrSchedule() = default;
  template <class Function>
    requires std::is_invocable_r_v<double, Function, int64_t>
  LrSchedule(Function function) : function(std::move(function)) {}

  LrFunction function;   ///< replaces the config's scheduler
  bool by_hand = false;  ///< the schedule advances when the program calls scheduler->step(), not after each update
};

/// A handle's reference to its engine. Every call on a handle throws Error(kOrder) once its engine
/// has been destroyed.
using EngineReference = std::weak_ptr<void>;

/// Gives the program access to the optimizer's groups and their hyperparameters, which it may read
/// and set between steps.
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

/// Gives the program access to the schedule. With LrSchedule::by_hand the program calls step().
class SchedulerHandle {
 public:
  void step();  ///< advances by one and sets the groups' learning rates
  /// For a schedule that follows a metric measured by the program (ReduceLROnPlateau) and therefore
  /// does not advance by itself. Every rank passes the same number. Throws Error(kArgument) if the
  /// number is not finite, or if the schedule follows no metric.
  ///   scheduler->step(engine->mean(validation_loss));
  void step(double metric);
  void step_to(int64_t step);  ///< sets the position; Error(kUnsupported) for a schedule that depends on earlier values
  int64_t position() const;
  std::vector<double> get_last_lr() const;
  std::string type() const;  ///< the plugin's name, "user", or "none"

 private:
  friend class EngineBase;
  explicit SchedulerHandle(EngineReference engine) : engine_(std::move(engine)) {}
  EngineReference engine_;
};

}  // namespace gannet
