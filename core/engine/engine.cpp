// The engine calls that have no file of their own: batch sizes and boundaries, learning rates,
// counters, no_sync(), means over ranks, full parameters.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <gannet/data.h>
#include <gannet/engine.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/format.h"
#include "control/world.h"
#include "engine/backward.h"
#include "engine/checkpoint/rank_states.h"
#include "engine/construction.h"
#include "engine/earlier_pass.h"
#include "engine/evaluation.h"
#include "engine/gate.h"
#include "engine/impl.h"
#include "engine/optimizer_reduction.h"
#include "engine/report.h"
#include "engine/ties.h"
#include "tensor/dtype.h"
#include "tensor/torch_errors.h"

namespace gannet {

EngineBase::~EngineBase() = default;

EngineBase::Impl::Impl() = default;

EngineBase::Impl::~Impl() {
  log_evaluation_weights(*this);
  self.reset();  // from here on handles and guards see that the engine is gone
  if (user_optimizer) user_optimizer->give_back(store.ranges());
  if (torch_optimizer) torch_optimizer->give_back(store);
}

void EngineBase::Impl::audit() {
  if (const auto failed = std::exchange(guards.failed, std::nullopt)) throw *failed;
  if (!guards.writing.empty()) return;  // the writes of one rank under a guard reach the others when the guard ends
  refuse_writes_after_local_steps(*this);
  refuse_writes_while_perturbed(*this);
  module_audit->look(*reducer, [this](const ParameterStore::NamedParameters& added) { join_parameters(*this, added); });
  if (torch_optimizer) torch_optimizer->follow(store, groups, progress.applied_steps);
}

namespace {

// Describes this rank's values for the error about ranks that wrote different values: "'first.bias'
// (bits 0f3a...)".
std::string written_text(const EngineBase::Impl& impl, uint64_t hash) {
  if (hash == 0) return "nothing";
  std::string text = impl.module_audit->written_names();
  if (impl.torch_optimizer && impl.torch_optimizer->taken_hash() != 0)
    text += text.empty() ? "its optimizer" : " and its optimizer";
  return formatted("{} ({})", text, control::bits_text(hash));
}

}  // namespace

control::Facts& EngineBase::Impl::agreed(bool is_boundary) {
  const uint64_t written = module_audit->written_hash() + (torch_optimizer ? torch_optimizer->taken_hash() : 0);
  const std::function<std::string()> names = [&] { return written_text(*this, written); };
  return agreement->facts({progress, settings(), is_boundary, scaler.scale(), written, names, schedule, *activations.layers},
                          store, *reducer, groups);
}

void EngineBase::Impl::compare_fingerprints(const char* where) {
  const auto frozen = module_audit->frozen();
  const std::string torn = differing_parameters(*this, store, groups, frozen, ties.get(), where, progress.global_steps,
                                                [this](const Range& range) { return ranks_differ(*this, range.group); });
  module_audit->compared(frozen);
  if (torn.empty()) return;
  progress.tear(torn);
  throw Error(
      ErrorCode::kMismatch, torn,
      formatted(
          "parameters that every rank has whole must be the same on all (what is to differ is a buffer): see what was written on "
          "one rank alone, and whether its memory is sound; load_checkpoint() makes them equal again{}",
          tensor_group ? "; what ranks along the axis tensor have different parts of is declared (gannet/split.h)" : ""));
}

bool EngineBase::is_gradient_accumulation_boundary() const { return impl_->is_boundary(); }
void EngineBase::set_gradient_accumulation_boundary(std::optional<bool> is_boundary) {
  impl_->progress.forced_boundary = is_boundary;
}

void EngineBase::zero_grad() {
  Impl& impl = *impl_;
  const Entered entered(impl, Call::kZeroGrad);
  if (impl.progress.micro_in_step > 0 && impl.settings().accumulation_steps > 1)
    impl.module_audit->say_once(
        formatted("zero_grad() dropped {} of {} micro-batches of step {}: the next one is the first of its step (the engine "
                  "clears gradients itself after each step)",
                  impl.progress.micro_in_step, impl.settings().accumulation_steps, impl.progress.global_steps + 1));
  if (impl.reducer) {
    forget_gradients(impl);
    drop_user_gradients(impl);
  }
  if (impl.reporter) impl.reporter->forget_step();
  impl.passes.running.reset();
  impl.passes.scale_scope.reset();
  impl.progress.drop_gradients();
  impl.store.end_pass();
  impl.store.disarm();
  impl.start_next_step();
}

std::vector<double> EngineBase::get_lr() const { return rates(impl_->groups); }

void EngineBase::set_lr(double lr) {
  const Entered entered(*impl_, Call::kSetLr);
  if (!std::isfinite(lr)) throw Error(ErrorCode::kArgument, formatted("set_lr({}): a learning rate is a finite number", lr));
  bool is_set = impl_->groups.empty();  // an engine for inference
  for (const auto& group : impl_->groups)
    for (size_t h = 0; h < group.hyper_names.size(); ++h)
      if (group.hyper_roles[h] == GANNET_ROLE_LEARNING_RATE) check_hyperparameter(group, group.hyper_names[h], lr);
  for (auto& group : impl_->groups)
    if (double* current = group.find(GANNET_ROLE_LEARNING_RATE)) {
      *current = lr;
      is_set = true;
    }
  if (!is_set)
    throw Error(ErrorCode::kUnsupported,
                formatted("set_lr({}): the optimizer has no parameter in the role of a learning rate", lr),
                "set its own parameters in the config");
}

std::optional<double> EngineBase::get_global_grad_norm() const { return impl_->progress.grad_norm; }
double EngineBase::loss_scale() const { return impl_->scaler.scale(); }
bool EngineBase::was_step_applied() const { return impl_->progress.last_step_applied; }
int64_t EngineBase::global_steps() const { return impl_->progress.global_steps; }
int64_t EngineBase::skipped_steps() const { return impl_->progress.skipped_steps; }
int64_t EngineBase::micro_steps() const { return impl_->progress.micro_steps; }
int64_t EngineBase::global_samples() const { return impl_->progress.global_samples; }

int64_t EngineBase::train_batch_size() const { return impl_->settings().train_batch_size; }
int64_t EngineBase::train_micro_batch_size_per_gpu() const { return impl_->settings().micro_batch_size; }
int64_t EngineBase::gradient_accumulation_steps() const { return impl_->settings().accumulation_steps; }

void EngineBase::set_train_batch_size(int64_t samples) {
  const Entered entered(*impl_, Call::kSetTrainBatchSize);
  auto& settings = impl_->resolved.settings;
  const int64_t unit = settings.micro_batch_size * impl_->comm->size();
  if (samples <= 0 || samples % unit != 0)
    throw Error(ErrorCode::kArgument,
                formatted("set_train_batch_size({}): not a multiple of micro-batch times ranks, {} * {}", samples,
                          settings.micro_batch_size, impl_->comm->size()),
                formatted("give a positive multiple of {}", unit));
  impl_->progress.accumulation_from_next = samples / unit;
  const bool has_begun = impl_->progress.has_begun_step() || impl_->passes.earlier;
  if (!has_begun) return impl_->start_next_step();
  impl_->module_audit->say_once(formatted("set_train_batch_size({}) takes effect with step {}: step {} has begun", samples,
                                          impl_->progress.global_steps + 2, impl_->progress.global_steps + 1));
}

void EngineBase::Impl::start_next_step() {
  passes.loss_was_finite = true;
  if (passes.earlier) return;  // the current step has more passes, with the same number of micro-batches
  const auto accumulation = progress.take_accumulation();
  if (!accumulation) return;
  auto& settings = resolved.settings;
  settings.accumulation_steps = *accumulation;
  settings.train_batch_size = settings.micro_batch_size * settings.accumulation_steps * comm->size();
}

void EngineBase::set_train_micro_batch_size(int64_t samples) {
  const Entered entered(*impl_, Call::kSetTrainMicroBatchSize);
  if (samples <= 0) throw Error(ErrorCode::kArgument, formatted("set_train_micro_batch_size({}): must be positive", samples));
  auto& settings = impl_->resolved.settings;
  settings.micro_batch_size = samples;
  settings.train_batch_size = samples * settings.accumulation_steps * impl_->comm->size();
}

EngineBase::NoSync::NoSync(EngineBase& engine) : engine_(engine) {
  const Entered entered(*engine.impl_, Call::kNoSync);
  if (engine.impl_->passes.no_sync)
    throw Error(ErrorCode::kOrder, "no_sync() was entered twice", "leave the first scope before the second");
  if (engine.impl_->store.shards_gradients())
    throw Error(
        ErrorCode::kUnsupported,
        formatted("no_sync() at ZeRO stage {}: a rank keeps no gradients that are not its own, so every backward averages them",
                  engine.impl_->settings().zero.stage),
        "use stage 1 or 0");
  engine.impl_->passes.no_sync = true;
}
EngineBase::NoSync::~NoSync() { engine_.impl_->passes.no_sync = false; }

at::Device EngineBase::device() const { return impl_->device; }
uint32_t EngineBase::rank() const { return impl_->comm->rank(); }
uint32_t EngineBase::world_size() const { return impl_->comm->size(); }
const std::shared_ptr<ProcessGroup>& EngineBase::process_group() const { return impl_->process_group; }

double EngineBase::mean(double value) { return mean(std::vector<double>{value})[0]; }

std::vector<double> EngineBase::mean(std::vector<double> values) {
  const Entered entered(*impl_, Call::kMean);
  if (impl_->comm->size() == 1) return values;
  auto call = impl_->process_group->world()->enter(*impl_->world_group, "mean", impl_->progress.global_steps);
  impl_->host_group->all_reduce(values.data(), values.size());
  for (double& value : values) value /= impl_->comm->size();
  return values;
}

std::vector<std::string> EngineBase::gather(const std::string& bytes) {
  const Entered entered(*impl_, Call::kGather);
  if (impl_->comm->size() == 1) return {bytes};
  auto call = impl_->process_group->world()->enter(*impl_->world_group, "gather", impl_->progress.global_steps);
  return impl_->host_group->gather_texts(bytes);
}

std::vector<std::pair<std::string, at::Tensor>> EngineBase::fp32_parameters() try {
  const Entered entered(*impl_, Call::kFp32Parameters);
  at::NoGradGuard no_grad;
  if (impl_->reducer && impl_->progress.is_whole()) impl_->audit();
  std::optional<control::Watch::Call> call;
  auto values = impl_->store.whole_masters([&] {
    call.emplace(impl_->process_group->world()->watch(), *impl_->world_group, "fp32_parameters", impl_->progress.global_steps, "",
                 control::Watch::Call::kTogether);
  });
  size_t at = 0;  // after a local step every rank returns the weights to use, not its own
  for (const Range& range : impl_->store.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p, ++at)
      if (const at::Tensor weights = weights_to_use(*impl_, range, p); weights.defined())
        values[at].second = Range::shaped(weights.flatten(), range.parameters[p]);
  return values;
} catch (...) {
  rethrow_as_ours("fp32_parameters");
}

bool EngineBase::parameters_differ() const {
  for (size_t g = 0; g < impl_->groups.size(); ++g)
    if (ranks_differ(*impl_, g)) return true;
  return false;
}

void EngineBase::refresh_masters() try {
  const Entered entered(*impl_, Call::kRefreshMasters);
  if (impl_->reducer) impl_->audit();
} catch (...) {
  rethrow_as_ours("refresh_masters");
}

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

std::shared_ptr<OptimizerHandle> EngineBase::optimizer_handle() {
  return std::shared_ptr<OptimizerHandle>(new OptimizerHandle(impl_->self));
}
std::shared_ptr<SchedulerHandle> EngineBase::scheduler_handle() {
  return std::shared_ptr<SchedulerHandle>(new SchedulerHandle(impl_->self));
}

}  // namespace gannet
