// Plans a run: derives its number of updates from the arguments and the number of samples.
#include <gannet/error.h>
#include <gannet/trainer_base.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace gannet {

int64_t TrainerBase::updates_of(int64_t micro_batches) const {
  if (arguments_.max_steps > 0) return arguments_.max_steps;
  const int64_t accumulation = arguments_.gradient_accumulation_steps;
  const int64_t of_epoch = std::max<int64_t>(1, (micro_batches + accumulation - 1) / accumulation);
  return static_cast<int64_t>(std::ceil(arguments_.num_train_epochs * static_cast<double>(of_epoch)));
}

// Called before there is an engine or a loader, to resolve "auto" in the config's scheduler.
std::optional<int64_t> TrainerBase::planned_updates(int64_t ranks, bool drops_leftovers) {
  if (arguments_.max_steps > 0) return arguments_.max_steps;
  const int64_t multiple = drops_leftovers ? arguments_.gradient_accumulation_steps : 1;
  const auto samples = train_samples();
  if (!samples) {
    LoaderOptions options = train_loader_options({});
    options.world_size = ranks;
    options.micro_batches_multiple = multiple;
    const auto micro_batches = own_micro_batches(options);
    return micro_batches ? std::optional(updates_of(*micro_batches)) : std::nullopt;
  }
  const auto share = [&](int64_t whole, int64_t parts) {
    return arguments_.dataloader_drop_last ? whole / parts : (whole + parts - 1) / parts;
  };
  const int64_t micro_batches = share(share(*samples, ranks), micro_batch_size_);
  return updates_of(micro_batches - micro_batches % multiple);
}

int64_t TrainerBase::samples_in_update() const {
  return micro_batch_size_ * arguments_.gradient_accumulation_steps * engine_->world_size();
}

LoaderOptions TrainerBase::train_loader_options(LoaderOptions options) const {
  options.batch_size = micro_batch_size_;
  options.shuffle = arguments_.train_sampling_strategy == "random";
  options.seed = arguments_.data_seed.value_or(arguments_.seed);
  options.drop_last = arguments_.dataloader_drop_last;
  options.workers = arguments_.dataloader_num_workers;
  if (arguments_.dataloader_prefetch_factor) options.prefetch = *arguments_.dataloader_prefetch_factor;
  return options;
}

// Sets the run's numbers of updates by Hugging Face's rules: the last update of an epoch may have
// fewer micro-batches.
void TrainerBase::plan_run(const TrainSize& size) {
  const int64_t accumulation = arguments_.gradient_accumulation_steps;
  steps_in_epoch_ = size.micro_batches;
  if (!steps_in_epoch_) {
    if (arguments_.max_steps <= 0)
      throw Error(ErrorCode::kArgument,
                  "max_steps is not given, and train_dataset is a stream, whose epochs have no known length", "give max_steps");
    state_.max_steps = arguments_.max_steps;
    state_.num_train_epochs = std::numeric_limits<int64_t>::max();
    updates_per_epoch_ = arguments_.max_steps;
  } else {
    updates_per_epoch_ = std::max<int64_t>(1, (*steps_in_epoch_ + accumulation - 1) / accumulation);
    state_.max_steps = updates_of(*steps_in_epoch_);
    state_.num_train_epochs = arguments_.max_steps > 0 ? (state_.max_steps + updates_per_epoch_ - 1) / updates_per_epoch_
                                                       : static_cast<int64_t>(std::ceil(arguments_.num_train_epochs));
  }
  const auto whole = [&](double every) {
    return static_cast<int64_t>(every < 1 ? std::ceil(static_cast<double>(state_.max_steps) * every) : every);
  };
  state_.logging_steps = whole(arguments_.logging_steps);
  state_.eval_steps = whole(arguments_.eval_steps.value_or(arguments_.logging_steps));
  state_.save_steps = whole(arguments_.save_steps);
  state_.train_batch_size = micro_batch_size_;
  check_steps_of_best_model();
}

}  // namespace gannet
