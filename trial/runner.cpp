#include "runner.h"

#include <ATen/Context.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/stop.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "common/json.h"
#include "common/nearest.h"

namespace gannet {

TrialRunner::TrialRunner(TrialBase& trial, TrialContext& context, std::string type)
    : trial_(trial), context_(context), settings_(context.settings_), type_(std::move(type)) {}

TrialResult TrialRunner::run() {
  check_engines();
  context_.is_constructed_ = true;
  compare_settings();
  open_loaders();
  check_hparams_were_read();
  plan();
  at::manual_seed(
      static_cast<uint64_t>(settings_.seed + 1 + engine().rank()));  // ranks with distinct data draw different numbers
  begin_or_resume();

  TrialResult result;
  result.resumed_at = context_.initial_batch_ = batches_;
  for (const auto& wrapped : context_.engines_) wrapped.engine->train();
  while (batches_ < total_ && !is_end_asked_ && !result.stopped) {
    train_one_batch();
    agree(result.stopped, is_end_asked_);
    const bool is_last = batches_ >= total_ || is_end_asked_;
    if (is_last || batches_ % settings_.report_period == 0) report_training();
    if (has_validation_ && (is_last || is_due(validation_period_))) validate();
    if (is_last || result.stopped || is_new_best_ || is_due(settings_.checkpoint_period)) save();
  }
  for (const auto& wrapped : context_.engines_) wrapped.engine->wait_for_checkpoint();
  if (result.stopped && (batches_ >= total_ || is_end_asked_)) result.stopped = false;  // the trial is complete anyway
  result.batches = batches_;
  result.best_metric = best_metric_;
  result.best_batch = best_batch_;
  result.ended_early = is_end_asked_ && batches_ < total_;
  if (is_first()) {
    std::string line = std::string("the trial ") +
                       (result.stopped       ? "was stopped by a signal"
                        : result.ended_early ? "ended at its own request"
                                             : "is complete") +
                       " after batch " + std::to_string(batches_);
    if (best_metric_)
      line += ", best validation " + std::to_string(*best_metric_) + " after batch " + std::to_string(best_batch_);
    log_info(line);
  }
  return result;
}

void TrialRunner::check_engines() const {
  const auto& engines = context_.engines_;
  if (engines.empty())
    throw Error(ErrorCode::kOrder, "the trial " + type_ + " has registered no engine",
                "call context.wrap_model_engine(gannet::initialize(...).engine) in its constructor");
  for (const auto& [name, engine] : engines) {
    const bool is_alike = engine->gradient_accumulation_steps() == this->engine().gradient_accumulation_steps() &&
                          engine->train_micro_batch_size_per_gpu() == this->engine().train_micro_batch_size_per_gpu();
    if (context_.accumulates_ && !is_alike)
      throw Error(ErrorCode::kMismatch,
                  "engines '" + engines.front().name + "' and '" + name +
                      "' differ in train_micro_batch_size_per_gpu or gradient_accumulation_steps",
                  "give both the same, or call context.disable_auto_grad_accumulation() and let train_batch accumulate");
    if (context_.mpu_ && context_.mpu_->get_data_parallel_world_size() != engine->world_size())
      throw Error(ErrorCode::kMismatch,
                  "the mpu has " + std::to_string(context_.mpu_->get_data_parallel_world_size()) +
                      " data parallel ranks, the engine '" + name + "' " + std::to_string(engine->world_size()),
                  "give the mpu to gannet::initialize as .mpu too");
    // The process may end when only some of the engines have saved, so the previous checkpoint must
    // still exist.
    if (engines.size() > 1 && engine->config_value("gannet.checkpoint.keep") == Value(1))
      throw Error(ErrorCode::kConfig, "gannet.checkpoint.keep is 1 for the engine '" + name + "' of a trial with several engines",
                  "set it to 2 or more, or leave it out and use --keep_checkpoints");
  }
}

// Compares the settings of all ranks: ranks that validate or end at different times would make
// mismatched collective calls.
void TrialRunner::compare_settings() {
  const TrialSettings& s = settings_;
  const std::string mine = Value(Dict{{"max_length", s.max_length.to_string()},
                                      {"validation_period", s.validation_period.to_string()},
                                      {"checkpoint_period", s.checkpoint_period.to_string()},
                                      {"report_period", s.report_period},
                                      {"epoch_length", s.epoch_length},
                                      {"output_dir", s.output_dir},
                                      {"metric", s.metric},
                                      {"smaller_is_better", s.smaller_is_better},
                                      {"seed", s.seed},
                                      {"keep_checkpoints", s.keep_checkpoints}})
                               .to_json();
  const auto all = engine().gather(mine);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const Value first = common::parse_json(all[0], "rank 0"), other = common::parse_json(all[rank], "rank");
    for (const auto& [name, value] : first.as_dict().entries())
      if (const std::string here = other.at(name).to_json(); here != value.to_json())
        throw Error(ErrorCode::kMismatch,
                    name + " is " + value.to_json() + " on rank 0 and " + here + " on rank " + std::to_string(rank),
                    "give every rank the same settings");
  }
}

