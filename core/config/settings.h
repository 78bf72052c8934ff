// What the engine reads: the effective value of every key that Gannet acts on, after defaults, conversions, "auto" and the
// batch triad. Plain values; made by resolve() (resolve.h) from a Document and the number of ranks.
#pragma once

#include <gannet/value.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gannet::config {

enum class DType { kFloat32, kFloat16, kBFloat16 };

struct Fp16 {
  bool enabled = false;
  bool auto_cast = false;
  double loss_scale = 0;  // 0: dynamic
  int64_t initial_scale_power = 16;
  int64_t loss_scale_window = 1000;
  int64_t hysteresis = 2;
  bool consecutive_hysteresis = false;
  int64_t min_loss_scale = 1;
};

struct Bf16 {
  bool enabled = false;
  bool check_grad_overflow = true;
};

// Where ZeRO puts what is not in use: an Offload plugin by name, and what its schema may ask for.
struct OffloadTo {
  std::string device;  // "": nowhere
  Dict params;         // the block's and the aio section's
  int64_t buffer_count = 4;
  int64_t max_in_cpu = 1'000'000'000;  // of parameters: elements that stay in memory
  explicit operator bool() const { return !device.empty(); }
};

struct Zero {
  int64_t stage = 0;
  // All in elements.
  int64_t reduce_bucket_size = 500'000'000;
  int64_t sub_group_size = 1'000'000'000;
  int64_t prefetch_bucket_size = 50'000'000;
  int64_t param_persistence_threshold = 100'000;    // a parameter of so many or fewer stays whole ...
  int64_t model_persistence_threshold = INT64_MAX;  // ... as far as all of them together have no more than this
  int64_t max_live_parameters = 1'000'000'000;
  int64_t max_reuse_distance = 1'000'000'000;
  bool gather_16bit_on_save = false;  // whether save_16bit_model writes at stage 3
  OffloadTo offload_optimizer, offload_param;
};

// Counts the operations of one step.
struct FlopsProfiler {
  bool enabled = false;
  double recompute_fwd_factor = 0;
  int64_t profile_step = 1;   // so many steps before it
  int64_t module_depth = -1;  // -1: all
  int64_t top_modules = 1;
  bool detailed = true;
  std::string output_file;  // "": the log
};

// A block of the form {"type": ..., "params": {...}}. params are checked later, against the plugin's own schema; `where`
// gives the position of a member for error messages.
struct PluginChoice {
  std::string type;  // "" when the block is absent
  Dict params;
  bool is_auto = false;  // "auto" or absent where absence means auto (accelerator, comm)
};

// Where a monitor of DeepSpeed's writes.
struct MonitorFolder {
  bool enabled = false;
  std::string output_path, job_name = "DeepSpeedJobName";
  std::string folder() const { return output_path.empty() ? job_name : output_path + "/" + job_name; }
};

// The steps whose phases are written as a Chrome trace.
struct TraceOf {
  std::string path;  // "": none
  int64_t first_step = 10, last_step = 12;
};

struct Settings {
  // The triad, complete and consistent with `world_size`.
  int64_t train_batch_size = 0;
  int64_t micro_batch_size = 0;
  int64_t accumulation_steps = 1;

  PluginChoice optimizer, scheduler, accelerator, comm;
  std::vector<std::string> plugins_allowed;  // files or folders, "plugins": {"allow": [...]}
  std::vector<std::string> plugin_paths;     // files or folders, "plugins": {"path": [...]}

  double gradient_clipping = 1.0;  // 0: off
  bool prescale_gradients = false;
  double gradient_predivide_factor = 1.0;
  bool gradient_sum = false;  // gradient_allreduce_op: "sum"
  std::optional<DType> communication_data_type;
  std::optional<DType> grad_accum_dtype;
  std::optional<DType> buffer_dtype;
  Fp16 fp16;
  Bf16 bf16;
  Zero zero;

  std::string tag_validation = "WARN";  // of checkpoints: IGNORE | WARN | FAIL

  std::optional<int64_t> steps_per_print;
  bool wall_clock_breakdown = false;
  FlopsProfiler flops_profiler;
  bool dataloader_drop_last = false;
  std::string log_level;  // "" when not set
  bool dump_state = false;
  MonitorFolder tensorboard, csv_monitor;

  // "gannet": {...}
  std::string leftover_micro_batches = "carry";  // carry | drop: what happens to them at an epoch's end
  int64_t seed = 0;                              // of the loader's shuffling
  bool shuffle = true;
  int64_t data_workers = 1;            // threads that prepare batches; 0: on the caller's
  int64_t max_consecutive_skips = 25;  // more skipped steps in a row (without a dynamic loss scale) are an error
  bool check_memory = true;            // refuse what cannot fit, before it is allocated
  bool checkpoint_async = false;
  bool checkpoint_on_each_machine = false;
  int64_t checkpoint_keep = 0;  // 0: all
  std::string metrics_path;     // "": no metrics file
  TraceOf trace;
  std::optional<double> timeout_seconds;   // of rendezvous and collectives; default 600 or DEEPSPEED_TIMEOUT (minutes)
  int64_t fingerprint_every = 100;  // steps between two comparisons of what every rank has whole; 0: never
  std::optional<double> deadline_seconds;  // how long a call waits for a rank that is late; default timeout_seconds
};

}  // namespace gannet::config
