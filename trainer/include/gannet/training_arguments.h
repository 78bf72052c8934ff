/// The arguments of a training run, under Hugging Face's names and with its defaults (transformers 5).
///
///   auto arguments = gannet::parse_training_arguments(argc, argv);     // --output_dir out --learning_rate 3e-4 ...
///   gannet::TrainingArguments arguments{.output_dir = "out", .learning_rate = 3e-4, .deepspeed = "ds_config.json"};
///
/// One table (trainer/argument_rows.cpp) has a row for each argument: its range, its meaning, and
/// whether it works, is refused or is ignored. The parser, --help, argument files, completion
/// and docs/training_arguments.md are derived from it.
#pragma once

#include <gannet/stop.h>
#include <gannet/value.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gannet {

struct PretrainedOptions;

struct TrainingArguments {
  std::string output_dir = "trainer_output";
  int64_t per_device_train_batch_size = 8;
  double num_train_epochs = 3.0;
  int64_t max_steps = -1;
  double learning_rate = 5e-5;
  std::string lr_scheduler_type = "linear";
  Dict lr_scheduler_kwargs = {};
  double warmup_steps = 0;  ///< below 1: a fraction of all steps, rounded up
  std::string optim = "adamw_torch_fused";
  std::string optim_args = "";
  double weight_decay = 0;
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  std::vector<std::string> optim_target_modules = {};
  int64_t gradient_accumulation_steps = 1;
  bool average_tokens_across_devices = true;
  double max_grad_norm = 1.0;
  double label_smoothing_factor = 0;
  bool bf16 = false;
  bool fp16 = false;
  bool bf16_full_eval = false;
  bool fp16_full_eval = false;
  std::optional<bool> tf32 = {};
  std::optional<bool> activation_checkpointing = {};
  Dict activation_checkpointing_kwargs = {};
  std::optional<bool> gradient_checkpointing = {};
  Dict gradient_checkpointing_kwargs = {};
  bool torch_compile = false;
  std::string torch_compile_backend = "";
  std::string torch_compile_mode = "";
  bool use_liger_kernel = false;
  Dict liger_kernel_config = {};
  bool use_cache = false;
  std::optional<double> neftune_noise_alpha = {};
  std::optional<int64_t> torch_empty_cache_steps = {};
  bool auto_find_batch_size = false;
  std::string logging_strategy = "steps";
  double logging_steps = 500;  ///< below 1: a fraction of all steps, rounded up
  bool logging_first_step = false;
  bool log_on_each_node = true;
  bool logging_nan_inf_filter = true;
  std::string include_num_input_tokens_seen = "no";
  std::string log_level = "passive";
  std::string log_level_replica = "warning";
  std::optional<bool> disable_tqdm = {};  ///< default: true unless stderr is a terminal
  std::vector<std::string> report_to = {"none"};
  std::string run_name = "";
  std::string project = "huggingface";
  std::string trackio_space_id = "";
  std::string trackio_bucket_id = "";
  std::string trackio_static_space_id = "";
  std::string eval_strategy = "no";
  std::optional<double> eval_steps = {};  ///< default: logging_steps
  double eval_delay = 0;
  int64_t per_device_eval_batch_size = 8;
  bool prediction_loss_only = false;
  bool eval_on_start = false;
  bool eval_do_concat_batches = true;
  bool eval_use_gather_object = false;
  std::optional<int64_t> eval_accumulation_steps = {};
  std::vector<std::string> include_for_metrics = {};
  bool batch_eval_metrics = false;
  bool save_only_model = false;
  std::string save_strategy = "steps";
  double save_steps = 500;  ///< below 1: a fraction of all steps, rounded up
  bool save_on_each_node = false;
  std::optional<int64_t> save_total_limit = {};
  bool enable_jit_checkpoint = false;
  bool push_to_hub = false;
  std::string hub_token = "";
  std::optional<bool> hub_private_repo = {};
  std::string hub_model_id = "";
  std::string hub_strategy = "every_save";
  bool hub_always_push = false;
  std::string hub_revision = "";
  bool load_best_model_at_end = false;
  std::string metric_for_best_model = "";      ///< default: "loss" where another argument needs one
  std::optional<bool> greater_is_better = {};  ///< default: true unless the metric's name ends in "loss"
  bool ignore_data_skip = false;
  bool restore_callback_states_from_checkpoint = false;
  bool full_determinism = false;
  int64_t seed = 42;
  std::optional<int64_t> data_seed = {};
  bool use_cpu = false;
  Dict accelerator_config = {};
  Dict parallelism_config = {};
  bool dataloader_drop_last = false;
  int64_t dataloader_num_workers = 0;
  bool dataloader_pin_memory = true;
  bool dataloader_persistent_workers = false;
  std::optional<int64_t> dataloader_prefetch_factor = {};
  std::string dataloader_multiprocessing_context = "";
  bool dataloader_in_order = true;
  bool remove_unused_columns = true;
  std::vector<std::string> label_names = {};
  std::string train_sampling_strategy = "random";
  std::string length_column_name = "length";
  std::optional<bool> ddp_find_unused_parameters = {};
  std::optional<int64_t> ddp_bucket_cap_mb = {};
  std::optional<bool> ddp_broadcast_buffers = {};
  std::optional<bool> ddp_static_graph = {};
  std::string ddp_backend = "";
  int64_t ddp_timeout = 1800;
  std::string fsdp = "";
  Dict fsdp_config = {};
  Value deepspeed = {};  ///< null, the path of a config, JSON text, or a dictionary
  std::string debug = "";
  bool skip_memory_metrics = true;
  bool do_train = false;
  bool do_eval = false;
  bool do_predict = false;
  std::string resume_from_checkpoint = "";  ///< the path of a checkpoint-N, or "last": the newest one, or else a fresh start
  int64_t local_rank = -1;

