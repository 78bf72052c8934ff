// Restores the non-tensor state of a load: the counters, the loss scale, the scalars of the
// optimizer and the schedule, the random number generators, and the program's states.
#include <torch/optim/optimizer.h>
#include <torch/serialize/input-archive.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "base/format.h"
#include "engine/checkpoint/loading.h"
#include "engine/checkpoint/state_entries.h"
#include "engine/ties.h"
#include "state/saved_numbers.h"

namespace gannet {

void RankLoad::restore() {
  impl_.progress.global_steps = count("global_steps");
  impl_.progress.skipped_steps = count("skipped_steps");
  impl_.progress.consecutive_skips = count("consecutive_skips");
  impl_.progress.global_samples = count("global_samples");
  impl_.progress.caught_errors = 0;
  restore_accumulation();
  restore_loss_scale();
  if (options_.load_lr_scheduler_states) restore_schedule();  // before the rates, which the schedule sets
  if (wants_states()) {
    restore_optimizer();
  } else {
    impl_.progress.applied_steps = 0;  // the optimizer starts over
    for (Group& group : impl_.groups) group.lag = 0;
    for (auto& range : impl_.store.ranges())
      for (auto& parameter : range.parameters) parameter.lag = 0;
  }
  if (!options_.load_lr_scheduler_states || !rates_are_restored_) impl_.schedule.apply();
  if (impl_.torch_optimizer) {
    impl_.torch_optimizer->exchange_numbers(impl_.groups);
    impl_.torch_optimizer->show_states(impl_.store, impl_.progress.applied_steps);
  }
  restore_random_numbers();
  restore_program_states();
}

void RankLoad::restore_schedule() {
  impl_.schedule.position = value("schedule_position").as_int();
  std::vector<double>& state = impl_.schedule.state;
  const Value* const saved = found_.document().find("schedule_state");  // older checkpoints have none
  const size_t count = saved ? saved->as_list().size() : 0;
  if (count == state.size()) {
    for (size_t i = 0; i < count; ++i) state[i] = saved->as_list()[i].as_number();
    return;
  }
  std::fill(state.begin(), state.end(), 0);
  note(formatted("the state of the schedule is reset: the checkpoint has {} numbers of it, and this schedule keeps {}", count,
                 state.size()));
}

void RankLoad::restore_optimizer() {
  impl_.progress.applied_steps = value("applied_steps").as_int();
  // Older checkpoints have no seed: optimizers drew no random numbers then.
  if (const Value* const seed = found_.document().find("optimizer_seed"); seed && seed->is_int())
    impl_.updater.run_seed = seed->as_int();
  std::vector<const Value*> lags = {found_.document().find("missed_updates")};  // older checkpoints have none
  for (uint32_t rank = 0; rank < found_.world_size(); ++rank)                   // stages own different parameters
    lags.push_back(found_.rank_document(rank).find("missed_updates"));
  std::erase(lags, nullptr);
  for (auto& range : impl_.store.ranges())
    for (auto& parameter : range.parameters) {
      parameter.lag = 0;
      for (const Value* of_rank : lags)
        if (const Value* const lag = of_rank->as_dict().find(saved_name(impl_, parameter.name))) parameter.lag = lag->as_int();
    }
  rates_are_restored_ = restore_hyperparameters();
  if (user_optimizer_.defined()) restore_user_optimizer();
}

void RankLoad::restore_user_optimizer() {
  std::istringstream stream(std::string(static_cast<const char*>(user_optimizer_.const_data_ptr()), user_optimizer_.nbytes()));
  torch::serialize::InputArchive archive;
  archive.load_from(stream);
  std::vector<double> rates;  // the next step's rates, if a schedule has set them; the archive has the last step's
  for (Group& group : impl_.groups) rates.push_back(*group.find(GANNET_ROLE_LEARNING_RATE));
  impl_.torch_optimizer ? load_torch_optimizer(archive) : load_user_optimizer(archive);
  if (rates_are_restored_ && impl_.schedule.exists())
    for (size_t g = 0; g < rates.size(); ++g) *impl_.groups[g].find(GANNET_ROLE_LEARNING_RATE) = rates[g];
}

void RankLoad::load_user_optimizer(torch::serialize::InputArchive& archive) {
  impl_.user_optimizer->get().load(archive);
  impl_.user_optimizer->take_rates(impl_.groups);
}

void RankLoad::load_torch_optimizer(torch::serialize::InputArchive& archive) {
  torch::optim::Optimizer& optimizer = impl_.torch_optimizer->get();
  optimizer.state().clear();  // the archive has no entry for a parameter without updates
  try {
    optimizer.load(archive);
  } catch (const c10::Error&) {  // its message is about LibTorch's archive
    throw Error(ErrorCode::kMismatch,
                formatted("checkpoint {} has the states of another optimizer of the program than {}", found_.path(),
                          impl_.optimizer_name()),
                "give the optimizer that it was saved with, or load_optimizer_states = false");
  }
  impl_.torch_optimizer->take_all(impl_.store, impl_.groups, impl_.progress.applied_steps);
}

// A scale belongs to a precision: 1, the scale of fp32 and bf16, would lose fp16's small gradients.
void RankLoad::restore_loss_scale() {
  if (!impl_.skip_policy.is_fp16 || !impl_.scaler.is_dynamic()) return;
  const std::string precision = precision_of(found_);
  if (precision != "fp16") {
    impl_.scaler.restart();
    note(formatted("the loss scale begins at the config's {}: the checkpoint was saved in {}, which has none",
                   Value(impl_.scaler.scale()).to_json(), precision.empty() ? "another precision" : precision));
    return;
  }
  const Dict& saved = dict("loss_scaler");
  impl_.scaler.set_state({saved.find("scale")->as_number(), saved.find("iteration")->as_int(),
                          saved.find("last_overflow_iteration")->as_int(), saved.find("hysteresis_left")->as_int()});
  if (const Value* dynamic = saved.find("dynamic"); dynamic && !dynamic->as_bool())
    note(formatted("the loss scale was fixed at {} in the checkpoint: it begins there, and moves",
                   Value(impl_.scaler.scale()).to_json()));
}

void RankLoad::restore_accumulation() {
  const int64_t accumulation = impl_.settings().accumulation_steps, saved = value("accumulation_steps").as_int();
  impl_.progress.micro_steps = accumulation == saved ? value("micro_steps").as_int() : impl_.progress.global_steps * accumulation;
  const Value* const in_step = found_.document().find("micro_in_step");  // older checkpoints have none
  impl_.progress.micro_in_step = accumulation != saved ? 0
                                 : in_step             ? in_step->as_int()
                                                       : impl_.progress.micro_steps % accumulation;
  if (impl_.reporter && impl_.progress.micro_in_step > 0) impl_.reporter->miss_losses();
  if (holds_sums_) impl_.reducer->adopt_sums();
  for (auto& [range, parameter, gradient] : gradients_) {
    parameter->held = range->flat_grad(*parameter);
    parameter->held.copy_(gradient.view(parameter->shape));
  }
}

// A hyperparameter that this run's schedule sets comes from the schedule and not from the
// checkpoint: the saved run may have had a different schedule, length or rate. If the schedule is
// the same, the checkpoint's value stays, since the program may have set it afterwards. `then`: the
// schedule's value at the save; null in an older checkpoint.
double RankLoad::scheduled_now(const std::string& name, const std::string& group, double due, double saved, const Value* then) {
  const bool is_same = then ? then->as_number() == due : impl_.schedule.is_by_hand();
  if (is_same || saved == due) return saved;
  const bool is_rounding = !then && std::abs(saved - due) <= 1e-9 * std::abs(due);
  if (options_.load_lr_scheduler_states && !is_rounding)
    note(formatted("{} of {} is {}, as this run's schedule has it at update {}; the checkpoint's was {}", name, group,
                   Value(due).to_json(), impl_.schedule.position, Value(saved).to_json()));
  return due;
}

// Returns false if some group has no counterpart in the checkpoint: the hyperparameters of that
// group are those of the config and the schedule.
bool RankLoad::restore_hyperparameters() {
  const List& saved = value("groups").as_list();
  const Schedule::Values scheduled = impl_.schedule.now(impl_.groups);
  for (size_t g = 0; g < impl_.groups.size(); ++g) {
    Group& group = impl_.groups[g];
    if (!groups_.saved[g]) {  // its update count is the highest among its parameters
      group.lag = impl_.progress.applied_steps;
      for (const TrainedParameter* parameter : impl_.store.parameters_of(g)) group.lag = std::min(group.lag, parameter->lag);
      continue;
    }
    const Value& same = saved[*groups_.saved[g]];
    const Value* const lag = same.as_dict().find("missed_updates");  // older checkpoints have none
    group.lag = lag ? lag->as_int() : 0;
    for (const auto& [name, number] : same.at("hyper").as_dict().entries()) {
      double* current = group.find(name);
      if (!current) continue;
      const uint32_t role = group.hyper_roles[static_cast<size_t>(current - group.hyper.data())];
      if (const auto due = scheduled_value(scheduled, g, role)) {
        const Value* const then = same.as_dict().find("scheduled");  // older checkpoints have none
        *current = scheduled_now(name, group.name, *due, number.as_number(), then ? then->as_dict().find(name) : nullptr);
        continue;
      }
      if (*current != number.as_number())
        note(formatted("{} of {} is the checkpoint's {}, not the config's {} (optimizer->group({}).set changes it)", name,
                       group.name, number.to_json(), Value(*current).to_json(), g));
      *current = number.as_number();
    }
  }
  return groups_.is_whole;
}

void RankLoad::restore_random_numbers() {
  for (auto& [name, generator] : generators(impl_)) {
    const auto state = random_.find(name);
    if (state == random_.end() || !state->second.defined()) {
      note(formatted("no random numbers of rank {} ({}) were saved: its generator keeps its current state",
                     rank_name(ranks_.mesh, ranks_.rank), name));
      continue;
    }
    at::Generator own = generator;
    const std::lock_guard lock(own.mutex());
    own.set_state(state->second);
  }
  checkpointing::rng_tracker().set_states(streams_);
  if (is_same_mesh_ || receipt_.buffers == 0) return;
  note(formatted("buffers are those of rank {}: {} ranks saved their own, and {} resume", names_.source(), found_.world_size(),
                 ranks_.size));
}

void RankLoad::restore_program_states() {
  auto states_of = [&](uint32_t rank) -> const Dict& {
    const Value* states = found_.rank_document(rank).find("states");
    if (!states) throw Error(ErrorCode::kCorrupt, formatted("{}: rank {}'s document has no 'states'", found_.path(), rank));
    return states->as_dict();
  };
  // Collects the states of all ranks along the data axis: a data cursor is derived from the cursors
  // of all ranks that had different data.
  const std::vector<uint32_t> ranks = found_.mesh().group(kDataAxis, source_rank(found_.mesh(), ranks_.mesh, ranks_.rank));
  for (auto& state : impl_.program_states) {
    std::vector<Value> saved;
    for (uint32_t rank : ranks)
      if (const Value* found = states_of(rank).find(state.name)) saved.push_back(*found);
    if (saved.size() == ranks.size())
      state.load(saved);
    else
      note(formatted("the checkpoint has no state '{}': it stays as it is", state.name));
  }
  for (const auto& [name, unused] : states_of(0).entries())
    if (std::none_of(impl_.program_states.begin(), impl_.program_states.end(),
                     [&](const auto& state) { return state.name == name; }))
      note(formatted("state '{}' of the checkpoint is not used: nothing of that name was added to the engine", name));
}

}  // namespace gannet
