/// The Trainer's loop, independent of the types of model and batch: events, strategies, logs and
/// checkpoints. Programs use the Trainer in gannet/trainer.h.
#pragma once

#include <ATen/core/Tensor.h>
#include <gannet/data.h>
#include <gannet/engine.h>
#include <gannet/initialize.h>
#include <gannet/trainer_callback.h>
#include <gannet/trainer_loss.h>

#include <chrono>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace gannet {

class ProgressBar;

/// A completed update; its events have fired.
class TrainerStep {
 public:
  int64_t global_step() const;
  double epoch() const;
  bool applied() const { return applied_; }  ///< false if skipped after an fp16 overflow
  const std::string& reason() const { return reason_; }
  std::optional<double> grad_norm() const;
  double learning_rate() const { return learning_rate_; }  ///< used by this update
  double loss() const;                                     ///< the loss of the whole batch. Every rank calls it
  void stop();                                             ///< ends training, like control.should_training_stop

 private:
  friend class TrainerBase;
  class TrainerBase* trainer_ = nullptr;
  bool applied_ = false;
  std::string reason_;
  double learning_rate_ = 0;
  at::Tensor local_loss_;  // fp64: this rank's contribution; the loss is the sum over all ranks
};

struct TrainOutput {
  int64_t global_step = 0;
  double training_loss = 0;  ///< mean over all updates with a label that counts; NaN if none has one
  Metrics metrics;
  bool stopped = false;  ///< whether a signal stopped the training; its last step is then in a checkpoint
};

/// Predictions and labels of all samples of an evaluation, in the order of the data set, on the
/// CPU. With batch_eval_metrics they are those of a single batch over all ranks. The same on every
/// rank.
struct EvalPrediction {
  at::Tensor predictions;  ///< logits, or the predictions of compute_loss; undefined with is_last_call
  at::Tensor label_ids;
  bool is_last_call = false;  ///< with batch_eval_metrics: this is after the last batch; return the metrics of all batches
};

struct EvalLoopOutput {
  Metrics metrics;  ///< names begin with the prefix
  at::Tensor predictions, label_ids;
  int64_t num_samples = 0;
};

class TrainerBase {
 public:
  virtual ~TrainerBase();
  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;

  /// Trains to the end, from the start or from arguments.resume_from_checkpoint. After a signal
  /// (arguments.stop) it saves, and ends the process with kStoppedExitCode unless exit_when_stopped
  /// is false. Every rank calls it.
  TrainOutput train();

  /// The same with the loop in the program: each step is one update, with all its events. Leaving the loop early ends training.
  ///   for (auto& step : trainer.steps()) std::cout << step.global_step() << ' ' << step.loss() << '\n';
  ///   auto output = trainer.output();
  class Steps {
   public:
    class Iterator {
     public:
      using value_type = TrainerStep;
      using difference_type = std::ptrdiff_t;
      explicit Iterator(TrainerBase* trainer) : trainer_(trainer) { ++*this; }
      TrainerStep& operator*() const { return trainer_->step_; }
      TrainerStep* operator->() const { return &trainer_->step_; }
      Iterator& operator++() {
        if (!trainer_->advance_steps()) trainer_ = nullptr;
        return *this;
      }
      void operator++(int) { ++*this; }
      bool operator==(std::default_sentinel_t) const { return trainer_ == nullptr; }

     private:
      TrainerBase* trainer_;
    };
    explicit Steps(TrainerBase& trainer) : trainer_(&trainer) { trainer.start_steps(); }
    Steps(Steps&& other) noexcept : trainer_(std::exchange(other.trainer_, nullptr)) {}
    ~Steps() noexcept(false) {
      if (!trainer_) return;
      trainer_->end_steps(std::uncaught_exceptions() > 0);
    }
    Iterator begin() { return Iterator(trainer_); }
    std::default_sentinel_t end() const { return {}; }