void TrialRunner::open_loaders() {
  const auto training = trial_.open_training();
  if (!training)
    throw Error(ErrorCode::kArgument, "build_training_data_loader returned no loader",
                "return gannet::make_loader(dataset, context.loader_options())");
  check_loader(*training);
  loader_ = training->loader;
  micro_batches_ = training->micro_batches;
  ends_steps_with_epochs_ = engine().leftover_micro_batches() == "step";
  for (const auto& [name, engine] : context_.engines_)
    if (engine->leftover_micro_batches() == "step") engine->end_steps_with_epochs_of(loader_);
  // Each rank may have its own stream, but sized loaders must agree on where an epoch ends.
  const auto sizes = engine().gather(std::to_string(micro_batches_.value_or(-1)));
  for (size_t rank = 0; rank < sizes.size(); ++rank)
    if (sizes[rank] != sizes[0])
      throw Error(ErrorCode::kMismatch,
                  "an epoch of the training loader has " + sizes[0] + " micro-batches on rank 0 and " + sizes[rank] +
                      " on rank " + std::to_string(rank) + " (-1: a stream)",
                  "give every rank the same dataset, and context.loader_options() to make_loader");
  has_validation_ = trial_.open_validation().has_value();
  if (!has_validation_ && (settings_.validation_period || !settings_.metric.empty()))
    throw Error(ErrorCode::kArgument,
                std::string(settings_.metric.empty() ? "validation_period" : "metric") +
                    " is given, but build_validation_data_loader returns no loader",
                "build one, or leave the argument out");
}

void TrialRunner::check_loader(const TrialBase::OpenedLoader& opened) const {
  if (!context_.checks_loader_ || !opened.micro_batches) return;
  const LoaderOptions wanted = context_.loader_options();
  const LoaderOptions& given = opened.options;
  const auto fail = [](const std::string& what) {
    throw Error(ErrorCode::kMismatch, "build_training_data_loader: " + what,
                "give context.loader_options() to make_loader, or call context.disable_dataset_reproducibility_checks()");
  };
  if (given.rank != wanted.rank || given.world_size != wanted.world_size)
    fail("the loader is that of rank " + std::to_string(given.rank) + " of " + std::to_string(given.world_size) +
         ", the trial runs on " + std::to_string(wanted.world_size) + " ranks, which would train on the same samples");
  if (given.batch_size != wanted.batch_size)
    fail("the loader has micro-batches of " + std::to_string(given.batch_size) + " samples, the config says " +
         std::to_string(wanted.batch_size));
}

void TrialRunner::check_hparams_were_read() const {
  const Hparams& hparams = settings_.hparams;
  for (const std::string& name : settings_.given)
    if (!hparams.was_read(name))
      throw Error(ErrorCode::kArgument,
                  "command line: the trial never reads the hyperparameter '" + name + "'" +
                      common::did_you_mean(name, hparams.asked_for()),
                  "its constructor and loaders read what the trial is made of");
  for (const auto& [name, value] : hparams.peek().entries())
    if (is_first() && !hparams.was_read(name))
      log_warning(hparams.origin(name) + ": the trial never reads the hyperparameter '" + name + "'");
}

// ---- lengths

int64_t TrialRunner::calls_of(int64_t batch) const {
  const int64_t whole = context_.get_num_micro_batches_per_slot();
  if (!ends_steps_with_epochs_ || !context_.accumulates_) return whole;
  const int64_t per_epoch = (*micro_batches_ + whole - 1) / whole;
  return std::min(whole, *micro_batches_ - batch % per_epoch * whole);
}

int64_t TrialRunner::epochs_after(int64_t batches) const {
  if (settings_.epoch_length > 0) return batches / settings_.epoch_length;
  if (!micro_batches_) return 0;
  const int64_t whole = context_.micro_batches_in_batch();
  if (ends_steps_with_epochs_) return batches / ((*micro_batches_ + whole - 1) / whole);
  return batches * whole / *micro_batches_;
}

