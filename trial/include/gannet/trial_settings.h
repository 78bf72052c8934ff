/// The settings of a trial: its length, periods and outputs. run_trial reads them from the command
/// line.
#pragma once

#include <gannet/hparams.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

class StopSignals;

/// A length such as "100", "100 batches" or "3 epochs". A batch is an update:
/// gradient_accumulation_steps calls of train_batch.
struct TrialLength {
  enum class Unit { kBatches, kEpochs };
  int64_t count = 0;  ///< 0: not given
  Unit unit = Unit::kBatches;

  static TrialLength batches(int64_t count) { return {count, Unit::kBatches}; }
  static TrialLength epochs(int64_t count) { return {count, Unit::kEpochs}; }
  /// Throws Error(kArgument), with a text that starts with `name`, if `text` is not a length above
  /// 0.
  static TrialLength parse(const std::string& text, const std::string& name);
  explicit operator bool() const { return count > 0; }
  std::string to_string() const;
};

struct TrialSettings {
  Hparams hparams = {};
  std::vector<std::string> given = {};  ///< names of hyperparameters on the command line, which the trial must read
  TrialLength max_length = {};          ///< required
  TrialLength validation_period = {};   ///< default: an epoch, if its length is known; the trial always ends with a validation
  TrialLength checkpoint_period = {};   ///< default: only at each best validation and at the end
  int64_t report_period = 100;          ///< batches between two reports of the training metrics
  int64_t epoch_length = 0;             ///< batches that count as an epoch; 0: those of the loader; a stream then has no epochs
  std::string output_dir = "trial_output";
  std::string metric = {};        ///< validation metric that selects the best checkpoint; default: "loss" or "validation_loss"
  bool smaller_is_better = true;  ///< whether smaller values of that metric are better
  int64_t seed = 0;  ///< for LibTorch's generators: `seed` in the constructor, from then on seed + 1 + data parallel rank
  int64_t keep_checkpoints = 0;            ///< number of newest checkpoints to keep, plus the best one; 0: all
  bool allow_changed_hparams = false;      ///< whether to resume even if hyperparameters differ from those of the checkpoint
  std::shared_ptr<StopSignals> stop = {};  ///< after a signal the trial saves, and ends with kStoppedExitCode
  /// Throws an Error(kArgument) that lists every value out of range.
  void check() const;
};

/// The options of a program in addition to its Trial.
struct TrialOptions {
  /// The defaults of the hyperparameters. If there are any, another name or a value of a different type
  /// is an error. Without defaults, the file likewise limits the command line.
  Dict hparams = {};
  TrialSettings settings = {};  ///< defaults of the settings
  bool handle_signals = true;   ///< whether to handle stop signals (creates a StopSignals)
};

/// Reads the command line; --help prints the arguments and ends the process. Throws gannet::Error.
TrialSettings parse_trial_settings(int& argc, char** argv, const TrialOptions& options = {});

/// How a trial ended.
struct TrialResult {
  int64_t batches = 0;  ///< batches trained, including those before a resume
  std::optional<double> best_metric;
  int64_t best_batch = 0;    ///< the best validation came after this batch
  bool stopped = false;      ///< whether it was stopped by a signal, after a checkpoint
  bool ended_early = false;  ///< whether set_stop_requested ended it
  int64_t resumed_at = 0;    ///< batches of the checkpoint it resumed from; 0: a fresh start
};

}  // namespace gannet
