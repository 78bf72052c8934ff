/// A trial: a program that defines how one batch is trained and evaluated, and leaves the loop, the
/// averages of its metrics, checkpoints and resumes to the library. The interface is that of
/// Determined's DeepSpeedTrial.
///
///   class MyTrial : public gannet::Trial<> {
///    public:
///     explicit MyTrial(gannet::TrialContext& context) : context_(context) {
///       auto model = std::make_shared<Net>(context.get_hparams().get<int64_t>("width"));
///       engine_ = context.wrap_model_engine(gannet::initialize(model, {.config = context.deepspeed_config()}).engine);
///     }
///     Loader build_training_data_loader() override {
///       return gannet::make_loader(gannet::Dataset<>(Images("train")), context_.loader_options());
///     }
///     Loader build_validation_data_loader() override {
///       return context_.make_validation_loader(gannet::Dataset<>(Images("test")));
///     }
///     gannet::BatchMetrics train_batch(Iterator& iterator, int64_t epoch, int64_t batch) override {
///       auto images = context_.to_device(iterator.next());
///       auto loss = engine_->forward(images.data, images.target);
///       engine_->backward(loss);
///       engine_->step();
///       return {{"loss", loss}};
///     }
///     gannet::BatchMetrics evaluate_batch(Iterator& iterator, int64_t batch) override { ... }
///    ...
///   };
///   int main(int argc, char** argv) { return gannet::run_trial<MyTrial>(argc, argv); }
///
///   gannet run --num_procs 2 ./my_trial --hparams hparams.yaml --hparam lr=1e-3 --max_length "3 epochs"
///
/// One batch of the trial is one update: train_batch is called gradient_accumulation_steps times
/// for it, once per micro-batch. See docs/trials.md.
#pragma once

#include <gannet/gannet.h>
#include <gannet/trial_base.h>
#include <gannet/trial_context.h>
#include <gannet/trial_metrics.h>
#include <gannet/trial_settings.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

namespace gannet {

template <class Batch = Example, class ValidationBatch = Batch>
class Trial : public TrialBase {
 public:
  using Loader = std::shared_ptr<DataLoader<Batch>>;
  using ValidationLoader = std::shared_ptr<DataLoader<ValidationBatch>>;
  using Iterator = BatchIterator<Batch>;
  using ValidationIterator = BatchIterator<ValidationBatch>;

  /// Called once, after the constructor. make_loader with context.loader_options() gives each rank
  /// its share.
  virtual Loader build_training_data_loader() = 0;
  /// Returns null if the trial has no validation.
  virtual ValidationLoader build_validation_data_loader() { return nullptr; }

  /// Trains one micro-batch: draws it, and runs forward, backward and step. Returns the loss, or
  /// metrics by name. `epoch` and `batch` count from 0.
  virtual BatchMetrics train_batch(Iterator& iterator, int64_t epoch, int64_t batch) = 0;
  /// Evaluates one batch of the validation loader, without gradients and with all engines in
  /// evaluation mode. A rank that has no data left repeats its last batch, which does not count.
  virtual BatchMetrics evaluate_batch(ValidationIterator& iterator, int64_t batch) {
    (void)iterator, (void)batch;
    detail::fail_without_evaluation();
  }
  /// Replaces evaluate_batch: returns the metrics over this rank's whole loader. They are averaged
  /// over the ranks, weighted by of_samples(). All ranks must make the same collective calls, as in
  /// any loop over a loader.
  virtual BatchMetrics evaluate_full_dataset(DataLoader<ValidationBatch>& loader) {
    (void)loader;
    has_full_evaluation_ = false;
    return {};
  }

 private:
  std::optional<OpenedLoader> open_training() override {
    training_ = build_training_data_loader();
    if (!training_) return std::nullopt;
    endless_.emplace(training_);
    drawing_.draw_ = [this]() -> Batch& { return endless_->next(); };
    return opened(*training_, training_);
  }
  std::optional<OpenedLoader> open_validation() override {
    validation_ = build_validation_data_loader();
    if (!validation_) return std::nullopt;
    evaluating_.draw_ = [this]() -> ValidationBatch& {
      if (!is_prepared_ && !prepare_validation_batch()) detail::fail_unread_validation();
      is_prepared_ = false;
      if (!join_->has_data()) evaluating_.drawn_.counts = false;
      return *prepared_;
    };
    return opened(*validation_, validation_);
  }
  template <class L>
  static OpenedLoader opened(const L& loader, std::shared_ptr<ResumableLoader> shared) {
    return {std::move(shared), loader.sized() ? std::optional(loader.size()) : std::nullopt, loader.options()};
  }

  CallResult call_train_batch(int64_t epoch, int64_t batch) override {
    drawing_.drawn_ = {};
    BatchMetrics metrics = train_batch(drawing_, epoch, batch);
    return {std::move(metrics), drawing_.drawn_};
  }
  std::optional<BatchMetrics> call_evaluate_full_dataset() override {
    if (!has_full_evaluation_) return std::nullopt;
    rewind_validation();
    BatchMetrics metrics = evaluate_full_dataset(*validation_);
    return has_full_evaluation_ ? std::optional(std::move(metrics)) : std::nullopt;
  }
  void begin_validation(EngineBase& engine) override {
    rewind_validation();
    join_.emplace(engine, *validation_);
    is_prepared_ = false;
  }
  bool prepare_validation_batch() override {
    prepared_ = join_->next();
    is_prepared_ = prepared_ != nullptr;
    if (!prepared_) join_.reset();
    return is_prepared_;
  }
  bool has_validation_data() const override { return join_->has_data(); }
  CallResult call_evaluate_batch(int64_t batch) override {
    evaluating_.drawn_ = {};
    BatchMetrics metrics = evaluate_batch(evaluating_, batch);
    return {std::move(metrics), evaluating_.drawn_};
  }
  // Every validation sees the same epoch of the loader, after a resume as well.
  void rewind_validation() {
    if (validation_->sized()) validation_->set_epoch(0);
  }

  Loader training_;
  ValidationLoader validation_;
  std::optional<RepeatingLoader<DataLoader<Batch>>> endless_;
  Iterator drawing_;
  ValidationIterator evaluating_;
  std::optional<Join<ValidationBatch>> join_;
  ValidationBatch* prepared_ = nullptr;
  bool is_prepared_ = false;
  bool has_full_evaluation_ = true;  // cleared by the default evaluate_full_dataset()
};

namespace detail {
using MakeTrial = std::function<std::unique_ptr<TrialBase>(TrialContext&)>;
TrialResult run_trial(const char* type, const MakeTrial& make, TrialSettings settings);
int run_trial(const char* type, const MakeTrial& make, int argc, char** argv, const TrialOptions& options);
}  // namespace detail

/// Runs a trial to its end; resumes it if its output folder has checkpoints. Every rank calls it.
/// Throws gannet::Error.
template <class T>
TrialResult run_trial(TrialSettings settings) {
  return detail::run_trial(
      typeid(T).name(), [](TrialContext& context) { return std::make_unique<T>(context); }, std::move(settings));
}

/// The same for a main function: the settings come from the command line, and errors go to stderr.
/// Returns the exit code: 0, kStoppedExitCode after a signal, the error's own, or 1 for another exception.
template <class T>
int run_trial(int argc, char** argv, const TrialOptions& options = {}) {
  return detail::run_trial(
      typeid(T).name(), [](TrialContext& context) { return std::make_unique<T>(context); }, argc, argv, options);
}

}  // namespace gannet