std::optional<double> TrialRunner::epochs_shown() const {
  if (!knows_epochs()) return std::nullopt;
  constexpr int64_t kMany = 1'000'000;  // many epochs, because one epoch need not be a whole number of batches
  return static_cast<double>(batches_ * kMany) / static_cast<double>(batches_in(TrialLength::epochs(kMany)));
}

// Number of batches that cover the first `length.count` epochs.
int64_t TrialRunner::batches_in(const TrialLength& length) const {
  if (length.unit == TrialLength::Unit::kBatches) return length.count;
  const int64_t whole = context_.micro_batches_in_batch();
  const bool is_cut = settings_.epoch_length == 0 && !ends_steps_with_epochs_;  // an epoch need not be a whole number of batches
  const int64_t each = settings_.epoch_length > 0 ? settings_.epoch_length
                       : is_cut                   ? *micro_batches_
                                                  : (*micro_batches_ + whole - 1) / whole;
  if (length.count > (std::numeric_limits<int64_t>::max() - whole) / std::max<int64_t>(1, each))
    throw Error(ErrorCode::kArgument, length.to_string() + " are more batches than can be counted", "give a shorter length");
  return is_cut ? (length.count * each + whole - 1) / whole : length.count * each;
}

void TrialRunner::plan() {
  for (const auto& [name, length] : {std::pair<const char*, TrialLength>{"max_length", settings_.max_length},
                                     {"validation_period", settings_.validation_period},
                                     {"checkpoint_period", settings_.checkpoint_period}})
    if (length && length.unit == TrialLength::Unit::kEpochs && !knows_epochs())
      throw Error(ErrorCode::kArgument,
                  std::string(name) + " is " + length.to_string() +
                      ", but the training data are a stream, whose epochs have no known length",
                  "give it in batches, or say with --epoch_length how many batches count as an epoch");
  if (ends_steps_with_epochs_ && !context_.accumulates_)
    throw Error(ErrorCode::kUnsupported, "gannet.leftover_micro_batches is step, and the trial accumulates by itself",
                "choose carry or drop");
  validation_period_ = settings_.validation_period;
  if (!validation_period_ && knows_epochs()) validation_period_ = TrialLength::epochs(1);
  total_ = batches_in(settings_.max_length);
}

bool TrialRunner::is_due(const TrialLength& period) const {
  if (!period) return false;
  if (period.unit == TrialLength::Unit::kBatches) return batches_ % period.count == 0;
  return epochs_after(batches_) / period.count > epochs_after(batches_ - 1) / period.count;
}

// ---- one batch

void TrialRunner::train_one_batch() {
  const int64_t batch = batches_, epoch = epochs_after(batch);
  context_.batch_ = batch;
  context_.epoch_ = epoch;
  context_.is_epoch_start_ = knows_epochs() && (batch == 0 || epoch > epochs_after(batch - 1));
  context_.is_epoch_end_ = knows_epochs() && epochs_after(batch + 1) > epoch;
  const auto micro_steps = [&] {
    int64_t steps = 0;
    for (const auto& wrapped : context_.engines_) steps += wrapped.engine->micro_steps();
    return steps;
  };
  const int64_t before = micro_steps();
  for (int64_t call = 0, calls = calls_of(batch); call < calls; ++call) {
    const auto called = trial_.call_train_batch(epoch, batch);
    const std::string where = "train_batch, batch " + std::to_string(batch);
    if (!called.metrics.values().empty() && !called.metrics.values().contains("loss"))
      throw Error(ErrorCode::kArgument, where + " returned no metric 'loss'", "return the loss, or {{\"loss\", loss}, ...}");
    training_.add(called.metrics, called.drawn, where);
  }
  ++batches_;
  is_new_best_ = false;
  if (batches_ == context_.initial_batch_ + 1 && micro_steps() == before)
    throw Error(ErrorCode::kOrder, "train_batch trained nothing: no registered engine took a step",
                "call engine->backward(loss) and engine->step() in train_batch, on an engine that wrap_model_engine was given");
}

void TrialRunner::agree(bool& is_signalled, bool& is_end_asked) {
  is_signalled = settings_.stop && settings_.stop->requested_on_any(*context_.world_);
  is_end_asked = engine().mean(context_.stop_requested_ ? 1 : 0) > 0;
}

}  // namespace gannet
