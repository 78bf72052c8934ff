// Builds the engine from the arguments: the seeds, the config merged with the arguments, the
// parameter groups.
#include <ATen/Context.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>
#include <gannet/fill_auto.h>
#include <gannet/folder.h>
#include <gannet/log.h>
#include <gannet/pretrained.h>
#include <gannet/trainer_base.h>
#include <gannet/world_size.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <filesystem>

#include "argument_optimizer.h"
#include "argument_table.h"
#include "progress_bar.h"

namespace gannet {
namespace {

bool names(const Config& config, const char* path) { return config.get(path).origin != "default"; }

constexpr const char* kOfArguments = "training arguments";

// Whether the config has its own optimizer entry. Such an entry has one parameter group, as in
// transformers with DeepSpeed, so its weight decay applies to all parameters. With the optimizer
// made from the arguments, biases and normalisation layers have no weight decay.
bool has_own_optimizer_entry(const Config& config) {
  return names(config, "optimizer.type") && config.get("optimizer.type").origin != kOfArguments;
}

// Returns values for keys missing from the config, and for use_cpu and report_to.
Dict additions(const TrainingArguments& a, const Config& config, bool trains) {
  Dict added;
  const bool is_alone = a.deepspeed.is_null() || (a.deepspeed.is_dict() && a.deepspeed.as_dict().empty()) ||
                        (a.deepspeed.is_string() && a.deepspeed.as_string() == "{}");
  if (is_alone) added["gradient_clipping"] = "auto";
  if (trains && !names(config, "optimizer")) added["optimizer"] = arguments::optimizer_entry(a);
  if (a.bf16 && !names(config, "bf16")) added["bf16"] = Dict{{"enabled", true}};
  // Older mixed precision: apex's opt levels are set in the config's amp section.
  const bool is_apex = a.fp16_backend == "apex";
  if (a.fp16 && !is_apex && !names(config, "fp16")) added["fp16"] = Dict{{"enabled", true}};
  if (a.fp16 && is_apex && !names(config, "amp"))
    added["amp"] = Dict{{"enabled", true}, {"opt_level", a.fp16_opt_level.empty() ? "O1" : a.fp16_opt_level}};
  if (a.use_cpu) added["accelerator"] = Dict{{"type", "cpu"}};
  if (is_alone) added["gannet"] = Dict{{"metrics", Dict{{"path", a.output_dir + "/metrics.jsonl"}}}};
  for (const std::string& writer : a.report_to)
    if (writer == "tensorboard" || writer == "all")
      added["tensorboard"] =
          Dict{{"enabled", true}, {"output_path", a.output_dir + "/runs"}, {"job_name", a.run_name.empty() ? "run" : a.run_name}};
  return added;
}

// Sets the config's gannet.ema.decay from ema_decay, which has no counterpart in transformers;
// contradicting the config is still an error.
void add_average(Config& config, const TrainingArguments& a) {
  if (!a.ema_decay) return;
  const Value given = config.get("gannet.ema.decay").value;
  if (given.is_number() && given.as_number() != *a.ema_decay)
    throw Error(ErrorCode::kConfig,
                "the config and the arguments contradict each other: gannet.ema.decay is " + given.to_json() +
                    ", but ema_decay gives " + Value(*a.ema_decay).to_json(),
                "make the two equal, or give one of them");
  config.overwrite(Dict{{"gannet", Dict{{"ema", Dict{{"decay", *a.ema_decay}}}}}}, "training arguments");
}

Config own_config(const TrainingArguments& a, bool trains) {
  Config config = a.deepspeed.is_string() ? Config(a.deepspeed.as_string())
                  : a.deepspeed.is_dict() ? Config(a.deepspeed.as_dict())
                                          : Config(Dict());
  config.overwrite(additions(a, config, trains), kOfArguments);
  if (!a.config_overrides.empty()) config.overwrite(a.config_overrides, "command line");
  add_average(config, a);
  return config;
}

// Batch sizes always count as given, because the Trainer's loaders use those of the arguments.
Dict given_arguments(const TrainingArguments& a, int64_t micro_batch_size) {
  Dict given = a.given_values();
  given["per_device_train_batch_size"] = micro_batch_size;
  given["gradient_accumulation_steps"] = a.gradient_accumulation_steps;
  return given;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// Whether a parameter is a bias or belongs to a normalisation layer. Such layers are recognised by
// module type or by name, as in Hugging Face.
bool is_without_decay(const std::string& name, const std::string& type) {
  if (type.find("LayerNorm") != std::string::npos || type.find("RMSNorm") != std::string::npos) return true;
  const std::string dotted = "." + lower(name) + ".";
  for (const char* part : {"bias", "layernorm", "rmsnorm", ".norm.", "_norm."})
    if (dotted.find(part) != std::string::npos) return true;
  return false;
}

// Returns the dtype of the parameters, to which floating-point inputs are cast, if it has 16 bits;
// nullopt otherwise.
std::optional<at::ScalarType> dtype_of_16_bits(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters())
    if (const auto dtype = parameter.scalar_type(); at::isFloatingType(dtype))
      return dtype == at::kHalf || dtype == at::kBFloat16 ? std::optional(dtype) : std::nullopt;
  return std::nullopt;
}

using VisitModule = std::function<void(const std::string& name, const torch::nn::Module& module)>;
std::vector<ParameterGroup> decay_groups(const std::function<void(const VisitModule&)>& visit_modules) {
  ParameterGroup group{.overrides = {{"weight_decay", 0.0}}, .name = "no_decay"};
  size_t trained = 0;
  visit_modules([&](const std::string& path, const torch::nn::Module& module) {
    for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
      if (!parameter.value().requires_grad()) continue;
      ++trained;
      const std::string name = path.empty() ? parameter.key() : path + "." + parameter.key();
      if (is_without_decay(name, module.name())) group.match.push_back(name);
    }
  });
  if (group.match.empty() || group.match.size() == trained) return {};
  return {group};
}

}  // namespace

