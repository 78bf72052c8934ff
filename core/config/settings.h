// The settings of a run: the effective value of every key that Gannet acts on, after defaults,
// conversions, "auto" and the batch triad. They are plain values, which resolve() (resolve.h)
// computes from a Document and the number of ranks.
//
// Each member is bound to the row of its key (keys_<subject>.cpp), which holds its default; this
// file sets no defaults. A null in the config leaves a member empty: nullopt, "" or 0.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gannet::config {

enum class DType { kFloat32, kFloat16, kBFloat16 };

struct Fp16 {
  bool enabled;
  double loss_scale;  // 0: dynamic
  int64_t initial_scale_power;
  int64_t loss_scale_window;
  int64_t hysteresis;
  bool consecutive_hysteresis;
  int64_t min_loss_scale;
};

struct Bf16 {
  bool enabled;
  bool check_grad_overflow;
  bool without_masters;  // parameters are their own masters, in bf16
  bool bf16_states;      // states are also bf16, in optimizers that take such parameters
};

struct TorchAutocast {
  bool enabled;
  std::optional<DType> dtype;  // null: the device's default
};

struct Amp {
  bool enabled;
  std::string opt_level;  // O0 to O3
};

// The target to which ZeRO offloads tensors that are not in use: the name of an Offload plugin, and
// the values that the plugin's schema may request.
struct OffloadTarget {
  std::string device;  // "none" or "": no offload
  Dict params;         // the values of the block and of the aio section
  explicit operator bool() const { return !device.empty() && device != "none"; }
};

struct OffloadOptimizer : OffloadTarget {
  int64_t buffer_count;
};

struct OffloadParam : OffloadTarget {
  int64_t max_in_cpu;  // the number of elements that stay in host memory
};

struct Zero {
  int64_t stage;
  // The sizes below are numbers of elements.
  int64_t reduce_bucket_size;
  int64_t sub_group_size;
  int64_t prefetch_bucket_size;
  int64_t param_persistence_threshold;  // a parameter of at most this size stays unsharded ...
  int64_t model_persistence_threshold;  // ... while all such parameters together have at most this many elements
  int64_t max_live_parameters;
  int64_t max_reuse_distance;
  bool gather_16bit_on_save;  // whether save_16bit_model writes at stage 3
  OffloadOptimizer offload_optimizer;
  OffloadParam offload_param;
};

// Counts the operations of one step.
struct FlopsProfiler {
  bool enabled;
  double recompute_fwd_factor;
  int64_t profile_step;  // number of steps before the profiled one
  int64_t module_depth;  // -1: all
  int64_t top_modules;
  bool detailed;
  std::string output_file;  // "": the log
};

// A value of `keep`: saved tensors stay on the device.
inline constexpr const char* kKeepOnDevice = "device";

// Activation checkpointing: what its regions keep, and where (docs/activation.md).
struct ActivationCheckpointing {
  // The keys of DeepSpeed's section, which concern the inputs of regions.
  bool partition_activations;
  bool cpu_checkpointing;
  bool contiguous_memory_optimization;
  std::optional<int64_t> number_checkpoints;
  bool synchronize_checkpoint_boundary;
  bool profile;
  // Gannet's own block.
  std::string device;                   // the Offload plugin of cpu_checkpointing
  std::string nvme_path;                // "": the path that ZeRO offloads to
  std::vector<std::string> recompute;   // names of the operators whose results are recomputed
  std::string keep;                     // where saved tensors are kept: "device", or an Offload plugin
  std::optional<int64_t> interval;      // layers in a region
  std::optional<int64_t> memory_limit;  // bytes
};

// A block of the form {"type": ..., "params": {...}}. The plugin's own schema checks params later.
struct PluginChoice {
  std::string type;  // "" if the block is absent and has no default; some blocks default to "auto"
  Dict params;
};

// The optimizer block also has parameter groups: objects with `match`, an optional `name`, and
// overrides of params.
struct OptimizerChoice : PluginChoice {
  List param_groups;
};

// The sizes of the mesh's axes, where the config gives them.
struct MeshDegrees {
  std::optional<int64_t> pipe, data, tensor, expert;
};

