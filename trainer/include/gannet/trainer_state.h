/// The state of a Trainer's run, and the requests that callbacks may make. Names follow Hugging
/// Face.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

/// The numbers of an evaluation or a log, by name.
using Metrics = std::map<std::string, double>;

/// The state as stored in trainer_state.json. The same on every rank, except for is_*_process_zero.
struct TrainerState {
  double epoch = 0;         ///< passes so far, including the current one as a fraction
  int64_t global_step = 0;  ///< updates so far, skipped ones included
  int64_t max_steps = 0;
  int64_t num_train_epochs = 0;
  int64_t logging_steps = 0, eval_steps = 0, save_steps = 0;  ///< in updates; fractions are resolved
  int64_t train_batch_size = 0;                               ///< size of one rank's micro-batch
  std::vector<Dict> log_history;                              ///< without timings, so that a resumed run has the same history
  std::optional<double> best_metric;
  std::optional<int64_t> best_global_step;
  std::string best_model_checkpoint;  ///< "" until a best evaluation has a checkpoint
  bool is_world_process_zero = true, is_local_process_zero = true;

  Dict to_dict() const;
  static TrainerState from_dict(const Dict& values);
};

/// The actions to take next. The Trainer sets the first three according to its strategies, and
/// should_training_stop at the last update; a callback may change any of them.
struct TrainerControl {
  bool should_log = false, should_evaluate = false, should_save = false;
  bool should_epoch_stop = false;     ///< the epoch ends after this update
  bool should_training_stop = false;  ///< training ends after this update
};

}  // namespace gannet