// The config is known before the model is built, because from_pretrained needs the ZeRO stage and
// the layout of the ranks.
TrainingArguments::operator PretrainedOptions() const {
  PretrainedOptions options;
  options.config = own_config(*this, /*trains=*/true);
  return options;
}

TrainerBase::TrainerBase(TrainingArguments arguments) : arguments_(std::move(arguments)) {
  arguments_.check();
  const bool needs_metric = arguments_.load_best_model_at_end || arguments_.lr_scheduler_type == "reduce_lr_on_plateau";
  if (needs_metric && arguments_.metric_for_best_model.empty()) arguments_.metric_for_best_model = "loss";
}

TrainerBase::~TrainerBase() = default;

int64_t TrainerBase::pipe_stages(const Config& config) const {
  if (const auto stages = program_degrees().pipe) return *stages;
  for (const char* const key : {"pipeline.stages", "gannet.mesh.pipe"})
    if (const Value stages = config.get(key).value; stages.is_int() && stages.as_int() > 0) return stages.as_int();
  return 1;
}

// The number of ranks with different data.
int64_t TrainerBase::data_ranks(const Config& config) const {
  const Value in_config = config.get("gannet.mesh.tensor").value;
  const int64_t tensor = program_degrees().tensor.value_or(in_config.is_int() ? in_config.as_int() : 1);
  return std::max<int64_t>(1, expected_world_size() / pipe_stages(config) / std::max<int64_t>(1, tensor));
}

void TrainerBase::initialize() {
  at::manual_seed(static_cast<uint64_t>(arguments_.seed));
  if (arguments_.tf32) {
    at::globalContext().setAllowTF32CuBLAS(*arguments_.tf32);
    at::globalContext().setAllowTF32CuDNN(*arguments_.tf32);
  }
  const std::string& level = arguments_.log_level;
  if (level != "passive")
    set_log_level(level == "debug"     ? LogLevel::kDebug
                  : level == "info"    ? LogLevel::kInfo
                  : level == "warning" ? LogLevel::kWarning
                                       : LogLevel::kError);
  const auto samples = eval_samples();
  if (arguments_.eval_strategy != "no" && samples == -1)
    throw Error(ErrorCode::kArgument, "eval_strategy is " + arguments_.eval_strategy + ", but there is no eval_dataset",
                "give .eval_dataset to the Trainer, or set eval_strategy to no");
  // Fails now rather than hours later, at the first evaluation.
  const char* const evaluates = arguments_.eval_strategy != "no" ? "eval_strategy"
                                : arguments_.eval_on_start       ? "eval_on_start"
                                : arguments_.do_eval             ? "do_eval"
                                                                 : nullptr;
  if (evaluates && samples == 0)
    throw Error(ErrorCode::kArgument, std::string("eval_dataset is empty, and ") + evaluates + " asks for evaluations",
                "give it samples, or ask for no evaluation");
  const std::string& metric = arguments_.metric_for_best_model;
  if (arguments_.eval_strategy != "no" && !metric.empty() && metric != "loss" && metric != "eval_loss" &&
      (!has_metrics() || arguments_.prediction_loss_only))
    throw Error(ErrorCode::kArgument,
                "metric_for_best_model is '" + metric + "', and evaluations without compute_metrics have only eval_loss",
                "give .compute_metrics, which returns it, or name loss");
  fire(TrainerEventKind::kInitEnd);
}

