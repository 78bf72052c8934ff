// The engine's calls between construction (initialize.cpp) and the step at a boundary (step.cpp).
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gannet/data.h>
#include <gannet/engine.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#include <cmath>

#include "base/check.h"
#include "control/world.h"
#include "engine/impl.h"
#include "tensor/dtype.h"
#include "tensor/torch_errors.h"

namespace gannet {

EngineBase::~EngineBase() = default;

void EngineBase::rethrow_from_forward() { rethrow_as_ours("forward"); }

void EngineBase::begin_forward() {
  Impl& impl = *impl_;
  const bool trains = impl.reducer && impl.training && at::GradMode::is_enabled();  // an evaluation is no part of a step
  if (impl.trace && trains) impl.trace->at(impl.global_steps + 1, impl.micro_steps % gradient_accumulation_steps());
  if (impl.telling) impl.telling->begin_forward(trains);
  impl.forward_timed.emplace(impl.timers, trains ? Timed::kForward : Timed::kEvaluate);
  impl.begin_forward();
  if (impl.profiling) impl.profiling->begin_forward();
}

void EngineBase::finish_forward() {
  if (impl_->profiling) impl_->profiling->finish_forward();
  if (impl_->gatherer) impl_->gatherer->meet("the end of forward");
}

void EngineBase::end_forward() {
  Impl& impl = *impl_;
  impl.forward_timed.reset();
  // An evaluation, under NoGradGuard or after eval(), is no part of a step.
  if (impl.reducer && impl.training && at::GradMode::is_enabled() && impl.phase == Phase::kIdle) impl.phase = Phase::kForwarded;
  impl.end_forward();
  if (impl.profiling) impl.profiling->end_forward();
}

void EngineBase::backward(const at::Tensor& loss, const BackwardOptions& options) try {
  Impl& impl = *impl_;
  if (impl.profiling) impl.profiling->pause();
  if (!impl.reducer)
    throw Error(ErrorCode::kOrder, "backward() was called, but there is no optimizer",
                "add an \"optimizer\" block to the config, or pass one to initialize");
  if (impl.is_half_loaded)
    throw Error(ErrorCode::kOrder,
                "backward() was called after a checkpoint failed in the middle of being loaded: the parameters are partly its, "
                "partly those from before",
                "load another checkpoint first");
  if (impl.phase == Phase::kIdle)
    throw Error(
        ErrorCode::kOrder, impl.training ? "backward() was called before forward()" : "backward() was called in evaluation mode",
        impl.training ? "call engine->forward(...) (not the module's own) for each micro-batch" : "call engine->train() first");
  if (!loss.defined() || loss.numel() != 1)
    throw Error(ErrorCode::kArgument,
                "backward() takes a loss of one element, found " +
                    (loss.defined() ? std::to_string(loss.numel()) + " elements" : std::string("an undefined tensor")),
                "reduce it first, for example with .mean()");
  if (!loss.requires_grad())
    throw Error(ErrorCode::kArgument, "the loss given to backward() does not depend on any parameter that requires a gradient",
                "compute it from engine->forward(...), outside NoGradGuard, and do not detach it");

  const bool is_boundary = impl.is_boundary();
  if (impl.device.is_cpu()) {  // elsewhere, reading the loss would make the program wait for the device
    impl.loss_was_finite = std::isfinite(loss.item<double>());
    if (!impl.loss_was_finite && !impl.skips_non_finite) {
      impl.phase = Phase::kIdle;
      impl.forget_gradients();
      const std::string what =
          "the loss of step " + std::to_string(impl.global_steps + 1) + " is " + std::to_string(loss.item<double>());
      if (impl.telling) impl.telling->error(impl.global_steps + 1, what);
      throw Error(ErrorCode::kNonFinite, what + "; no parameter was changed by this step",
                  "look for a too large learning rate, a division by zero in the loss, or a bad sample");
    }
  }
  double seed = impl.scaler.scale();
  if (options.scale_wrt_gas) seed /= static_cast<double>(impl.settings().accumulation_steps);

  if (impl.telling)
    impl.telling->add_loss(loss, options.scale_wrt_gas ? 1.0 : static_cast<double>(impl.settings().accumulation_steps));
  Timers::Scope timed(impl.timers, Timed::kBackward);
  if (impl.keeps_user_grads)
    for (auto& range : impl.ranges)
      for (auto& parameter : range.parameters) parameter.tensor.mutable_grad().reset();
  impl.keeps_user_grads = options.create_graph;
  if (impl.shards_gradients() && !options.allreduce_gradients)
    throw Error(ErrorCode::kUnsupported,
                "backward() with allreduce_gradients = false at ZeRO stage " + std::to_string(impl.settings().zero.stage) +
                    ": a rank keeps no gradients that are not its own, so they are averaged at once",
                "use stage 1 or 0");
  const bool reduce =
      (is_boundary || impl.shards_gradients()) && options.allreduce_gradients && !impl.no_sync && impl.comm->size() > 1;
  std::optional<control::Watch::Call> call;
  if (reduce || impl.residency)
    call.emplace(impl.process_group->world()->watch(), *impl.comm, "backward", impl.global_steps + 1, "",
                 control::Watch::Call::kAtOnce);
  impl.reducer->begin_backward({reduce, options.create_graph});
  if (impl.residency) impl.residency->begin(zero::Residency::Stretch::kBackward);
  // The scale and the division by the accumulation steps enter as backward's seed: no pass over the loss or the gradients.
  const at::Tensor seeds = at::full(loss.sizes(), seed, loss.options().requires_grad(false));
  if (impl.profiling) impl.profiling->begin_backward();
  loss.backward(seeds, options.retain_graph || options.create_graph, options.create_graph);
  if (impl.profiling) impl.profiling->end_backward();
  if (impl.residency) {
    impl.residency->end();
    impl.gatherer->meet("the end of backward");
  }
  impl.reducer->end_backward();
  impl.phase = Phase::kBackwarded;
} catch (...) {
  rethrow_as_ours("backward");
}

void EngineBase::allreduce_gradients() {
  Impl& impl = *impl_;
  if (!impl.reducer || impl.comm->size() == 1 || impl.reducer->is_reduced()) return;
  auto call = impl.process_group->world()->enter(*impl.comm, "allreduce_gradients", impl.global_steps + 1, "",
                                                 control::Watch::Call::kAtOnce);
  Timers::Scope timed(impl.timers, Timed::kReduce);
  impl.reducer->begin_backward({true, false});
  impl.reducer->end_backward();
}

bool EngineBase::is_gradient_accumulation_boundary() const { return impl_->is_boundary(); }
void EngineBase::set_gradient_accumulation_boundary(std::optional<bool> is_boundary) { impl_->forced_boundary = is_boundary; }

void EngineBase::zero_grad() {
  if (impl_->reducer) impl_->forget_gradients();
  if (impl_->telling) impl_->telling->forget_step();
  impl_->phase = Phase::kIdle;
  if (impl_->residency) impl_->residency->end();
  impl_->disarm();
}

void EngineBase::train(bool on) {
  impl_->module->train(on);
  impl_->training = on;
}

std::vector<double> EngineBase::get_lr() const { return impl_->rates(); }

void EngineBase::set_lr(double lr) {
  for (auto& group : impl_->groups)
    if (double* current = group.find("lr")) *current = lr;
}

std::optional<double> EngineBase::get_global_grad_norm() const { return impl_->grad_norm; }
double EngineBase::loss_scale() const { return impl_->scaler.scale(); }
bool EngineBase::was_step_applied() const { return impl_->last_step_applied; }
int64_t EngineBase::global_steps() const { return impl_->global_steps; }
int64_t EngineBase::skipped_steps() const { return impl_->skipped_steps; }
int64_t EngineBase::micro_steps() const { return impl_->micro_steps; }
int64_t EngineBase::global_samples() const { return impl_->global_samples; }

int64_t EngineBase::train_batch_size() const { return impl_->settings().train_batch_size; }
int64_t EngineBase::train_micro_batch_size_per_gpu() const { return impl_->settings().micro_batch_size; }
int64_t EngineBase::gradient_accumulation_steps() const { return impl_->settings().accumulation_steps; }

void EngineBase::set_train_batch_size(int64_t samples) {
  auto& settings = impl_->resolved.settings;
  const int64_t unit = settings.micro_batch_size * impl_->comm->size();
  if (samples <= 0 || samples % unit != 0)
    throw Error(ErrorCode::kArgument,
                "set_train_batch_size(" + std::to_string(samples) + "): not a multiple of micro-batch times ranks, " +
                    std::to_string(settings.micro_batch_size) + " * " + std::to_string(impl_->comm->size()),
                "give a positive multiple of " + std::to_string(unit));
  settings.train_batch_size = samples;
  settings.accumulation_steps = samples / unit;
}

void EngineBase::set_train_micro_batch_size(int64_t samples) {
  if (samples <= 0)
    throw Error(ErrorCode::kArgument, "set_train_micro_batch_size(" + std::to_string(samples) + "): must be positive");
  auto& settings = impl_->resolved.settings;
  settings.micro_batch_size = samples;
  settings.train_batch_size = samples * settings.accumulation_steps * impl_->comm->size();
}

EngineBase::NoSync::NoSync(EngineBase& engine) : engine_(engine) {
  if (engine.impl_->no_sync)
    throw Error(ErrorCode::kOrder, "no_sync() was entered twice", "leave the first scope before the second");
  if (engine.impl_->shards_gradients())
    throw Error(ErrorCode::kUnsupported,
                "no_sync() at ZeRO stage " + std::to_string(engine.impl_->settings().zero.stage) +
                    ": a rank keeps no gradients that are not its own, so every backward averages them",
                "use stage 1 or 0");
  engine.impl_->no_sync = true;
}
EngineBase::NoSync::~NoSync() { engine_.impl_->no_sync = false; }

at::Device EngineBase::device() const { return impl_->device; }
uint32_t EngineBase::rank() const { return impl_->comm->rank(); }
uint32_t EngineBase::world_size() const { return impl_->comm->size(); }
const std::shared_ptr<ProcessGroup>& EngineBase::process_group() const { return impl_->process_group; }

double EngineBase::mean(double value) {
  if (impl_->comm->size() == 1) return value;
  auto call = impl_->process_group->world()->enter(*impl_->comm, "mean", impl_->global_steps);
  impl_->comm->all_reduce(&value, 1, GANNET_FLOAT64).wait();
  return value / impl_->comm->size();
}

std::vector<std::pair<std::string, at::Tensor>> EngineBase::fp32_parameters() {
  at::NoGradGuard no_grad;
  std::optional<control::Watch::Call> call;
  std::vector<std::pair<std::string, at::Tensor>> values;
  for (const auto& range : impl_->ranges) {
    if (!range.is_sharded() || !(range.has_master_copy() || range.shards_parameters())) {
      for (const auto& parameter : range.parameters) values.emplace_back(parameter.name, range.whole_master(parameter));
      continue;
    }
    if (!call)
      call.emplace(impl_->process_group->world()->watch(), *impl_->comm, "fp32_parameters", impl_->global_steps, "",
                   control::Watch::Call::kTogether);
    at::Tensor whole = at::empty({range.numel}, at::TensorOptions().dtype(range.master_dtype).device(impl_->device));
    for (size_t b = 0; b < range.shards.size(); ++b) {
      const auto& bucket = range.layout.buckets[b];
      const at::Tensor mine = range.master_of(range.shards[b]).to(impl_->device);
      impl_->comm
          ->all_gather(mine.const_data_ptr(), whole.narrow(0, bucket.offset, bucket.numel).data_ptr(),
                       static_cast<uint64_t>(mine.numel()), to_dtype(range.master_dtype))
          .wait();
    }
    for (const auto& parameter : range.parameters) values.emplace_back(parameter.name, range.slice(whole, parameter));
  }
  return values;
}

void EngineBase::refresh_masters() { impl_->refresh_masters(); }

LoaderOptions EngineBase::loader_options() const {
  const auto& settings = impl_->settings();
  LoaderOptions options;
  options.batch_size = settings.micro_batch_size;
  options.shuffle = settings.shuffle;
  options.seed = settings.seed;
  options.drop_last = settings.dataloader_drop_last;
  options.rank = impl_->comm->rank();
  options.world_size = impl_->comm->size();
  options.workers = settings.data_workers;
  options.micro_batches_multiple = settings.leftover_micro_batches == "drop" ? settings.accumulation_steps : 1;
  options.device = impl_->device;
  return options;
}

void EngineBase::announce_leftovers(int64_t micro_batches, int64_t leftover) const {
  const int64_t per_step = impl_->settings().accumulation_steps;
  if (impl_->comm->rank() != 0 || per_step == 1) return;
  const std::string option = " (gannet.leftover_micro_batches: carry or drop)";
  if (leftover > 0)
    log_info("each epoch leaves out its last " + std::to_string(leftover) +
             " micro-batches, so that it has a whole number of steps of " + std::to_string(per_step) + option);
  else if (micro_batches > 0 && micro_batches % per_step != 0)
    log_info("an epoch has " + std::to_string(micro_batches) + " micro-batches, not a multiple of " + std::to_string(per_step) +
             ": the gradients of the last " + std::to_string(micro_batches % per_step) +
             " are carried into the next epoch's first step" + option);
}

// ---- Handles ------------------------------------------------------------------------------------------------------------

const std::string& OptimizerHandle::Group::name() const { return static_cast<gannet::Group*>(group_)->name; }
std::vector<std::string> OptimizerHandle::Group::hyperparameters() const {
  return static_cast<gannet::Group*>(group_)->hyper_names;
}
const std::vector<at::Tensor>& OptimizerHandle::Group::parameters() const {
  return static_cast<gannet::Group*>(group_)->parameters;
}

namespace {
double& hyperparameter(void* group, const std::string& name) {
  auto& found = *static_cast<gannet::Group*>(group);
  if (double* value = found.find(name)) return *value;
  std::string names;
  for (auto& known : found.hyper_names) names += (names.empty() ? "" : ", ") + known;
  throw Error(ErrorCode::kArgument, "parameter group '" + found.name + "' has no hyperparameter '" + name + "'",
              "it has " + names);
}
}  // namespace

double OptimizerHandle::Group::get(const std::string& name) const { return hyperparameter(group_, name); }
void OptimizerHandle::Group::set(const std::string& name, double value) { hyperparameter(group_, name) = value; }

size_t OptimizerHandle::group_count() const { return static_cast<EngineBase::Impl*>(engine_)->groups.size(); }
OptimizerHandle::Group OptimizerHandle::group(size_t index) {
  auto& groups = static_cast<EngineBase::Impl*>(engine_)->groups;
  if (index >= groups.size())
    throw Error(ErrorCode::kArgument,
                "there is no parameter group " + std::to_string(index) + ", there are " + std::to_string(groups.size()));
  return Group(&groups[index]);
}
std::string OptimizerHandle::type() const {
  const auto& impl = *static_cast<EngineBase::Impl*>(engine_);
  if (impl.user_optimizer) return "user";
  return impl.groups.empty() || !impl.groups[0].optimizer ? "none" : impl.groups[0].optimizer->plugin().name();
}

void SchedulerHandle::step() { static_cast<EngineBase::Impl*>(engine_)->advance_schedule(); }
void SchedulerHandle::step_to(int64_t step) {
  auto& impl = *static_cast<EngineBase::Impl*>(engine_);
  impl.schedule_position = step;
  impl.apply_schedule();
}
int64_t SchedulerHandle::position() const { return static_cast<EngineBase::Impl*>(engine_)->schedule_position; }
std::vector<double> SchedulerHandle::get_last_lr() const {
  std::vector<double> rates;
  for (auto& group : static_cast<EngineBase::Impl*>(engine_)->groups)
    if (const double* lr = group.find("lr")) rates.push_back(*lr);
  return rates;
}
std::string SchedulerHandle::type() const {
  const auto& impl = *static_cast<EngineBase::Impl*>(engine_);
  if (impl.user_schedule.function) return "user";
  return impl.scheduler ? impl.scheduler->plugin().name() : "none";
}

std::shared_ptr<OptimizerHandle> EngineBase::optimizer_handle() {
  return std::shared_ptr<OptimizerHandle>(new OptimizerHandle(impl_.get()));
}
std::shared_ptr<SchedulerHandle> EngineBase::scheduler_handle() {
  return std::shared_ptr<SchedulerHandle>(new SchedulerHandle(impl_.get()));
}

}  // namespace gannet