   private:
    TrainerBase* trainer_;
  };
  Steps steps() { return Steps(*this); }
  const TrainOutput& output() const { return output_; }

  /// Evaluates the evaluation data set. Every sample counts once, whatever the number of ranks: the
  /// loss is the mean over all items that count. Metric names begin with `prefix` and '_'. Every
  /// rank calls it. A signal (arguments.stop) outside of train() ends it after the current batch,
  /// and ends the process with kStoppedExitCode; with exit_when_stopped false it throws
  /// Error(kStopped) instead.
  Metrics evaluate(const std::string& prefix = "eval");
  /// Evaluates, and also returns the predictions of all samples.
  EvalLoopOutput predict(const std::string& prefix = "test");

  /// Writes the weights to `folder`/model.safetensors; "" means output_dir. At ZeRO stage 3 these are fp32 without
  /// stage3_gather_16bit_weights_on_model_save. Every rank calls it.
  void save_model(const std::string& folder = "");
  /// Writes trainer_state.json in output_dir.
  void save_state();

  const TrainingArguments& arguments() const { return arguments_; }
  const TrainerState& state() const { return state_; }
  TrainerControl& control() { return control_; }
  void add_callback(TrainerCallback callback) { callbacks_.push_back(std::move(callback)); }

 protected:
  explicit TrainerBase(TrainingArguments arguments);

  // ---- implemented by the typed Trainer
  using BatchMeasurement = detail::BatchMeasurement;
  struct TrainSize {
    std::optional<int64_t> micro_batches;  // number of micro-batches in an epoch, on each rank; nullopt for a stream
  };
  virtual EngineBase& make_engine(const Config& config, std::vector<ParameterGroup> groups) = 0;
  virtual torch::nn::Module& module() = 0;
  // Calls `visit` with every module of the whole model and its name; called before there is an engine.
  virtual void visit_modules(const std::function<void(const std::string&, const torch::nn::Module&)>& visit) const = 0;
  virtual bool is_inference() const = 0;
  virtual bool has_schedule() const = 0;                     // whether the program supplied one
  virtual std::optional<int64_t> train_samples() const = 0;  // nullopt for a stream, or for a loader supplied by the program
  virtual std::optional<int64_t> own_micro_batches(const LoaderOptions& options) = 0;  // batches per epoch; nullopt: unknown
  virtual std::optional<int64_t> hidden_size() = 0;                                    // nullopt if the model has none
  virtual TrainSize open_train_loader(const LoaderOptions& options) = 0;
  virtual void begin_epoch(std::optional<int64_t> epoch) = 0;         // nullopt continues at the loader's position
  virtual std::vector<double> read_micro_batches(int64_t count) = 0;  // items of each one; fewer at the epoch's end
  virtual int64_t samples_read() const = 0;                           // samples in the micro-batches read last
  virtual bool has_micro_batch() const = 0;  // whether at least one was read, which this rank may repeat with weight 0
  // A pipeline runs all micro-batches of an update in one call.
  struct ProgramDegrees {
    std::optional<int64_t> pipe = {}, tensor = {};
  };
  virtual ProgramDegrees program_degrees() const = 0;  // degrees of the mesh that the program sets
  virtual bool is_pipeline() const = 0;                // true for a pipe::Module, or once there is a pipeline engine
  virtual bool has_pipeline_step_of(int64_t micro_batches) const = 0;
  // Takes a step with the micro-batches that were read; any beyond them repeat the last one with
  // weight 0. Returns the mean of the weighted losses.
  virtual double train_pipeline(const std::vector<double>& weights, StepResult& result) = 0;
  // An index beyond the micro-batches that were read repeats one of them, with a loss of 0.
  virtual BatchMeasurement measure_micro_batch(size_t index) = 0;
  // Evaluation: begin_evaluation(), then evaluate_batch() until nullopt. Every rank gets the same
  // number of batches; `items` and `samples` are 0 on a rank without data.
  struct EvalBatch {
    double items = 0;
    int64_t samples = 0;
    at::Tensor loss, predictions, labels;
  };
  virtual std::optional<int64_t> eval_samples() const = 0;  // nullopt for a stream; -1 without a data set
  virtual bool has_metrics() const = 0;
  virtual void begin_evaluation(const LoaderOptions& options, bool with_predictions) = 0;
  virtual std::optional<EvalBatch> evaluate_batch() = 0;
  virtual void end_evaluation() = 0;  // also called after an exception
  virtual Metrics compute_metrics(const EvalPrediction& prediction) = 0;
  virtual void release_engine() = 0;
  // auto_find_batch_size: finds the largest of this rank's first micro-batches, which come from a
  // separate loader, and measures the loss of that micro-batch.
  virtual bool has_train_dataset() const = 0;
  virtual bool has_own_optimizer() const = 0;
  virtual void open_probe(const LoaderOptions& options) = 0;
  virtual at::Tensor measure_probe() = 0;  // returns the mean loss
  virtual void close_probe() = 0;