// Output folder of one of DeepSpeed's monitors.
struct MonitorFolder {
  bool enabled;
  std::string output_path, job_name;
  std::string folder() const { return output_path.empty() ? job_name : output_path + "/" + job_name; }
};

struct Ema {
  std::optional<double> decay;  // none: no moving average
  bool warmup;
  int64_t update_after_step;
};

// The steps to write as a Chrome trace, and the file to write.
struct TraceSettings {
  std::string path;  // "": none
  int64_t first_step, last_step;
};

// Holds only the members, as an aggregate, so that a test can count them. Other code uses Settings.
struct SettingsMembers {
  // The batch triad. After resolve() it is complete and consistent with the number of ranks;
  // before, a size that the config does not give is 0.
  int64_t train_batch_size;
  int64_t micro_batch_size;
  int64_t accumulation_steps;

  OptimizerChoice optimizer;
  PluginChoice scheduler, accelerator, comm;
  std::string comm_host;  // the Comm plugin for data in host memory: numbers and strings
  MeshDegrees mesh;
  std::string pipe_schedule;
  bool pipe_recompute_twice;                // recompute in both passes of a split backward; else keep the first pass's results
  std::optional<double> pipe_memory_limit;  // activations that a stage may keep, in micro-batches; null: no limit
  std::optional<int64_t> pipeline_stages;
  Dict pipeline;                             // the section pipeline: partition, seed_layers, activation_checkpoint_interval
  std::vector<std::string> plugins_allowed;  // files or folders, "plugins": {"allow": [...]}
  std::vector<std::string> plugin_paths;     // files or folders, "plugins": {"path": [...]}
  std::string plugins_trusted;               // a list of hashes; "": none; "true": the user's own list (plugin/trust.h)

  double gradient_clipping;  // 0: off
  bool prescale_gradients;
  double gradient_predivide_factor;
  bool gradient_sum;  // gradient_allreduce_op: "sum"
  std::optional<DType> communication_data_type;
  std::optional<DType> grad_accum_dtype;
  std::optional<DType> param_dtype;
  std::optional<DType> buffer_dtype;
  Fp16 fp16;
  Bf16 bf16;
  TorchAutocast torch_autocast;
  Amp amp;
  Zero zero;
  Dict aio;  // the values of the section by key, for the plugins that ZeRO offloads with

  ActivationCheckpointing activation_checkpointing;

  std::string tag_validation;  // if ranks save with different tags: Ignore | Warn | Fail

  std::optional<int64_t> steps_per_print;
  bool wall_clock_breakdown;
  FlopsProfiler flops_profiler;
  bool dataloader_drop_last;
  std::string log_level;  // "" when not set
  bool dump_state;
  MonitorFolder tensorboard, csv_monitor;

  // "gannet": {...}
  std::string leftover_micro_batches;  // carry | drop | step: how micro-batches left over at the end of an epoch are handled
  int64_t seed;                        // for the loader's shuffling, and for optimizers that draw random numbers
  bool shuffle;
  int64_t data_workers;           // threads that prepare batches; 0: the caller's thread
  int64_t max_consecutive_skips;  // limit on skips in a row; beyond it, a skip that does not lower the loss scale is an error
  bool debug_plugins;             // optimizers work on watched copies of their arrays
  int64_t total_steps;            // planned updates of the run; 0: unknown
  Ema ema;                        // the moving average of the parameters
  bool check_memory;              // whether to refuse a run that needs more memory than the machine has
  bool checkpoint_async;
  bool checkpoint_on_each_machine;
  int64_t checkpoint_keep;   // 0: all
  std::string metrics_path;  // "": no metrics file
  TraceSettings trace;
  std::optional<double> timeout_seconds;   // deadline of rendezvous and collectives; default 600, or DEEPSPEED_TIMEOUT (minutes)
  int64_t fingerprint_every;               // steps between comparisons of replicated state across ranks; 0: never
  std::optional<double> deadline_seconds;  // how long a call waits for a late rank; default timeout_seconds
};

struct Settings : SettingsMembers {
  Settings();  // the defaults of the rows
};

}  // namespace gannet::config
