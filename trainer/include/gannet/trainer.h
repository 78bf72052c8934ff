/// Trains a model from arguments: the loop, evaluations, checkpoints and logs of Hugging Face's Trainer, over Gannet's engine.
///
///   auto arguments = gannet::parse_training_arguments(argc, argv);
///   auto model = std::make_shared<Gpt>(options);
///   gannet::Trainer trainer(model, arguments, {.train_dataset = train, .eval_dataset = held_out, .compute_metrics = accuracy});
///   trainer.train();                                  // or: for (auto& step : trainer.steps()) ...
///
/// The loss of an update is the loss of its whole batch: summed over micro-batches and ranks, and
/// divided once by the number of items that count (labels other than -100). The loss and its
/// gradient therefore do not depend on how the batch was split.
///
/// By default a batch has `data` and `target`. Its loss is the model's forward(data, target), a
/// mean over the labels that count (or a pair or struct with loss and logits). If logits are needed
/// (label smoothing, metrics) or that forward does not exist, the loss is the cross entropy of the
/// model's logits(data) or forward(data). For anything else, give a compute_loss:
///
///   .compute_loss = [](gannet::Engine<Net>& engine, Batch& batch) -> gannet::BatchLoss {
///     return torch::mse_loss(engine.forward(batch.x), batch.y);          // the mean over the batch's items
///   },
///   .count_items = [](const Batch& batch) { return batch.y.size(0); },  // the number of items
///
/// A model with layers() trains as a pipeline if the config asks for stages (pipeline.stages), and
/// so does a pipe::Module (gannet/pipe.h).
///
/// Every rank constructs the Trainer and makes the same calls. See docs/trainer.md.
#pragma once