  void initialize();  // sets seed, TF32 and log level; throws for arguments that cannot work; fires on_init_end
  EngineBase& ensure_engine();
  bool some_rank_evaluates(bool counts);            // false also if a signal ended the evaluation. Every rank calls it
  int64_t pipe_stages(const Config& config) const;  // set by the program, else by the config, else 1
  std::vector<std::string> gather_from_all(const std::string& bytes) const;  // also from other stages. Every rank calls it
  EngineBase* engine_ = nullptr;
  TrainingArguments arguments_;
  std::optional<at::ScalarType> input_dtype_;  // set if the parameters are 16-bit: floating-point inputs are cast to this dtype
  bool exit_when_stopped_ = true;
  std::function<void(const std::string& folder)> checkpoint_files_;
  std::vector<TrainerCallback> callbacks_;

 private:
  friend class TrainerStep;
  // setup.cpp
  void make_engine_for_batch();
  int64_t data_ranks(const Config& config) const;
  void end_engine();
  // find_batch_size.cpp
  void check_batch_size_can_be_tried(int64_t stage, int64_t ranks) const;
  void find_batch_size();
  bool follow_checkpoint();
  std::string probe();
  void run_probe();
  void take_batch_size(int64_t samples, const std::string& start);
  Error error_after_probes(const Error& error) const;
  // agreement.cpp: agreement between ranks
  std::vector<double> sum_over_all(std::vector<double> values) const;  // also over ranks of other stages
  double over_ranks(double local);                                     // returns the sum over the ranks of the data axis
  int64_t agree_on_micro_batches(const std::vector<double>& items, double& total);
  void agree_on_control();
  // update.cpp
  at::Tensor take_update(const std::vector<double>& items, int64_t count, double total);
  at::Tensor take_micro_batches(int64_t count, double total);
  void list_events_without_effect() const;
  at::Tensor take_pipeline_step(const std::vector<double>& items, int64_t count, double total);
  // loop.cpp
  void start();
  bool advance();
  void finish();
  void start_steps();
  bool advance_steps();
  void end_steps(bool is_thrown_out);
  void plan_run(const TrainSize& size);
  int64_t updates_of(int64_t micro_batches) const;  // updates in the run, given an epoch's micro-batches
  std::optional<int64_t> planned_updates(int64_t ranks, bool drops_leftovers);
  LoaderOptions train_loader_options(LoaderOptions of_engine) const;
  int64_t samples_in_update() const;  // of all ranks together
  void end_epoch();
  void warn_of_missing_updates() const;
  // label_count.cpp: updates without labels
  void count_labels_of_update(double total, int64_t micro_batches);
  void check_labels_of_epoch(bool is_whole) const;
  void check_steps_of_best_model() const;  // flow.cpp
  // flow.cpp: when to log, evaluate and save
  void flow_step_end();
  void flow_epoch_end();
  void fire(TrainerEventKind kind, const Dict& logs = {}, const Metrics& metrics = {});
  // stopping.cpp: exceptions and signals
  void report_failure(const char* call) noexcept;
  [[noreturn]] void exit_after_stop();
  [[noreturn]] void stop_evaluation(const std::string& done);
  // reporting.cpp
  void log_evaluate_save();
  void log_training();
  void log(Dict values, const Dict& times);
  // evaluation.cpp
  EvalLoopOutput evaluation_loop(const std::string& prefix, bool wants_predictions);
  EvalLoopOutput evaluate_alone(const char* call, const std::string& prefix, bool wants_predictions);
  void agree_on_metrics(Metrics& computed, const std::exception_ptr& thrown);
  at::Tensor gather_rows(const at::Tensor& mine);
  bool judge(const Metrics& metrics);
  // saving.cpp, resuming.cpp
  void save_checkpoint(bool is_for_stop);
  void save_weights(const std::string& folder);
  void save_weights_alone(const std::string& folder);
  void save_whole(const std::string& name, bool is_for_stop);
  void clear_left_over() const;
  void rotate_checkpoints();
  Dict document() const;
  std::pair<std::string, LoadOptions> place_of_resume() const;
  bool resume();  // whether a checkpoint was loaded
  void check_places_of_checkpoints();
  void restore_callbacks(const Value& saved) const;
  std::string best_checkpoint_in(const std::string& folder) const;
  void finish_saving(const std::string& folder, bool is_own);
  void list_changes(const Dict& before) const;
  void load_best_model();
  void write_state_into(const std::string& folder);
  bool is_first() const;

