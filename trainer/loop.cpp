// The loop of the training: one call of advance() is one update with its events, in Hugging Face's
// order.
//
//   start      engine, loader, plan of the run, resume; on_train_begin, the evaluation before the first update
//   advance    on_epoch_begin; on_step_begin; micro-batches with on_substep_end between them; on_pre_optimizer_step, the update,
//              on_optimizer_step; on_step_end; log, evaluate, save; at the epoch's end on_epoch_end and the same three again
//   finish     the last log, the best model, on_train_end
#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <cmath>
#include <limits>
#include <utility>

#include "progress_bar.h"

namespace gannet {

int64_t TrainerStep::global_step() const { return trainer_->state_.global_step; }
double TrainerStep::epoch() const { return trainer_->state_.epoch; }
std::optional<double> TrainerStep::grad_norm() const { return trainer_->engine_->get_global_grad_norm(); }
double TrainerStep::loss() const { return trainer_->over_ranks(local_loss_.item<double>()); }
void TrainerStep::stop() { trainer_->control_.should_training_stop = true; }

// Whether the schedule depends only on the number of the update, and not on the history of the run.
static bool is_of_position(const SchedulerHandle& schedule) {
  return schedule.type() != "none" && schedule.type() != "ReduceLROnPlateau";
}

void TrainerBase::start() {
  if (is_inference())
    throw Error(ErrorCode::kArgument, "train() of a Trainer that was made with .inference = true, whose engine has no optimizer",
                "make another Trainer without it to train");
  control_ = {};
  output_ = {};
  is_stop_agreed_ = is_signal_agreed_ = false;
  checkpoints_.clear();
  is_in_epoch_ = is_resumed_ = is_epoch_end_due_ = false;
  epoch_ = micro_in_epoch_ = last_logged_ = 0;
  total_loss_ = 0;
  losses_since_log_ = losses_ = 0;
  has_warned_of_labels_ = false;
  last_saved_ = -1;
  state_ = {};
  ensure_engine();
  loss_since_log_ = at::zeros({}, at::TensorOptions(at::kDouble).device(engine_->device()));
  step_.trainer_ = this;
  const bool starts_over = !resume() && std::exchange(has_trained_, true);
  check_places_of_checkpoints();
  has_trained_ = true;
  // The schedule learns the number of updates only now. A second train() restarts it, unless it
  // follows a metric; then it keeps its state.
  if (const auto schedule = engine_->scheduler_handle(); schedule->type() == "user" || (starts_over && is_of_position(*schedule)))
    schedule->step_to(starts_over ? 0 : schedule->position());
  if (scheduled_updates_ && *scheduled_updates_ != state_.max_steps && is_first())
    log_warning("the learning rate was scheduled for " + std::to_string(*scheduled_updates_) + " updates, and the run has " +
                std::to_string(state_.max_steps) + ": give max_steps");
  state_.is_world_process_zero = is_first();
  state_.is_local_process_zero = engine_->process_group()->local_rank() == 0;
  begun_at_step_ = state_.global_step;
  began_ = std::chrono::steady_clock::now();
  bar_ = std::make_unique<ProgressBar>(is_first() && !arguments_.disable_tqdm.value_or(!ProgressBar::is_terminal()),
                                       state_.max_steps);
  engine_->train();
  list_events_without_effect();
  is_begun_ = true;
  fire(TrainerEventKind::kTrainBegin);
  if (arguments_.eval_on_start && state_.global_step == 0) evaluation_loop("eval", false);
  if (state_.global_step >= state_.max_steps) {
    control_.should_training_stop = true;
    if (is_first())
      log_warning("nothing is left to train: the checkpoint is of update " + std::to_string(state_.global_step) +
                  ", and this run ends with update " + std::to_string(state_.max_steps) +
                  " (max_steps, or num_train_epochs of the data)");
  }
  agree_on_control();
}

void TrainerBase::warn_of_missing_updates() const {
  if (state_.global_step >= state_.max_steps || !is_first()) return;
  log_warning("training ends after update " + std::to_string(state_.global_step) + " of " + std::to_string(state_.max_steps) +
              ": train_dataset gave fewer samples than that takes");
}

TrainOutput TrainerBase::train() {
  try {
    start();
    while (advance()) {
    }
    finish();
  } catch (const Error& error) {
    is_begun_ = false;
    report_failure("train()");
    if (arguments_.auto_find_batch_size && error.code() == ErrorCode::kOutOfMemory) throw error_after_probes(error);
    throw;
  } catch (...) {
    is_begun_ = false;
    report_failure("train()");
    throw;
  }
  return output_;
}

bool TrainerBase::advance() {
  if (output_.stopped) return false;
  if (is_epoch_end_due_) end_epoch();  // the checkpoint was saved after the last update of this epoch
  while (true) {
    if (!is_in_epoch_ || engine_->world_size() == 1 || is_pipeline()) agree_on_control();
    if (is_stop_agreed_) return false;
    if (epoch_ >= state_.num_train_epochs) {
      warn_of_missing_updates();
      return false;
    }
    if (!is_in_epoch_) {
      control_.should_epoch_stop = false;
      labels_in_epoch_ = 0;
      is_epoch_seen_from_start_ = !is_resumed_;
      fire(TrainerEventKind::kEpochBegin);
      begin_epoch(is_resumed_ ? std::nullopt : std::optional(epoch_));
      is_in_epoch_ = true;
      is_resumed_ = false;
    }
    const auto items = read_micro_batches(arguments_.gradient_accumulation_steps);
    double total = 0;
    const int64_t count = agree_on_micro_batches(items, total);
    if (is_stop_agreed_) return false;
    if (count == 0) {  // the epoch is shorter than announced, or a stream ended
      if (micro_in_epoch_ == 0) {
        if (state_.global_step == 0)
          throw Error(ErrorCode::kArgument,
                      engine_->world_size() == 1 ? "an epoch of train_dataset gave no micro-batch"
                                                 : "an epoch of train_dataset gave no micro-batch on one rank at least",
                      "give samples to train on");
        is_stop_agreed_ = control_.should_training_stop = true;  // another pass over the stream would give nothing
        warn_of_missing_updates();
      }
      end_epoch();
      continue;
    }
    control_.should_log = control_.should_evaluate = control_.should_save = false;
    fire(TrainerEventKind::kStepBegin);

    const auto rates = engine_->get_lr();
    step_.learning_rate_ = last_learning_rate_ = rates.empty() ? 0 : rates[0];
    at::Tensor local = take_update(items, count, total);
    count_labels_of_update(total, count);
    if (total == 0) local.fill_(std::numeric_limits<double>::quiet_NaN());  // a mean over no labels is NaN
    step_.local_loss_ = local;
    // With logging_nan_inf_filter, the mean so far replaces a non-finite loss, which would hide the
    // other losses.
    if (total > 0) {
      const at::Tensor filler = loss_since_log_ / static_cast<double>(1 + losses_since_log_);
      loss_since_log_ =
          loss_since_log_ + (arguments_.logging_nan_inf_filter ? at::where(at::isfinite(local), local, filler) : local);
      ++losses_since_log_;
    }

    micro_in_epoch_ += count;
    ++state_.global_step;
    const double in_epoch =
        static_cast<double>(steps_in_epoch_.value_or(arguments_.max_steps * arguments_.gradient_accumulation_steps));
    state_.epoch = static_cast<double>(epoch_) + static_cast<double>(micro_in_epoch_) / in_epoch;
    bar_->show(state_.global_step);
    flow_step_end();
    fire(TrainerEventKind::kStepEnd);
    agree_on_control();
    is_epoch_end_due_ =
        (steps_in_epoch_ && micro_in_epoch_ >= *steps_in_epoch_) || control_.should_epoch_stop || control_.should_training_stop;
    log_evaluate_save();
    if (is_epoch_end_due_ || control_.should_epoch_stop || control_.should_training_stop) end_epoch();

    if (is_signal_agreed_) {
      if (last_saved_ != state_.global_step) save_checkpoint(true);
      output_.stopped = true;
    }
    return true;
  }
}

void TrainerBase::end_epoch() {
  const bool is_cut = control_.should_epoch_stop || control_.should_training_stop;
  if (is_in_epoch_) check_labels_of_epoch(steps_in_epoch_ ? micro_in_epoch_ >= *steps_in_epoch_ : !is_cut);
  is_epoch_end_due_ = is_in_epoch_ = false;
  control_.should_log = control_.should_evaluate = control_.should_save = false;
  ++epoch_;
  micro_in_epoch_ = 0;
  flow_epoch_end();
  fire(TrainerEventKind::kEpochEnd);
  agree_on_control();
  log_evaluate_save();
}

void TrainerBase::finish() {
  if (!is_begun_) return;
  is_begun_ = false;
  bar_->finish();
  engine_->wait_for_checkpoint();
  total_loss_ += over_ranks(loss_since_log_.item<double>());
  losses_ += std::exchange(losses_since_log_, 0);
  loss_since_log_.zero_();
  output_.global_step = state_.global_step;
  output_.training_loss = losses_ == 0 && state_.global_step > 0
                              ? std::numeric_limits<double>::quiet_NaN()
                              : total_loss_ / static_cast<double>(std::max<int64_t>(1, losses_));
  if (output_.stopped) {
    log_info("training stopped by a signal after update " + std::to_string(state_.global_step) +
             "; resume_from_checkpoint=last "
             "resumes it");
    if (exit_when_stopped_) exit_after_stop();
    return;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  const double steps = static_cast<double>(state_.global_step - begun_at_step_);
  const double samples = steps * static_cast<double>(samples_in_update());
  const Dict times{{"train_runtime", seconds},
                   {"train_samples_per_second", seconds > 0 ? samples / seconds : 0.0},
                   {"train_steps_per_second", seconds > 0 ? steps / seconds : 0.0}};
  output_.metrics = {{"train_loss", output_.training_loss}, {"train_runtime", seconds}, {"epoch", state_.epoch}};
  log(Dict{{"train_loss", output_.training_loss}}, times);
  if (arguments_.load_best_model_at_end) load_best_model();
  fire(TrainerEventKind::kTrainEnd);
}

}  // namespace gannet
