#include "config/resolve.h"

#include <gannet/error.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/format.h"
#include "base/text.h"
#include "config/keys.h"
#include "config/mistakes.h"
#include "config/status.h"

namespace gannet::config {
namespace {

bool is_auto(const Value& value) { return value.is_string() && value.as_string() == "auto"; }

constexpr const char* kTrain = "/train_batch_size";
constexpr const char* kMicro = "/train_micro_batch_size_per_gpu";
constexpr const char* kAccumulation = "/gradient_accumulation_steps";

// The effective value of every active key, by pointer; and the "auto"s that nothing resolves.
class Reader {
 public:
  Reader(const Document& document, std::vector<Error>* mistakes) : document_(document) {
    for (const Key* key : all_keys())
      if (is_read(key->status) && !key->is_section()) read(*key);
    attempt(mistakes, [this] { require_no_auto(); });
  }

  // The batch sizes are "auto"s that nothing resolves: a mistake that was told with the others of its kind.
  bool lacks_batch() const { return !open_batch_sizes().empty(); }
  bool is_unresolved(const std::string& path) const {
    return std::find(unresolved_.begin(), unresolved_.end(), path) != unresolved_.end();
  }
  // "/bf16/enabled = false" for each "auto" that became a default.
  std::string defaults_for_auto() const;

  const Value& at(const std::string& path) const { return values_.at(path); }
  // Where a key is written, for the head of an error: "ds_config.json:3:5: ".
  std::string place(const std::string& path) const { return document_.origin_of(path).to_string(); }
  std::string where(const std::string& path) const { return formatted("{}: ", place(path)); }
  void computed(const std::string& path, int64_t value, const std::string& how) {
    if (!at(path).is_null()) return;
    values_[path] = value;
    for (Effective& line : effective_)
      if (line.path == path) line = {path, value, how};
  }
  std::vector<Effective> take() { return std::move(effective_); }

 private:
  void read(const Key& key);
  void require_no_auto() const;
  std::vector<std::string> open_batch_sizes() const;
  void add(const std::string& path, const Value& value, const std::string& origin) {
    effective_.push_back({path, value, origin});
  }