  TrainerState state_;
  TrainerControl control_;
  TrainerStep step_;
  TrainOutput output_;
  std::unique_ptr<ProgressBar> bar_;

  std::optional<int64_t> steps_in_epoch_;  // in micro-batches; nullopt for a stream
  int64_t updates_per_epoch_ = 0;
  int64_t micro_batch_size_ = 0;  // per_device_train_batch_size, or the size that auto_find_batch_size found
  int64_t zero_stage_ = 0;
  std::optional<int64_t> scheduled_updates_;  // number of updates that lr_scheduler_type's schedule was made for
  int64_t epoch_ = 0;                         // the current epoch
  int64_t micro_in_epoch_ = 0;                // micro-batches done in the current epoch
  int64_t micro_batches_left_ = 0;            // micro-batches left in the current update
  int64_t pipeline_step_end_ = 0;             // micro_steps() of the engine at the end of the pipeline's current step
  bool is_in_epoch_ = false, is_begun_ = false, is_resumed_ = false;
  bool is_epoch_end_due_ = false;         // the epoch's last update is done, and end_epoch() has not run yet
  std::string stop_checkpoint_;           // the checkpoint saved after a signal; the next regular one replaces it
  std::vector<std::string> checkpoints_;  // in output_dir: kept by this run and by the runs that it resumed, oldest first
  bool is_stop_agreed_ = false;           // all ranks agreed to end training here
  bool is_signal_agreed_ = false;         // a rank got a signal
  bool is_evaluation_stopped_ = false;    // by a signal to one of the ranks
  bool has_trained_ = false;
  bool has_told_of_metrics_ = false;  // has warned that the metrics differ between ranks
  int64_t last_logged_ = 0;
  int64_t last_saved_ = -1;
  int64_t begun_at_step_ = 0;
  at::Tensor loss_since_log_;                  // fp64; this rank's part of the sum
  int64_t losses_since_log_ = 0, losses_ = 0;  // number of updates with a label that counted: since the last log; before it
  std::optional<int64_t> restored_losses_;     // losses_since_log_ from the checkpoint
  double labels_in_epoch_ = 0;
  bool is_epoch_seen_from_start_ = false, has_warned_of_labels_ = false;
  double total_loss_ = 0;  // the sum of the losses logged so far, over all ranks
  double last_learning_rate_ = 0;
  std::chrono::steady_clock::time_point began_;
};

}  // namespace gannet
