// The table of arguments: a row for each member of TrainingArguments, in the order of the members.
#include <gannet/error.h>

#include <utility>

#include "argument_optimizer.h"
#include "argument_table.h"
#include "convert_argument.h"

namespace gannet::arguments {
namespace {

constexpr ArgumentState kWorks = ArgumentState::kWorks, kRefused = ArgumentState::kRefused, kNoEffect = ArgumentState::kNoEffect;
using A = TrainingArguments;

ArgumentRange above(double least) { return {.least = least, .is_open_below = true}; }
ArgumentRange at_least(double least) { return {.least = least}; }
ArgumentRange choices(std::vector<std::string> names) { return {.choices = std::move(names)}; }

template <class T>
ArgumentRow row(const char* name, T A::* member, ArgumentRange range, ArgumentState state, const char* text) {
  ArgumentRow made;
  made.name = name;
  made.type = ArgumentConversion<T>::type();
  made.range = std::move(range);
  made.state = state;
  (state == kWorks ? made.meaning : made.reason) = text;
  made.is_optional = ArgumentConversion<T>::kIsOptional;
  made.get = [member](const A& arguments) { return ArgumentConversion<T>::value(arguments.*member); };
  made.set = [member, name = made.name, range = made.range](A& arguments, const Value& value) {
    arguments.*member = ArgumentConversion<T>::from(name, value);
    check_range(name, range, ArgumentConversion<T>::value(arguments.*member));
  };
  return made;
}

}  // namespace

const std::vector<ArgumentRow>& rows() {
  // clang-format off
  static const std::vector<ArgumentRow>& table = *new std::vector<ArgumentRow>{
      row("output_dir", &A::output_dir, {}, kWorks, "folder of checkpoints, logs and the last state"),
      row("per_device_train_batch_size", &A::per_device_train_batch_size, at_least(1), kWorks,
          "samples in a micro-batch of one rank"),
      row("num_train_epochs", &A::num_train_epochs, above(0), kWorks, "passes over the training data; may end within one"),
      row("max_steps", &A::max_steps, {}, kWorks, "updates; above 0 it replaces num_train_epochs"),
      row("learning_rate", &A::learning_rate, at_least(0), kWorks, "the optimizer's; the highest that the schedule reaches"),
      row("lr_scheduler_type", &A::lr_scheduler_type, choices({"linear", "cosine", "constant", "constant_with_warmup",
          "polynomial", "inverse_sqrt", "cosine_with_restarts", "cosine_with_min_lr", "cosine_warmup_with_min_lr",
          "warmup_stable_decay", "reduce_lr_on_plateau"}), kWorks, "the schedule, where the config has none"),
      row("lr_scheduler_kwargs", &A::lr_scheduler_kwargs, {}, kWorks,
          "params of the schedule (docs/schedules.md)"),
      row("warmup_steps", &A::warmup_steps, at_least(0), kWorks,
          "updates over which the rate rises from 0; below 1 a fraction of all, rounded up"),
      row("optim", &A::optim, ArgumentRange{.choices = optimizers(), .otherwise = "any other optimizer plugin by an entry of the config, "
          "\"optimizer\": {\"type\": \"NAME\"} (`gannet plugins list`); memory of paged ones by its offload_optimizer"}, kWorks,
          "the optimizer, where the config has none"),
      row("optim_args", &A::optim_args, {}, kRefused, "give them as optimizer.params of the config"),
      row("weight_decay", &A::weight_decay, at_least(0), kWorks,
          "of all but biases and normalizations; of all with an optimizer in the config"),
      row("adam_beta1", &A::adam_beta1, ArgumentRange{.least = 0, .most = 1, .is_open_above = true}, kWorks,
          "Adam's decay of the first moment"),
      row("adam_beta2", &A::adam_beta2, ArgumentRange{.least = 0, .most = 1, .is_open_above = true}, kWorks,
          "Adam's decay of the second moment"),
      row("adam_epsilon", &A::adam_epsilon, at_least(0), kWorks, "Adam's term beside the root of the second moment"),
      row("optim_target_modules", &A::optim_target_modules, {}, kRefused,
          "there is no optimizer of low-rank gradients (GaLore, APOLLO)"),
      row("gradient_accumulation_steps", &A::gradient_accumulation_steps, at_least(1), kWorks,
          "micro-batches of an update; an epoch's last may hold fewer"),
      row("average_tokens_across_devices", &A::average_tokens_across_devices, {}, kRefused,
          "false would make an update depend on how its batch was cut"),
      row("max_grad_norm", &A::max_grad_norm, at_least(0), kWorks, "largest 2-norm of the gradient; 0: no limit"),
      row("label_smoothing_factor", &A::label_smoothing_factor, ArgumentRange{.least = 0, .most = 1, .is_open_above = true}, kWorks,
          "share of the target spread over all classes"),
      row("bf16", &A::bf16, {}, kWorks, "bf16 parameters with fp32 masters"),
      row("fp16", &A::fp16, {}, kWorks, "fp16 parameters with fp32 masters and a dynamic loss scale"),
      row("bf16_full_eval", &A::bf16_full_eval, {}, kRefused,
          "parameters of another dtype would be other tensors, without the gradient accumulators of the engine's hooks; evaluate what save_16bit_model "
          "wrote, or train in that dtype"),
      row("fp16_full_eval", &A::fp16_full_eval, {}, kRefused,
          "parameters of another dtype would be other tensors, without the gradient accumulators of the engine's hooks; evaluate what save_16bit_model "
          "wrote, or train in that dtype"),
      row("tf32", &A::tf32, {}, kWorks, "TF32 in fp32 matrix products; no effect on a CPU"),
      row("activation_checkpointing", &A::activation_checkpointing, {}, kWorks, "the newer name of gradient_checkpointing"),
      row("activation_checkpointing_kwargs", &A::activation_checkpointing_kwargs, {}, kRefused,
          "choose by the config's activation_checkpointing section (docs/activation.md)"),
      row("gradient_checkpointing", &A::gradient_checkpointing, {}, kWorks,
          "recompute activations of a model that uses run_layers"),
      row("gradient_checkpointing_kwargs", &A::gradient_checkpointing_kwargs, {}, kRefused,
          "choose by the config's activation_checkpointing section (docs/activation.md)"),
      row("torch_compile", &A::torch_compile, {}, kRefused, "nothing is compiled at run time"),
      row("torch_compile_backend", &A::torch_compile_backend, {}, kRefused, "nothing is compiled at run time"),
      row("torch_compile_mode", &A::torch_compile_mode, {}, kRefused, "nothing is compiled at run time"),
      row("use_liger_kernel", &A::use_liger_kernel, {}, kRefused, "Triton kernels of Python models; gannet/nn has fused layers"),
      row("liger_kernel_config", &A::liger_kernel_config, {}, kRefused,
          "Triton kernels of Python models; gannet/nn has fused layers"),
      row("use_cache", &A::use_cache, {}, kNoEffect, "models here keep no cache in training"),
      row("neftune_noise_alpha", &A::neftune_noise_alpha, {}, kRefused, "add the noise in the model"),
      row("torch_empty_cache_steps", &A::torch_empty_cache_steps, {}, kNoEffect, "memory is not handed back"),
      row("auto_find_batch_size", &A::auto_find_batch_size, {}, kWorks,
          "take 0.9 of the batch size while a rank has no memory for it (docs/trainer.md)"),
      row("logging_strategy", &A::logging_strategy, choices({"no", "steps", "epoch"}), kWorks,
          "when loss, norm and rate are logged"),
      row("logging_steps", &A::logging_steps, above(0), kWorks, "updates between logs; below 1 a fraction of all"),
      row("logging_first_step", &A::logging_first_step, {}, kWorks, "log the first update too"),
      row("log_on_each_node", &A::log_on_each_node, {}, kNoEffect, "rank 0 logs"),
      row("logging_nan_inf_filter", &A::logging_nan_inf_filter, {}, kWorks,
          "leave losses that are not finite out of logged means"),
      row("include_num_input_tokens_seen", &A::include_num_input_tokens_seen, choices({"no", "false"}), kRefused,
          "engine->count(\"tokens\", n) counts into the metrics"),
      row("log_level", &A::log_level, choices({"passive", "debug", "info", "warning", "error", "critical"}), kWorks,
          "of Gannet's own lines; passive changes nothing"),
      row("log_level_replica", &A::log_level_replica, {}, kNoEffect, "other ranks log only warnings and errors"),
      row("disable_tqdm", &A::disable_tqdm, {}, kWorks, "no progress bar; by default only terminals have one"),
      row("report_to", &A::report_to, choices({"none", "all", "tensorboard"}), kWorks,
          "writers of logged numbers beside the config's"),
      row("run_name", &A::run_name, {}, kWorks, "the run's name in TensorBoard"),
      row("project", &A::project, {}, kNoEffect, "names something of a network service"),
      row("trackio_space_id", &A::trackio_space_id, {}, kNoEffect, "names something of a network service"),
      row("trackio_bucket_id", &A::trackio_bucket_id, {}, kNoEffect, "names something of a network service"),
      row("trackio_static_space_id", &A::trackio_static_space_id, {}, kNoEffect, "names something of a network service"),
      row("eval_strategy", &A::eval_strategy, choices({"no", "steps", "epoch"}), kWorks, "when eval_dataset is evaluated"),
      row("eval_steps", &A::eval_steps, above(0), kWorks,
          "updates between evaluations; default logging_steps; below 1 a fraction of all"),
      row("eval_delay", &A::eval_delay, at_least(0), kWorks, "epochs or updates (as eval_strategy) before the first evaluation"),
      row("per_device_eval_batch_size", &A::per_device_eval_batch_size, at_least(1), kWorks,
          "samples in an evaluation's batch of one rank"),
      row("prediction_loss_only", &A::prediction_loss_only, {}, kWorks, "evaluate without compute_metrics"),
      row("eval_on_start", &A::eval_on_start, {}, kWorks, "evaluate before the first update"),
      row("eval_do_concat_batches", &A::eval_do_concat_batches, {}, kRefused, "false is not built: predictions are one tensor"),
      row("eval_use_gather_object", &A::eval_use_gather_object, {}, kNoEffect, "tensors of any sizes are gathered"),
      row("eval_accumulation_steps", &A::eval_accumulation_steps, {}, kNoEffect,
          "predictions move to the host after each batch"),
      row("include_for_metrics", &A::include_for_metrics, {}, kRefused, "keep more in a compute_loss of your own"),
      row("batch_eval_metrics", &A::batch_eval_metrics, {}, kWorks,
          "call compute_metrics for each batch, and with is_last_call for the result"),
      row("save_only_model", &A::save_only_model, {}, kWorks, "save only weights: no resume from them"),
      row("save_strategy", &A::save_strategy, choices({"no", "steps", "epoch", "best"}), kWorks,
          "when a checkpoint is saved"),
      row("save_steps", &A::save_steps, above(0), kWorks, "updates between checkpoints; below 1 a fraction of all"),
      row("save_on_each_node", &A::save_on_each_node, {}, kWorks,
          "each machine keeps its ranks' files (checkpoint.use_node_local_storage)"),
      row("save_total_limit", &A::save_total_limit, at_least(1), kWorks, "checkpoints kept, the best beside them"),
      row("enable_jit_checkpoint", &A::enable_jit_checkpoint, {}, kNoEffect, "SIGTERM always saves"),
      row("push_to_hub", &A::push_to_hub, {}, kRefused,
          "nothing is uploaded: send the folder of save_model() with huggingface_hub"),
      row("hub_token", &A::hub_token, {}, kRefused, "nothing is uploaded: send the folder of save_model() with huggingface_hub"),
      row("hub_private_repo", &A::hub_private_repo, {}, kRefused,
          "nothing is uploaded: send the folder of save_model() with huggingface_hub"),
      row("hub_model_id", &A::hub_model_id, {}, kRefused,
          "nothing is uploaded: send the folder of save_model() with huggingface_hub"),
      row("hub_strategy", &A::hub_strategy, {}, kNoEffect, "nothing is uploaded"),
      row("hub_always_push", &A::hub_always_push, {}, kRefused,
          "nothing is uploaded: send the folder of save_model() with huggingface_hub"),
      row("hub_revision", &A::hub_revision, {}, kRefused,
          "nothing is uploaded: send the folder of save_model() with huggingface_hub"),
      row("load_best_model_at_end", &A::load_best_model_at_end, {}, kWorks, "put the best checkpoint's weights into the model"),
      row("metric_for_best_model", &A::metric_for_best_model, {}, kWorks, "the metric that decides; \"eval_\" may be left out"),
      row("greater_is_better", &A::greater_is_better, {}, kWorks, "whether more of it is better"),
      row("ignore_data_skip", &A::ignore_data_skip, {}, kWorks, "a resume begins its epoch at the first sample"),
      row("restore_callback_states_from_checkpoint", &A::restore_callback_states_from_checkpoint, {}, kNoEffect,
          "a resume always restores them"),
      row("full_determinism", &A::full_determinism, {}, kNoEffect, "CPU runs repeat bit for bit"),
      row("seed", &A::seed, at_least(0), kWorks, "of random numbers"),
      row("data_seed", &A::data_seed, at_least(0), kWorks, "of the samples' order; default seed"),
      row("use_cpu", &A::use_cpu, {}, kWorks, "train on the CPU though there is a device"),
      row("accelerator_config", &A::accelerator_config, {}, kRefused,
          "configures accelerate; data are split by the loader (docs/data.md)"),
      row("parallelism_config", &A::parallelism_config, {}, kRefused, "configures accelerate; see gannet.mesh of the config"),
      row("dataloader_drop_last", &A::dataloader_drop_last, {}, kWorks, "leave out a last micro-batch that is not full"),
      row("dataloader_num_workers", &A::dataloader_num_workers, at_least(0), kWorks, "threads that prepare batches"),
      row("dataloader_pin_memory", &A::dataloader_pin_memory, {}, kNoEffect, "the accelerator decides"),
      row("dataloader_persistent_workers", &A::dataloader_persistent_workers, {}, kNoEffect, "threads live for their epoch"),
      row("dataloader_prefetch_factor", &A::dataloader_prefetch_factor, at_least(1), kWorks,
          "batches that each worker keeps ready"),
      row("dataloader_multiprocessing_context", &A::dataloader_multiprocessing_context, {}, kNoEffect, "workers are threads"),
      row("dataloader_in_order", &A::dataloader_in_order, {}, kNoEffect, "batches come in order"),
      row("remove_unused_columns", &A::remove_unused_columns, {}, kNoEffect, "a batch is what the data set gives"),
      row("label_names", &A::label_names, {}, kNoEffect, "labels are a batch's target"),
      row("train_sampling_strategy", &A::train_sampling_strategy, choices({"random", "sequential"}), kWorks,
          "order of the training samples"),
      row("length_column_name", &A::length_column_name, {}, kNoEffect, "samples are not grouped by length"),
      row("ddp_find_unused_parameters", &A::ddp_find_unused_parameters, {}, kNoEffect,
          "parameters without a gradient get zeros"),
      row("ddp_bucket_cap_mb", &A::ddp_bucket_cap_mb, {}, kNoEffect, "the config has reduce_bucket_size"),
      row("ddp_broadcast_buffers", &A::ddp_broadcast_buffers, {}, kNoEffect, "buffers stay each rank's own"),
      row("ddp_static_graph", &A::ddp_static_graph, {}, kNoEffect, "the graph may change"),
      row("ddp_backend", &A::ddp_backend, {}, kRefused, "name the plugin in the config: \"comm\": {\"type\": \"gloo\"}"),
      row("ddp_timeout", &A::ddp_timeout, at_least(1), kNoEffect, "the config has gannet.timeout_seconds"),
      row("fsdp", &A::fsdp, {}, kRefused, "sharding is zero_optimization of the config"),
      row("fsdp_config", &A::fsdp_config, {}, kRefused, "sharding is zero_optimization of the config"),
      row("deepspeed", &A::deepspeed, {}, kWorks, "the engine's config: a file, JSON text or a dictionary"),
      row("debug", &A::debug, {}, kRefused, "underflow_overflow is the config's gradient check"),
      row("skip_memory_metrics", &A::skip_memory_metrics, {}, kRefused,
          "false is not built: metrics report memory (docs/metrics.md)"),
      row("do_train", &A::do_train, {}, kWorks, "for the program: train"),
      row("do_eval", &A::do_eval, {}, kWorks, "for the program: evaluate"),
      row("do_predict", &A::do_predict, {}, kWorks, "for the program: predict"),
      row("resume_from_checkpoint", &A::resume_from_checkpoint, {}, kWorks,
          "a checkpoint-N, or \"last\": output_dir's newest, else a fresh start"),
      row("local_rank", &A::local_rank, {}, kNoEffect, "the launcher's variables say the rank"),
      row("max_train_samples", &A::max_train_samples, at_least(1), kWorks, "use this many training samples"),
      row("max_eval_samples", &A::max_eval_samples, at_least(1), kWorks, "use this many evaluation samples"),
      row("ema_decay", &A::ema_decay, ArgumentRange{.least = 0, .most = 1, .is_open_above = true}, kWorks,
          "evaluate with a moving average of the parameters, gannet.ema of the config"),
  };
  // clang-format on
  return table;
}

}  // namespace gannet::arguments