EngineBase& TrainerBase::ensure_engine() {
  if (engine_) return *engine_;
  check_folder(arguments_.output_dir);
  micro_batch_size_ = arguments_.per_device_train_batch_size;
  const bool finds = arguments_.auto_find_batch_size && !is_inference() && has_train_dataset();
  if (finds) {
    const Config config = own_config(arguments_, /*trains=*/true);
    if (is_pipeline() || pipe_stages(config) > 1)
      throw Error(ErrorCode::kUnsupported,
                  "auto_find_batch_size with a pipeline: a stage that is out of memory leaves the others waiting",
                  "choose the size by `gannet estimate` (docs/estimate.md)");
    zero_stage_ = config.stage();
    check_batch_size_can_be_tried(zero_stage_, data_ranks(config));
  }
  make_engine_for_batch();
  if (finds) {
    try {
      find_batch_size();
    } catch (...) {
      end_engine();
      throw;
    }
  }
  return *engine_;
}

void TrainerBase::end_engine() {
  engine_ = nullptr;
  release_engine();
}

void TrainerBase::make_engine_for_batch() {
  Config made = own_config(arguments_, !is_inference());
  const int64_t ranks = data_ranks(made);
  if (micro_batch_size_ != arguments_.per_device_train_batch_size) {  // the config's sizes follow the one that was found
    Dict sizes;
    if (made.get("train_micro_batch_size_per_gpu").value.is_int()) sizes["train_micro_batch_size_per_gpu"] = micro_batch_size_;
    if (made.get("train_batch_size").value.is_int())
      sizes["train_batch_size"] = micro_batch_size_ * arguments_.gradient_accumulation_steps * ranks;
    if (!sizes.empty()) made.overwrite(sizes, "auto_find_batch_size");
  }
  const bool drops = made.get("gannet.leftover_micro_batches").value == Value("drop");
  // For inference, 1 is the length of a schedule that never runs.
  const std::optional<int64_t> updates = is_inference() ? 1 : planned_updates(ranks, drops);
  // The number of updates is unknown without training data, and for a stream without max_steps;
  // plan_run() refuses the latter.
  const bool adds_schedule = !is_inference() && !has_schedule() && made.get("scheduler.type").value.is_null() && updates;
  const bool owns_optimizer = !is_inference() && !has_own_optimizer() && !has_own_optimizer_entry(made);
  const Dict given = given_arguments(arguments_, micro_batch_size_);
  fill_auto(made, given,
            {.world_size = ranks, .num_training_steps = updates, .hidden_size = hidden_size(), .add_missing = adds_schedule});
  if (updates && !is_inference() && made.get("gannet.total_steps").value == Value(int64_t{0}))
    made.fill("gannet.total_steps", *updates, "trainer");
  scheduled_updates_ = adds_schedule ? updates : std::nullopt;
  const bool has_decay = arguments_.weight_decay > 0 && owns_optimizer;
  engine_ = &make_engine(
      made, has_decay ? decay_groups([this](const VisitModule& visit) { visit_modules(visit); }) : std::vector<ParameterGroup>());
  if (!is_inference() && is_first())
    for (const std::string& line : arguments_without_effect(made, given)) log_info(line);
  input_dtype_ = dtype_of_16_bits(module());
  if (arguments_.tf32 && engine_->device().is_cpu() && is_first()) log_info("no effect: tf32 (the run is on a CPU)");
  loss_since_log_ = at::zeros({}, at::TensorOptions(at::kDouble).device(engine_->device()));
  // State that differs between ranks: the losses since the last log. The other numbers are the same
  // on all ranks.
  engine_->add_state(
      "trainer",
      [this]() -> Value {
        return Dict{{"loss_since_log", loss_since_log_.item<double>()},
                    {"losses_since_log", losses_since_log_},
                    {"ranks", int64_t{engine_->world_size()}}};
      },
      [this](const Value& saved) {
        const double ranks = static_cast<double>(saved.at("ranks").as_int());
        const Value* const losses = saved.as_dict().find("losses_since_log");  // older checkpoints: every update has a loss
        restored_losses_ = losses ? std::optional(losses->as_int()) : std::nullopt;
        loss_since_log_.fill_(saved.at("loss_since_log").as_number() * ranks / engine_->world_size());
      });
  engine_->end_steps_with_epochs(
      [this] { return is_pipeline() ? pipeline_step_end_ - engine_->micro_steps() : micro_batches_left_; });
  if (arguments_.gradient_checkpointing.value_or(false) || arguments_.activation_checkpointing.value_or(false))
    engine_->gradient_checkpointing_enable();
}

}  // namespace gannet
