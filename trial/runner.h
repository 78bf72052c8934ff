// The loop of a trial. After each batch come the reports, validations and checkpoints, in this
// order.
#pragma once

#include <gannet/trial_base.h>
#include <gannet/trial_context.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "metric_sums.h"
#include "records.h"

namespace gannet {

class TrialRunner {
 public:
  // `type` is the name of the trial's class, which checkpoints record.
  TrialRunner(TrialBase& trial, TrialContext& context, std::string type);
  TrialResult run();

 private:
  // runner.cpp
  void check_engines() const;
  void open_loaders();
  void compare_settings();
  void check_loader(const TrialBase::OpenedLoader& opened) const;
  void plan();
  void check_hparams_were_read() const;
  void train_one_batch();
  bool is_due(const TrialLength& period) const;
  // After a batch: sets whether any rank got a signal, and whether any rank asked to end.
  void agree(bool& is_signalled, bool& is_end_asked);

  int64_t calls_of(int64_t batch) const;        // train_batch calls in the batch
  int64_t epochs_after(int64_t batches) const;  // whole epochs
  std::optional<double> epochs_shown() const;
  bool knows_epochs() const { return settings_.epoch_length > 0 || micro_batches_.has_value(); }
  int64_t batches_in(const TrialLength& length) const;

  // reporting.cpp
  void report_training();
  void validate();
  TrialMetrics validation_metrics();
  void reduce(bool is_training, const std::string& what, TrialMetrics& into);
  void judge(const TrialMetrics& metrics);
  void forget_best_of_another(const std::string& metric);

  // saving.cpp
  void add_states();
  void begin_or_resume();
  void check_identity(const Dict& former) const;
  std::vector<int64_t> common_checkpoints() const;  // newest first
  void load(int64_t batches);
  void save();
  void remove_old_checkpoints() const;
  void write_summary() const;
  Dict identity() const;
  std::string folder_of(const std::string& engine) const;

  EngineBase& engine() const { return *context_.engines_.front().engine; }
  bool is_first() const { return context_.world_->rank() == 0; }

  TrialBase& trial_;
  TrialContext& context_;
  const TrialSettings& settings_;
  std::string type_;

  std::shared_ptr<ResumableLoader> loader_;
  std::optional<int64_t> micro_batches_;  // micro-batches of an epoch, on each rank; nullopt for a stream
  bool has_validation_ = false;
  bool ends_steps_with_epochs_ = false;  // whether leftover_micro_batches is "step"
  TrialLength validation_period_;
  int64_t total_ = 0;  // in batches
  std::optional<trials::TrialRecords> records_;

  int64_t batches_ = 0;  // batches trained on so far
  int64_t reported_at_ = 0, validated_at_ = -1, saved_at_ = -1;
  trials::MetricSums training_;
  // Reducer results, in JSON, as they were when this rank ran out of validation data; its later
  // batches are repeats.
  std::vector<std::string> reduced_early_;
  bool is_end_asked_ = false;
  std::optional<double> best_metric_;
  std::string best_name_;  // name of the metric; its direction is below
  bool best_is_smallest_ = true;
  int64_t best_batch_ = 0;
  bool is_new_best_ = false;
  bool is_resumed_ = false;
};

}  // namespace gannet