  const Document& document_;
  std::map<std::string, Value> values_;
  std::vector<Effective> effective_;
  std::vector<std::string> unresolved_;  // pointers
};

void Reader::read(const Key& key) {
  const std::string path = formatted("/{}", key.path);
  const Value* given = document_.find(path);
  const bool is_set = given && !given->is_null();
  if (key.type == Type::kFree && is_set && given->is_dict() && !given->as_dict().empty()) {
    values_[path] = *given;
    const bool is_checked_here = path == "/optimizer/params" || path == "/scheduler/params";
    for (const auto& [name, value] : given->as_dict().entries()) {
      const std::string at = pointer(path, name);
      if (is_checked_here && is_auto(value)) unresolved_.push_back(at);
      add(at, value, document_.origin_of(at).to_string());
    }
  } else if (is_set && is_auto(*given)) {
    if (path == "/optimizer/type" || path == "/scheduler/type") unresolved_.push_back(path);
    values_[path] = default_of(key);
    add(path, default_of(key), formatted("auto at {}: the default", document_.origin_of(path).to_string()));
  } else {
    values_[path] = is_set ? *given : default_of(key);
    add(path, values_[path], is_set ? document_.origin_of(path).to_string() : "default");
  }
}

std::vector<std::string> Reader::open_batch_sizes() const {
  std::vector<std::string> open;
  if (given_batch(document_).train || given_batch(document_).micro) return open;
  for (const char* path : {kTrain, kMicro})
    if (const Value* given = document_.find(path); given && is_auto(*given)) open.push_back(path);
  return open;
}

std::string Reader::defaults_for_auto() const {
  std::vector<std::string> taken;
  for (const Key* key : all_keys()) {
    const std::string path = formatted("/{}", key->path);
    const Value* given = document_.find(path);
    // Batch sizes are computed; where the default is "auto" itself, it has a meaning.
    if (!given || !is_auto(*given) || is_auto(default_of(*key)) || path == kTrain || path == kMicro) continue;
    if (path == kAccumulation && given_batch(document_).train && given_batch(document_).micro) continue;
    const auto value = values_.find(path);
    if (is_unresolved(path) || (path == kAccumulation && at(path).is_null())) continue;
    taken.push_back(formatted("{} = {}", path, (value == values_.end() ? default_of(*key) : value->second).to_json()));
  }
  return join(taken, ", ");
}

void Reader::require_no_auto() const {
  std::vector<std::string> open = open_batch_sizes();
  open.insert(open.end(), unresolved_.begin(), unresolved_.end());
  if (open.empty()) return;
  std::vector<std::string> shown;
  for (const std::string& path : open) shown.push_back(formatted("{} ({})", path, document_.origin_of(path).to_string()));
  throw Error(
      ErrorCode::kConfig,
      formatted("nothing gives a value to {}{}", open.size() == 1 ? "this \"auto\": " : "these \"auto\"s: ", join(shown, ", ")),
      "write the values: such an \"auto\" is a blank that another program fills in before the run");
}

std::optional<int64_t> optional_int(const Value& value) { return value.is_null() ? std::nullopt : std::optional(value.as_int()); }

std::optional<DType> dtype(const Reader& read, const std::string& path) {
  const Value& value = read.at(path);
  if (value.is_null()) return std::nullopt;
  const std::string& name = value.as_string();
  if (name == "int8")
    throw Error(ErrorCode::kUnsupported, formatted("{}{} = \"int8\": Gannet does not implement this", read.where(path), path),
                "write fp32, fp16 or bf16");
  return name == "fp16" ? DType::kFloat16 : name == "bf16" ? DType::kBFloat16 : DType::kFloat32;
}

PluginChoice plugin_choice(const Reader& read, const std::string& block, bool absent_is_auto) {
  const std::string type_path = formatted("/{}/type", block);
  PluginChoice choice;
  choice.type = read.at(type_path).is_null() ? "" : read.at(type_path).as_string();
  choice.params = read.at(formatted("/{}/params", block)).as_dict();
  choice.is_auto = absent_is_auto && choice.type == "auto";
  if (choice.type.empty() && !choice.params.empty() && !read.is_unresolved(type_path))
    throw Error(ErrorCode::kConfig, formatted("{}/{} has params and no type", read.where(formatted("/{}", block)), block),
                std::string("name the plugin: \"type\": ") + (block == "optimizer" ? "\"AdamW\"" : "\"WarmupLR\""));
  return choice;
}

void fill_batch(Settings& settings, const Document& document, Reader& read, int64_t world_size, bool rank_is_set) {
  const GivenBatch given = given_batch(document);
  std::string where = read.where(given.train ? kTrain : given.micro ? kMicro : "");
  const Batch batch = complete_batch(given, world_size, where, rank_is_set);
  settings.train_batch_size = batch.train;
  settings.micro_batch_size = batch.micro;
  settings.accumulation_steps = batch.accumulation;
  const std::string world = formatted("world size {}", world_size);
  const bool nothing_to_share = !given.accumulation && !(given.train && given.micro);
  read.computed(
      kAccumulation, batch.accumulation,
      nothing_to_share ? "default" : formatted("computed from train_batch_size, train_micro_batch_size_per_gpu and {}", world));
  read.computed(kMicro, batch.micro, formatted("computed from train_batch_size, gradient_accumulation_steps and {}", world));
  read.computed(kTrain, batch.train,
                formatted("computed from train_micro_batch_size_per_gpu, gradient_accumulation_steps and {}", world));
}

void fill_flops_profiler(FlopsProfiler& profiler, const Reader& read) {
  const auto at = [&](const char* key) -> const Value& { return read.at(std::string("/flops_profiler/") + key); };
  profiler = {.enabled = at("enabled").as_bool(),
              .recompute_fwd_factor = at("recompute_fwd_factor").as_number(),
              .profile_step = at("profile_step").as_int(),
              .module_depth = at("module_depth").as_int(),
              .top_modules = at("top_modules").as_int(),
              .detailed = at("detailed").as_bool(),
              .output_file = at("output_file").is_null() ? "" : at("output_file").as_string()};
}

void fill_precision(Settings& settings, const Reader& read) {
  settings.fp16 = {.enabled = read.at("/fp16/enabled").as_bool(),
                   .auto_cast = false,
                   .loss_scale = read.at("/fp16/loss_scale").as_number(),
                   .initial_scale_power = read.at("/fp16/initial_scale_power").as_int(),
                   .loss_scale_window = read.at("/fp16/loss_scale_window").as_int(),
                   .hysteresis = read.at("/fp16/hysteresis").as_int(),
                   .consecutive_hysteresis = read.at("/fp16/consecutive_hysteresis").as_bool(),
                   .min_loss_scale = read.at("/fp16/min_loss_scale").as_int()};
  settings.bf16 = {.enabled = read.at("/bf16/enabled").as_bool(),
                   .check_grad_overflow = read.at("/bf16/check_grad_overflow").as_bool()};
  settings.grad_accum_dtype = dtype(read, "/data_types/grad_accum_dtype");
  settings.buffer_dtype = dtype(read, "/data_types/buffer_dtype");
  const Value& wire = read.at("/communication_data_type");
  if (!wire.is_null()) settings.communication_data_type = dtype(read, "/communication_data_type");
}

const char* name_of(DType dtype) { return dtype == DType::kFloat16 ? "fp16" : dtype == DType::kBFloat16 ? "bf16" : "fp32"; }

void check_precision(const Settings& settings, const Reader& read) {
  if (settings.fp16.enabled && settings.bf16.enabled)
    throw Error(
        ErrorCode::kConfig,
        formatted("{}bf16 and fp16 are both enabled (fp16 at {})", read.where("/bf16/enabled"), read.place("/fp16/enabled")),
        "a model has one of the two types: set the other's enabled to false");
  const DType model = settings.fp16.enabled ? DType::kFloat16 : settings.bf16.enabled ? DType::kBFloat16 : DType::kFloat32;
  const auto param = dtype(read, "/data_types/param_dtype");
  if (param && *param != model)
    throw Error(ErrorCode::kConfig,
                formatted("{}/data_types/param_dtype is {}, but fp16 and bf16 say {}", read.where("/data_types/param_dtype"),
                          name_of(*param), name_of(model)),
                "leave param_dtype out, or enable that type");
  const auto accumulation = settings.grad_accum_dtype;
  if (accumulation && *accumulation != model && *accumulation != DType::kFloat32)
    throw Error(ErrorCode::kUnsupported,
                formatted("{}/data_types/grad_accum_dtype is {} for a model in {}", read.where("/data_types/grad_accum_dtype"),
                          name_of(*accumulation), name_of(model)),
                "gradients are added up in the model's type or in fp32");
  if (!settings.fp16.enabled || settings.fp16.loss_scale != 0) return;
  for (const char* path : {"/fp16/loss_scale_window", "/fp16/min_loss_scale"}) {
    if (read.at(path).as_int() <= 0)
      throw Error(
          ErrorCode::kConfig,
          formatted("{}{} must be above 0 with a dynamic loss scale, found {}", read.where(path), path, read.at(path).to_json()),
          "or set a static loss_scale");
  }
}

void check_zero(const Settings& settings, const Document& document, const Reader& read) {
  const auto refuse = [&](const char* path, const std::string& what, const std::string& next) {
    throw Error(ErrorCode::kUnsupported, read.where(path) + what, next);
  };
  const int64_t stage = settings.zero.stage;
  const auto given = [&](const char* path) {
    const Value* value = document.find(path);
    return value && value->is_string() && value->as_string() != "none" && value->as_string() != "auto";
  };
  if (stage > 0) {
    if (stage < 3 && given("/zero_optimization/offload_param/device"))
      refuse("/zero_optimization/offload_param/device",
             formatted("offload_param belongs to ZeRO stage 3, and the stage is {}", stage), "leave it out");
    if (const Value* zenflow = document.find("/zero_optimization/zenflow"); zenflow && zenflow->is_dict())
      refuse("/zero_optimization/zenflow", "ZenFlow is not done by Gannet", "leave zenflow out");
  }
  const Value* ratio = document.find("/zero_optimization/offload_optimizer/ratio");
  if (ratio && ratio->is_number() && ratio->as_number() < 1 && stage < 3)
    throw Error(ErrorCode::kConfig,
                formatted("{}offload_optimizer.ratio below 1 belongs to ZeRO stage 3, and the stage is {}",
                          read.where("/zero_optimization/offload_optimizer/ratio"), settings.zero.stage),
                "leave ratio out");
}

OffloadTo offload_to(const Reader& read, const std::string& block, bool applies) {
  OffloadTo to;
  const std::string path = formatted("/zero_optimization/{}", block);
  const std::string device =
      read.at(formatted("{}/device", path)).is_null() ? "none" : read.at(formatted("{}/device", path)).as_string();
  if (!applies || device == "none") return to;
  to.device = device;
  if (const Value& folder = read.at(formatted("{}/nvme_path", path)); !folder.is_null()) to.params["nvme_path"] = folder;
  for (const char* key : {"block_size", "queue_depth", "intra_op_parallelism", "single_submit", "overlap_events"})
    to.params[key] = read.at(std::string("/aio/") + key);
  return to;
}

MonitorFolder monitor_folder(const Reader& read, const std::string& block) {
  const std::string path = formatted("/{}", block);
  return {read.at(formatted("{}/enabled", path)).as_bool(), read.at(formatted("{}/output_path", path)).as_string(),
          read.at(formatted("{}/job_name", path)).as_string()};
}

void fill_monitors(Settings& settings, const Reader& read) {
  settings.tensorboard = monitor_folder(read, "tensorboard");
  settings.csv_monitor = monitor_folder(read, "csv_monitor");
  if (const Value& path = read.at("/gannet/metrics/path"); !path.is_null()) settings.metrics_path = path.as_string();
  if (const Value& path = read.at("/gannet/trace/path"); !path.is_null()) settings.trace.path = path.as_string();
  settings.trace.first_step = read.at("/gannet/trace/first_step").as_int();
  settings.trace.last_step = read.at("/gannet/trace/last_step").as_int();
  if (!settings.trace.path.empty() && settings.trace.last_step < settings.trace.first_step)
    throw Error(ErrorCode::kConfig,
                formatted("{}/gannet/trace/last_step is {}, before first_step, which is {}",
                          read.where("/gannet/trace/last_step"), settings.trace.last_step, settings.trace.first_step),
                "give the last step that is to be traced, counted from 1");
}

}  // namespace

GivenBatch given_batch(const Document& document) {
  const auto given = [&](const char* path) -> std::optional<int64_t> {
    const Value* value = document.find(path);
    return value && value->is_int() ? std::optional(value->as_int()) : std::nullopt;
  };
  return {given(kTrain), given(kMicro), given(kAccumulation)};
}

static Resolved resolve_into(const Document& document, int64_t world_size, bool rank_is_set, std::vector<Error>* mistakes) {
  GANNET_CHECK(world_size >= 1);
  Reader read(document, mistakes);
  Resolved result;
  Settings& settings = result.settings;

  settings.zero = {.stage = read.at("/zero_optimization/stage").as_int(),
                   .reduce_bucket_size = read.at("/zero_optimization/reduce_bucket_size").as_int(),
                   .sub_group_size = read.at("/zero_optimization/sub_group_size").as_int(),
                   .prefetch_bucket_size = read.at("/zero_optimization/stage3_prefetch_bucket_size").as_int(),
                   .param_persistence_threshold = read.at("/zero_optimization/stage3_param_persistence_threshold").as_int(),
                   .model_persistence_threshold = read.at("/zero_optimization/stage3_model_persistence_threshold").as_int(),
                   .max_live_parameters = read.at("/zero_optimization/stage3_max_live_parameters").as_int(),
                   .max_reuse_distance = read.at("/zero_optimization/stage3_max_reuse_distance").as_int()};
  attempt(mistakes, [&] { check_zero(settings, document, read); });
  settings.zero.gather_16bit_on_save = read.at("/zero_optimization/stage3_gather_16bit_weights_on_model_save").as_bool();
  settings.zero.offload_optimizer = offload_to(read, "offload_optimizer", settings.zero.stage > 0);
  settings.zero.offload_optimizer.buffer_count = read.at("/zero_optimization/offload_optimizer/buffer_count").as_int();
  settings.zero.offload_param = offload_to(read, "offload_param", settings.zero.stage == 3);
  settings.zero.offload_param.max_in_cpu = read.at("/zero_optimization/offload_param/max_in_cpu").as_int();
  result.notices = document.notices();
  for (std::string& notice : check_status(document, mistakes)) result.notices.push_back(std::move(notice));

  attempt(mistakes, [&] { settings.optimizer = plugin_choice(read, "optimizer", false); });
  attempt(mistakes, [&] { settings.scheduler = plugin_choice(read, "scheduler", false); });
  settings.accelerator = plugin_choice(read, "accelerator", true);
  settings.comm = plugin_choice(read, "comm", true);
  for (const Value& path : read.at("/plugins/path").as_list()) settings.plugin_paths.push_back(path.as_string());
  for (const Value& path : read.at("/plugins/allow").as_list()) settings.plugins_allowed.push_back(path.as_string());

  attempt(mistakes, [&] {
    fill_precision(settings, read);
    check_precision(settings, read);
  });
  if (!mistakes || !read.lacks_batch()) attempt(mistakes, [&] { fill_batch(settings, document, read, world_size, rank_is_set); });
  if (const std::string taken = read.defaults_for_auto(); !taken.empty())
    result.notices.push_back(formatted("\"auto\" taken as its default: {}", taken));

  settings.gradient_clipping = read.at("/gradient_clipping").as_number();
  settings.prescale_gradients = read.at("/prescale_gradients").as_bool();
  settings.gradient_predivide_factor = read.at("/gradient_predivide_factor").as_number();
  settings.gradient_sum = read.at("/gradient_allreduce_op").as_string() == "sum";

  settings.steps_per_print = optional_int(read.at("/steps_per_print"));
  fill_flops_profiler(settings.flops_profiler, read);
  settings.wall_clock_breakdown =
      read.at("/wall_clock_breakdown").as_bool() || settings.flops_profiler.enabled;  // as DeepSpeed's
  settings.dataloader_drop_last = read.at("/dataloader_drop_last").as_bool();
  if (!read.at("/log_level").is_null()) settings.log_level = read.at("/log_level").as_string();
  settings.dump_state = read.at("/dump_state").as_bool();

  fill_monitors(settings, read);

  settings.leftover_micro_batches = read.at("/gannet/leftover_micro_batches").as_string();
  settings.seed = read.at("/gannet/seed").as_int();
  settings.shuffle = read.at("/gannet/shuffle").as_bool();
  settings.data_workers = read.at("/gannet/data_workers").as_int();
  settings.max_consecutive_skips = read.at("/gannet/max_consecutive_skips").as_int();
  settings.check_memory = read.at("/gannet/check_memory").as_bool();
  settings.checkpoint_async = read.at("/gannet/checkpoint/async").as_bool();
  settings.checkpoint_keep = read.at("/gannet/checkpoint/keep").as_int();
  settings.checkpoint_on_each_machine = read.at("/checkpoint/use_node_local_storage").as_bool();
  settings.tag_validation = read.at("/checkpoint/tag_validation").as_string();
  settings.fingerprint_every = read.at("/gannet/fingerprint_every").as_int();
  const Value& timeout = read.at("/gannet/timeout_seconds");
  if (!timeout.is_null()) settings.timeout_seconds = timeout.as_number();
  const Value& deadline = read.at("/gannet/deadline_seconds");
  if (!deadline.is_null()) settings.deadline_seconds = deadline.as_number();

  result.effective = read.take();
  return result;
}

Resolved resolve(const Document& document, int64_t world_size, bool rank_is_set) {
  return resolve_into(document, world_size, rank_is_set, nullptr);
}

Resolved resolve(const Document& document, int64_t world_size, bool rank_is_set, std::vector<Error>& mistakes) {
  return resolve_into(document, world_size, rank_is_set, &mistakes);
}

}  // namespace gannet::config