  // Arguments of transformers' example scripts.
  std::optional<int64_t> max_train_samples = {};
  std::optional<int64_t> max_eval_samples = {};

  // Specific to Gannet.
  std::optional<double> ema_decay = {};

  // For older commands: "apex" maps fp16 to the config's amp section, with this level.
  std::string fp16_backend = "";
  std::string fp16_opt_level = "";

  /// Names of the arguments that were given, even if they have their default values. A command
  /// line, a file and a dictionary fill this in; a program that fills this struct may do so too. An
  /// argument named here conflicts with any different value in the config; one that is not named
  /// conflicts only if it differs from its default.
  std::vector<std::string> given = {};

  // The following are not arguments; parse_training_arguments sets them.
  Dict config_overrides = {};                    ///< from --set; merged over the config
  std::shared_ptr<const StopSignals> stop = {};  ///< null: signals end the process as they would without a Trainer

  /// Throws Error(kArgument) or Error(kUnsupported) with all mistakes: values out of range, refused
  /// arguments, contradictory strategies.
  void check() const;
  /// Arguments that differ from their defaults, by name.
  Dict changed() const;
  /// The same, and also the arguments in `given`; fill_auto compares them with the config.
  Dict given_values() const;
  /// Used by gannet::from_pretrained<Gpt>("folder", arguments), which builds the model for the
  /// run's config.
  operator PretrainedOptions() const;
};

struct ParseOptions {
  /// The program's own options, such as "--text". They stay in argv with their values, which extend
  /// to the next option.
  std::vector<std::string> leave = {};
  /// Whether SIGTERM and SIGUSR1 end training after a checkpoint (gannet/stop.h).
  bool handle_signals = true;
};

/// Takes the arguments out of the command line: `--name value`, `--name=value`, `--flag`,
/// `--no_flag`; dashes and underscores are equivalent. `--arguments FILE` (or a first word that
/// ends in .json, .yaml or .yml) reads a file; the command line takes precedence. `--deepspeed
/// FILE` and `--set key=value` are as in take_config_arguments. `--help` and `--completion bash`
/// print and end the process. Throws an Error(kArgument) that lists all mistakes, with suggestions
/// for unknown names; other errors are those of check() and of reading the files.
TrainingArguments parse_training_arguments(int& argc, char** argv, const ParseOptions& options = {});
/// The same, from a dictionary or from a JSON or YAML file.
TrainingArguments training_arguments_from(const Dict& values);
TrainingArguments training_arguments_from_file(const std::string& path);

/// Reads the arguments in a file for gannet::fill_auto, under their current names; older spellings
/// are converted. Reports the same mistakes as training_arguments_from_file, except that two kinds
/// are only notes: an argument that the Trainer refuses, since a program with its own loop may
/// accept it, and the model and data arguments that transformers' example scripts read from the
/// same file.
struct GivenArguments {
  Dict values;
  std::vector<std::string> notes;
};
GivenArguments given_training_arguments(const std::string& path);

/// Renders the whole table: as --help text, as bash completion, and as docs/training_arguments.md.
std::string training_arguments_help();
std::string training_arguments_completion(const std::string& program);
std::string training_arguments_markdown();

}  // namespace gannet