#include <ATen/ops/scalar_tensor.h>
#include <gannet/gannet.h>
#include <gannet/trainer_base.h>
#include <gannet/trainer_batches.h>
#include <gannet/trainer_evaluation.h>
#include <gannet/trainer_loss.h>
#include <gannet/trainer_measuring.h>
#include <gannet/trainer_parts.h>
#include <gannet/trainer_pipeline.h>
#include <torch/data/example.h>  // Example, the default sample type

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace gannet {

template <class Model, class Batch = Example>
class Trainer : public TrainerBase {
 public:
  template <class M>
  Trainer(M model, TrainingArguments arguments, TrainerParts<Model, Batch> parts)
      : TrainerBase(std::move(arguments)), model_(detail::module_pointer(std::move(model))), parts_(std::move(parts)) {
    if constexpr (detail::is_pipe_module<Model>()) {
      if (parts_.compute_loss) detail::fail_with_pipeline_loss();
      if (arguments_.label_smoothing_factor > 0) detail::fail_with_smoothing();
    } else if constexpr (detail::ForwardsLoss<Model, Batch>) {
      has_models_loss_ = !parts_.compute_loss;
      if (has_models_loss_ && arguments_.label_smoothing_factor > 0) detail::fail_without_logits();
      if (has_models_loss_)
        parts_.compute_loss = [this](Engine<Model>& engine, Batch& batch) -> BatchLoss {
          detail::cast_named(batch, input_dtype_);
          return engine.forward(batch);
        };
    } else if constexpr (!detail::HasDataAndTarget<Batch>) {
      if (!parts_.compute_loss) detail::fail_without_loss();
    } else if constexpr (!detail::HasLogits<Model, Batch> && !detail::ForwardsBoth<Model, Batch> &&
                         !detail::ForwardsData<Model, Batch>) {
      if (!parts_.compute_loss) detail::fail_without_loss();
    } else if constexpr (!detail::GivesLogits<Model, Batch>) {
      if (!parts_.compute_loss && arguments_.label_smoothing_factor > 0) detail::fail_without_logits();
      if (!parts_.compute_loss && parts_.compute_metrics && !arguments_.prediction_loss_only) detail::warn_without_predictions();
    }
    for (auto& callback : parts_.callbacks) add_callback(callback);
    exit_when_stopped_ = parts_.exit_when_stopped;
    checkpoint_files_ = parts_.checkpoint_files;
    initialize();
  }

  /// Returns the engine, which has the training's schedule. It is created on first use, by train,
  /// steps, evaluate, predict, save_model or this function. For a model that trains as a pipeline,
  /// call pipeline_engine() instead; the wrong one of the two throws Error(kOrder).
  Engine<Model>& engine() {
    ensure_engine();
    if (!typed_engine_) detail::fail_with_pipeline_engine(true);
    return *typed_engine_;
  }
  PipelineEngine& pipeline_engine() {
    ensure_engine();
    if (!pipeline_engine_) detail::fail_with_pipeline_engine(false);
    return *pipeline_engine_;
  }
  const std::shared_ptr<Model>& model() const { return model_; }
  /// Replaces the data set of evaluate() and predict(), for example by a test set.
  void set_eval_dataset(Dataset<Batch> samples) { parts_.eval_dataset = std::move(samples); }

  /// Predicts for `dataset` instead of eval_dataset. Its samples may lack labels (the target is an
  /// undefined tensor); then only predictions are returned. Every rank calls it.
  EvalLoopOutput predict(const Dataset<Batch>& dataset, const std::string& prefix = "test") {
    struct ReplacedDataset {
      ReplacedDataset(Dataset<Batch>& place, const Dataset<Batch>& dataset)
          : place(place), former(std::exchange(place, dataset)) {}
      ~ReplacedDataset() { place = std::move(former); }
      Dataset<Batch>& place;
      Dataset<Batch> former;
    } replaced(parts_.eval_dataset, dataset);
    return TrainerBase::predict(prefix);
  }
  using TrainerBase::predict;
  EvalLoopOutput predict(const char* prefix) { return TrainerBase::predict(prefix); }  // a string is not a data set

 protected:
  EngineBase& make_engine(const Config& config, std::vector<ParameterGroup> groups) override {
    InitializeOptions<Batch> options{.config = config};
    options.inference = parts_.inference;
    if (!parts_.inference) {
      if (!parts_.optimizer) options.model_parameters = std::move(groups);
      options.optimizer = parts_.optimizer;
      options.lr_scheduler = parts_.lr_scheduler;
    }
    if constexpr (detail::is_pipe_module<Model>()) {
      pipe_module_ = model_;
      pipeline_engine_ = typed_engine_ = gannet::initialize<Batch>(model_, std::move(options)).engine;
    } else if constexpr (detail::HasLayers<Model>) {
      if (pipe_stages(config) == 1) {
        typed_engine_ = gannet::initialize<Batch>(model_, std::move(options)).engine;
      } else {
        if (parts_.compute_loss && !has_models_loss_) detail::fail_with_pipeline_loss();
        pipe::Options stages = detail::pipeline_options<Model, Batch>(model_, arguments().label_smoothing_factor);
        stages.sample = sample_for(config);
        pipe_module_ = std::make_shared<pipe::ModuleImpl>(model_, std::move(stages));
        pipeline_engine_ = gannet::initialize<Batch>(pipe_module_, std::move(options)).engine;
      }
    } else {
      // A program with its own loss may divide the model among stages itself.
      if (pipe_stages(config) > 1 && !parts_.compute_loss) detail::fail_without_layers();
      typed_engine_ = gannet::initialize<Batch>(model_, std::move(options)).engine;
    }
    if (pipeline_engine_) return *pipeline_engine_;
    return *typed_engine_;
  }
  torch::nn::Module& module() override {
    if (pipe_module_) return *pipe_module_;
    return *model_;
  }
  void visit_modules(const std::function<void(const std::string&, const torch::nn::Module&)>& visit) const override {
    if constexpr (detail::is_pipe_module<Model>())
      model_->visit_modules(visit);
    else
      for (const auto& entry : model_->named_modules()) visit(entry.key(), *entry.value());
  }
  bool is_pipeline() const override { return detail::is_pipe_module<Model>() || pipeline_engine_; }
  ProgramDegrees program_degrees() const override {
    if constexpr (detail::is_pipe_module<Model>()) {
      const pipe::Options& options = model_->options();
      if (options.topology) return {options.topology->get_dim("pipe"), std::max<int64_t>(1, options.topology->get_dim("model"))};
      if (options.num_stages) return {*options.num_stages, std::nullopt};
    }
    return {};
  }
  bool is_inference() const override { return parts_.inference; }
  void release_engine() override {
    batches_.close();
    typed_engine_.reset();
    pipeline_engine_.reset();
    if constexpr (!detail::is_pipe_module<Model>()) pipe_module_.reset();
  }

  bool has_train_dataset() const override { return static_cast<bool>(parts_.train_dataset); }
  bool has_own_optimizer() const override { return static_cast<bool>(parts_.optimizer); }
  void open_probe(const LoaderOptions& options) override {
    constexpr int64_t kLookedAt = 64;
    const Dataset<Batch> data = train_data();
    const auto loader =
        parts_.train_loader ? parts_.train_loader(data, options) : make_loader<Batch>(data, parts_.data_collator, options);
    if (!loader->sized()) detail::fail_probing_stream();
    int64_t most = -1, seen = 0;
    for (auto batch = loader->begin(); batch != loader->end() && seen < kLookedAt; ++batch, ++seen) {
      const int64_t elements = detail::elements_of(*batch);
      if (elements <= most) continue;
      most = elements;
      probe_ = std::make_shared<Batch>(std::move(*batch));
    }
    if (!probe_) detail::fail_without("train_dataset", "train");
  }
  at::Tensor measure_probe() override {
    return measure(*probe_, false, items_of(*probe_)).loss / std::max(1.0, items_of(*probe_));
  }
  void close_probe() override { probe_.reset(); }

  bool has_schedule() const override { return static_cast<bool>(parts_.lr_scheduler.function); }
  std::optional<int64_t> own_micro_batches(const LoaderOptions& options) override {
    if (!parts_.train_dataset || !parts_.train_loader) return std::nullopt;
    const auto loader = parts_.train_loader(train_data(), options);
    return loader->sized() ? std::optional(loader->size()) : std::nullopt;
  }
  std::optional<int64_t> train_samples() const override {
    if (!parts_.train_dataset || parts_.train_loader) return std::nullopt;
    auto samples = detail::samples_of(parts_.train_dataset.source());
    if (samples && arguments().max_train_samples) samples = std::min(*samples, *arguments().max_train_samples);
    return samples;
  }
  std::optional<int64_t> hidden_size() override { return detail::hidden_size_of_model(*model_); }
  TrainSize open_train_loader(const LoaderOptions& options) override {
    if (!parts_.train_dataset) detail::fail_without("train_dataset", "train");
    const Dataset<Batch> data = train_data();
    batches_.begin_training();
    if (!batches_.loader()) {
      batches_.set_loader(parts_.train_loader ? parts_.train_loader(data, options)
                                              : make_loader<Batch>(data, parts_.data_collator, options));
      engine_->add_loader("training_data", batches_.loader());
    }
    return {batches_.loader()->sized() ? std::optional(batches_.loader()->size()) : std::nullopt};
  }
  void begin_epoch(std::optional<int64_t> epoch) override { batches_.begin_epoch(epoch); }
  std::vector<double> read_micro_batches(int64_t count) override {
    return batches_.read(count, [this](const Batch& batch) { return items_of(batch); });
  }
  int64_t samples_read() const override {
    int64_t samples = 0;
    for (size_t i = 0; i < batches_.counted(); ++i) samples += samples_in(batches_.at(i));
    return samples;
  }
  bool has_micro_batch() const override { return !batches_.empty(); }
  BatchMeasurement measure_micro_batch(size_t index) override {
    Batch& batch = batches_.at(index);
    return measure(batch, false, index < batches_.counted() ? items_of(batch) : 0);
  }

  bool has_pipeline_step_of(int64_t micro_batches) const override { return pipeline_engine_->has_schedule_for(micro_batches); }
  double train_pipeline(const std::vector<double>& weights, StepResult& result) override {
    size_t next = 0;
    const double loss = pipeline_engine_->train_batch([&]() -> std::optional<pipe::MicroBatch> {
      const size_t i = next++;
      const Batch& batch = batches_.at(i);
      if constexpr (detail::HasDataAndTarget<Batch>)
        if (!batch.target.defined()) detail::fail_without_labels();
      return detail::micro_batch_of<Model>(*model_, batch, input_dtype_, weights[i] > 0, weights[i]);
    });
    result = pipeline_engine_->last_step();
    return loss;
  }

  std::optional<int64_t> eval_samples() const override { return detail::samples_given(parts_.eval_dataset); }
  bool has_metrics() const override { return static_cast<bool>(parts_.compute_metrics); }
  Metrics compute_metrics(const EvalPrediction& prediction) override { return parts_.compute_metrics(prediction); }
  void begin_evaluation(const LoaderOptions& options, bool with_predictions) override {
    if (!parts_.eval_dataset) detail::fail_without("eval_dataset", "evaluate");
    loading::Source source = parts_.eval_dataset.source();
    if (arguments().max_eval_samples) source = detail::first_samples(std::move(source), *arguments().max_eval_samples);
    const auto make = [this](loading::Source share, const LoaderOptions& of_share) {
      const Dataset<Batch> data(std::move(share));
      return parts_.eval_loader ? parts_.eval_loader(data, of_share) : make_loader<Batch>(data, parts_.data_collator, of_share);
    };
    if (!eval_share_.open(source, options, make)) detail::fail_without("eval_dataset", "evaluate");
    with_predictions_ = with_predictions;
  }
  std::optional<EvalBatch> evaluate_batch() override {
    if (pipeline_engine_) {
      if (group_.empty() && !evaluate_group()) return std::nullopt;
      EvalBatch batch = std::move(group_.front());
      group_.pop_front();
      return batch;
    }
    const bool counts = eval_share_.read();
    if (!some_rank_evaluates(counts)) {
      end_evaluation();
      return std::nullopt;
    }
    Batch& read = last_eval_batch();
    const int64_t samples = samples_in(read);
    BatchMeasurement measured = measure(read, with_predictions_, eval_items_of(read, samples));
    EvalBatch batch;
    if (counts) {
      batch.items = eval_items_of(read, samples);
      batch.samples = samples;
      eval_share_.count(samples);
      batch.loss = measured.loss;
    }
    keep_predictions(batch, measured, counts);
    return batch;
  }
  void end_evaluation() override {
    eval_share_.close();
    group_.clear();
  }

 private:
  Batch& last_eval_batch() {
    if (!eval_share_.batch()) detail::fail_without("eval_dataset", "evaluate");
    return *eval_share_.batch();
  }
  // For a batch that does not count, predictions and labels have no rows, but the usual dimensions.
  static void keep_predictions(EvalBatch& batch, const BatchMeasurement& measured, bool counts) {
    batch.predictions = measured.predictions;
    batch.labels = measured.labels;
    if (counts || !batch.predictions.defined()) return;
    batch.predictions = batch.predictions.narrow(0, 0, 0);
    if (batch.labels.defined()) batch.labels = batch.labels.narrow(0, 0, 0);
  }
  // Evaluates several batches at once, since pipeline stages overlap. Returns false at the end.
  bool evaluate_group() {
    std::vector<std::shared_ptr<Batch>> batches;
    std::vector<int64_t> samples;
    while (batches.size() < 2 * pipeline_engine_->num_stages() && eval_share_.read()) {
      batches.push_back(eval_share_.batch());
      samples.push_back(samples_in(*batches.back()));
      eval_share_.count(samples.back());
    }
    const size_t counted = batches.size();
    if (!some_rank_evaluates(counted > 0)) {
      end_evaluation();
      return false;
    }
    last_eval_batch();
    size_t most = counted;
    for (const std::string& other : engine_->gather(std::to_string(counted))) most = std::max<size_t>(most, std::stoull(other));
    batches.resize(most, eval_share_.batch());

    std::vector<double> items;
    std::vector<at::Tensor> labels;
    size_t next = 0, labelled = 0;
    for (const auto& batch : batches) {
      items.push_back(items.size() < counted ? eval_items_of(*batch, samples[items.size()]) : 0);
      if constexpr (detail::HasDataAndTarget<Batch>) labels.push_back(batch->target);
      if (!detail::HasDataAndTarget<Batch> || labels.back().defined()) ++labelled;
    }
    if (labelled != 0 && labelled != most) detail::fail_with_some_labels();
    const auto source = [&]() -> std::optional<pipe::MicroBatch> {
      const size_t i = next++;
      pipe::MicroBatch made = detail::micro_batch_of<Model>(*model_, *batches[i], input_dtype_, items[i] > 0, items[i]);
      if (!detail::HasDataAndTarget<Batch>) labels.push_back(made.labels.empty() ? at::Tensor() : made.labels[0]);
      return made;
    };
    const pipe::EvalResult result = pipeline_engine_->eval_batch(source, {.reduce_output = pipe::EvalOptions::Reduce::kNone,
                                                                          .compute_loss = labelled > 0,
                                                                          .return_logits = with_predictions_,
                                                                          .num_micro_batches = static_cast<int64_t>(most)});
    for (size_t i = 0; i < most; ++i) {
      EvalBatch batch;
      const bool counts = i < counted;
      if (counts) {
        batch.items = items[i];
        batch.samples = samples[i];
        if (labelled > 0) batch.loss = at::scalar_tensor(result.losses[i], at::kDouble);
      }
      // Only one rank of the last stage has the predictions for its samples.
      if (!result.logits.empty() && detail::is_first_of_replicas(*pipeline_engine_))
        keep_predictions(batch, detail::kept({{}, result.logits[i].at(0), labels[i]}, true, parts_), counts);
      if (!batch.predictions.defined()) batch.labels = at::Tensor();
      group_.push_back(std::move(batch));
    }
    return true;
  }
  Dataset<Batch> train_data() const {
    if (!arguments().max_train_samples) return parts_.train_dataset;
    return Dataset<Batch>(detail::first_samples(parts_.train_dataset.source(), *arguments().max_train_samples));
  }
  // The first training micro-batch, with which the config's partition method measures the layers.
  std::optional<pipe::MicroBatch> sample_for(const Config& config) const {
    const Value method = config.get("pipeline.partition").value;
    if (!train_samples() || (method != Value("time") && method != Value("memory"))) return std::nullopt;
    return detail::first_micro_batch<Model, Batch>(*model_, train_data(), parts_.data_collator,
                                                   arguments().per_device_train_batch_size);
  }
  // nullopt for a batch without labels.
  std::optional<double> counted_items(const Batch& batch) const {
    if (parts_.count_items) return parts_.count_items(batch);
    if constexpr (detail::HasDataAndTarget<const Batch>)
      return static_cast<double>(count_labels(detail::labels_of_predictions<Model>(batch.target)));
    // For other batch types in a pipeline, the labels are those of the converted micro-batch.
    using pipe::to_micro_batch;
    if constexpr (!detail::HasDataAndTarget<const Batch> && pipe::ConvertibleToMicroBatch<Batch>)
      if (is_pipeline())
        if (const Wire labels = to_micro_batch(batch).labels; labels.size() == 1)
          return static_cast<double>(count_labels(detail::labels_of_predictions<Model>(labels[0])));
    return std::nullopt;
  }
  double items_of(const Batch& batch) const { return counted_items(batch).value_or(1); }
  double eval_items_of(const Batch& batch, int64_t samples) const {
    return counted_items(batch).value_or(static_cast<double>(samples));
  }
  int64_t samples_in(const Batch& batch) const {
    if constexpr (detail::HasDataAndTarget<const Batch>) {
      const at::Tensor data(batch.data);
      return data.defined() && data.dim() > 0 ? data.size(0) : 1;
    } else if constexpr (std::same_as<Batch, at::Tensor>) {
      return batch.size(0);
    } else {
      // The sample count of a program-defined batch is unknown.
      return eval_share_.samples_in_whole_batch();
    }
  }
  // Measures a batch. The loss is summed over the batch's items.
  BatchMeasurement measure(Batch& batch, bool with_predictions, double items) {
    const detail::MeasuredBatch<Model, Batch> measured{*typed_engine_, *model_, parts_, arguments().label_smoothing_factor,
                                                       input_dtype_};
    return detail::kept(measured.measure(batch, items, with_predictions), with_predictions, parts_);
  }

  std::shared_ptr<Model> model_;
  TrainerParts<Model, Batch> parts_;
  std::shared_ptr<Engine<Model>> typed_engine_;      // null: the model trains as a pipeline
  bool has_models_loss_ = false;                     // compute_loss is the forward of the model itself
  std::shared_ptr<pipe::ModuleImpl> pipe_module_;    // null: no pipeline
  std::shared_ptr<PipelineEngine> pipeline_engine_;  // null: no pipeline
  detail::TrainBatches<Batch> batches_;
  std::shared_ptr<Batch> probe_;  // the batch that auto_find_batch_size tries
  detail::EvalShare<Batch> eval_share_;
  std::deque<EvalBatch> group_;  // evaluated by a pipeline, and not yet returned
  bool with_predictions_ = false;
};

template <class M, class Batch = Example>
Trainer(M, TrainingArguments, TrainerParts<typename detail::TrainedModule<M>::type, Batch>)
    -> Trainer<typename detail::TrainedModule<M>::type, Batch>;

}  // namespace gannet
