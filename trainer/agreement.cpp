// The ranks' exchanges between updates: callbacks' requests, signals, micro-batch counts, sums.
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace gannet {

double TrainerBase::over_ranks(double local) { return engine_->mean(local) * engine_->world_size(); }

std::vector<std::string> TrainerBase::gather_from_all(const std::string& bytes) const {
  ProcessGroup& all = *engine_->process_group();
  return all.size() == engine_->world_size() ? engine_->gather(bytes) : all.gather(bytes);
}

std::vector<double> TrainerBase::sum_over_all(std::vector<double> values) const {
  ProcessGroup& all = *engine_->process_group();
  if (all.size() == engine_->world_size()) {
    values = engine_->mean(std::move(values));
    for (double& value : values) value *= engine_->world_size();
    return values;
  }
  std::vector<double> sums(values.size()), one(values.size());
  for (const std::string& bytes : all.gather({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)})) {
    std::memcpy(one.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += one[i];
  }
  return sums;
}

// A callback's request on one rank applies to all ranks, since the actions are collective. The same
// holds for a signal to one rank.
void TrainerBase::agree_on_control() {
  bool signal = arguments_.stop && arguments_.stop->requested();
  if (engine_->process_group()->size() > 1) {
    bool* const flags[] = {&control_.should_log,        &control_.should_evaluate,      &control_.should_save,
                           &control_.should_epoch_stop, &control_.should_training_stop, &signal};
    std::vector<double> asked;
    for (const bool* flag : flags) asked.push_back(*flag ? 1 : 0);
    asked = sum_over_all(std::move(asked));
    for (size_t i = 0; i < asked.size(); ++i) *flags[i] = asked[i] > 0;
  }
  is_stop_agreed_ = control_.should_training_stop;
  is_signal_agreed_ = signal;
}

// Returns the number of micro-batches in this update: the maximum over the ranks, since ranks that
// have fewer repeat one with weight 0. Returns 0 at the epoch's end, if a stop is requested, or if
// a rank has none to repeat. Sets `total` to the number of items in all micro-batches of all ranks.
int64_t TrainerBase::agree_on_micro_batches(const std::vector<double>& items, double& total) {
  total = 0;
  for (const double count : items) total += count;
  const int64_t mine = static_cast<int64_t>(items.size());
  const int64_t ranks = engine_->world_size();
  if (ranks == 1) return mine;
  const bool wants_stop = control_.should_training_stop;  // set by the program between two updates
  const auto means = engine_->mean({total, static_cast<double>(mine), has_micro_batch() ? 0.0 : 1.0, wants_stop ? 1.0 : 0.0});
  total = means[0] * static_cast<double>(ranks);
  if (means[3] > 0) {
    is_stop_agreed_ = control_.should_training_stop = true;
    return 0;
  }
  const int64_t all = std::llround(means[1] * static_cast<double>(ranks));
  if (all == 0 || all == ranks * arguments_.gradient_accumulation_steps) return all / ranks;
  if (means[2] > 0) {
    if (is_first())
      log_warning("an epoch of train_dataset ends after update " + std::to_string(state_.global_step) +
                  ": a rank has no micro-batch left, and none that it could repeat; what the others have left of it is not used");
    return 0;
  }
  int64_t most = 0;
  for (const std::string& text : engine_->gather(std::to_string(mine))) most = std::max<int64_t>(most, std::stoll(text));
  return most;
}

}  // namespace gannet
