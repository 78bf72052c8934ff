#include "convert/deepspeed_objects.h"

#include <c10/core/ScalarType.h>
#include <gannet/error.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "convert/deepspeed_keys.h"
#include "files/io.h"

namespace gannet::convert {
namespace {

// DeepSpeed's modules hold parameters in the run's 16-bit dtype; buffers keep their own.
void write_module(DeepSpeedFile& file, const DeepSpeedSource& source, const ModelFileLayout& layout) {
  files::PickleWriter& pickle = file.pickle();
  std::map<std::string, std::pair<size_t, const SourceTensor*>> storages;
  const auto add = [&](const SourceTensor& tensor, c10::ScalarType dtype, const std::string& stored) {
    pickle.text(tensor.name);
    storages[tensor.name].second = &tensor;
    storages[tensor.name].first = layout.stage == 3 ? file.tensor(dtype, {0}, {})  // sharded: a placeholder
                                                    : file.tensor(dtype, tensor.shape, {{stored, 0, tensor.numel}});
  };
  pickle.begin_ordered_dict();
  for (const SourceTensor& buffer : source.buffers) {
    pickle.text(buffer.name);
    const size_t storage = file.tensor(source.from.find(buffer.stored)->dtype, buffer.shape, {{buffer.stored, 0, buffer.numel}});
    storages[buffer.name] = {storage, &buffer};
  }
  for (const SourceGroup& group : source.groups)
    for (const SourceTensor& tensor : group.tensors) add(tensor, source.model_dtype, formatted("parameter/{}", tensor.stored));
  for (const SourceTensor& tensor : source.frozen) add(tensor, source.from.find(tensor.stored)->dtype, tensor.stored);
  for (const auto& [alias, name] : source.tied) {
    const auto& [storage, tensor] = storages.at(name);
    pickle.text(alias);
    file.same_tensor(storage, layout.stage == 3 ? std::vector<int64_t>{0} : tensor->shape);
  }
  pickle.end_ordered_dict();
}

void write_shapes(DeepSpeedFile& file, const ModelFileLayout& layout) {
  files::PickleWriter& pickle = file.pickle();
  if (layout.stage == 0) return pickle.none();
  pickle.begin_list();
  for (const auto& buffer : layout.buffers) {
    pickle.begin_ordered_dict();
    for (const SourceTensor* tensor : buffer) {
      pickle.text(tensor->name);
      pickle.size(tensor->shape);
    }
    pickle.end_ordered_dict();
  }
  pickle.end_list();
}

// Stage 3 shards frozen parameters as well: ceil(numel / ranks) elements of each, the last ones padding.
void write_frozen(DeepSpeedFile& file, const DeepSpeedSource& source, const ModelFileLayout& layout, bool shapes) {
  files::PickleWriter& pickle = file.pickle();
  if (layout.stage < 2) return pickle.none();
  pickle.begin_ordered_dict();
  for (const SourceTensor& tensor : source.frozen) {
    pickle.text(tensor.name);
    if (shapes) {
      pickle.size(tensor.shape);
      continue;
    }
    const c10::ScalarType dtype = source.from.find(tensor.stored)->dtype;
    if (layout.stage == 2) {
      file.tensor(dtype, tensor.shape, {{tensor.stored, 0, tensor.numel}});
      continue;
    }
    const int64_t part = (tensor.numel + layout.ranks - 1) / layout.ranks;
    const int64_t begin = std::min(layout.rank * part, tensor.numel), end = std::min(begin + part, tensor.numel);
    file.tensor(dtype, {part}, {{tensor.stored, begin, end - begin}, {"", 0, part - (end - begin)}});
  }
  pickle.end_ordered_dict();
}

Dict config_of(const DeepSpeedSource& source, int64_t stage) {
  Dict config{{"gradient_accumulation_steps", source.accumulation_steps}, {"zero_optimization", Dict{{"stage", stage}}}};
  if (source.precision == "bf16") config["bf16"] = Dict{{"enabled", true}};
  if (source.precision == "fp16")
    config["fp16"] = Dict{{"enabled", true}, {"hysteresis", static_cast<int64_t>(number_of(source, "/fp16/hysteresis", 2))}};
  return config;
}

void write_client_state(DeepSpeedFile& file, const DeepSpeedSource& source) {
  if (const Value* document = source.from.document().find("client_state"); document && document->is_dict())
    for (const auto& [key, value] : document->as_dict().entries()) {
      if (engine_keys().contains(key)) continue;  // the source says so
      file.pickle().text(key);
      file.value(value);
    }
  for (const checkpoint::TensorInfo& tensor : source.from.tensors()) {
    if (!tensor.name.starts_with("client/") || engine_keys().contains(tensor.name.substr(7))) continue;
    file.pickle().text(tensor.name.substr(7));
    file.tensor(tensor.dtype, tensor.shape, {{tensor.name, 0, tensor.numel()}});
  }
}

}  // namespace

void FolderWriting::write(DeepSpeedFile file, const std::string& name) const {
  const std::string path = formatted("{}/{}", folder, name);
  file.write(source.from, path);
  ++this->files;
  bytes += files::kind_of(path).bytes;
}

DeepSpeedFile model_file(const DeepSpeedSource& source, const ModelFileLayout& layout,
                         const std::function<void(DeepSpeedFile&)>& write_optimizer) {
  DeepSpeedFile file;
  files::PickleWriter& pickle = file.pickle();
  const auto number = [&](const char* key, int64_t value) {
    pickle.text(key);
    pickle.integer(value);
  };
  const auto none = [&](const char* key) {
    pickle.text(key);
    pickle.none();
  };
  pickle.begin_dict();
  pickle.text("module");
  write_module(file, source, layout);
  pickle.text("buffer_names");
  pickle.begin_list();
  for (const SourceTensor& buffer : source.buffers) pickle.text(buffer.name);
  pickle.end_list();
  pickle.text("optimizer");
  write_optimizer ? write_optimizer(file) : pickle.none();
  pickle.text("param_shapes");
  write_shapes(file, layout);
  pickle.text("frozen_param_shapes");
  write_frozen(file, source, layout, /*shapes=*/true);
  pickle.text("shared_params");
  if (layout.stage == 0) {
    pickle.none();
  } else {
    pickle.begin_dict();
    for (const auto& [alias, name] : source.tied) {
      if (layout.rank != 0) break;
      pickle.text(alias);
      pickle.text(name);
    }
    pickle.end_dict();
  }
  pickle.text("frozen_param_fragments");
  write_frozen(file, source, layout, /*shapes=*/false);
  // DeepSpeed's schedules count from -1 and read the first key; torch's count from 0 and read the others.
  pickle.text("lr_scheduler");
  file.value(Dict{{"last_batch_iteration", source.schedule_position - 1},
                  {"last_epoch", source.schedule_position},
                  {"_step_count", source.schedule_position + 1}});
  none("data_sampler");
  none("random_ltd");
  pickle.text("sparse_tensor_module_names");
  pickle.empty_set();
  number("skipped_steps", source.skipped_steps);
  number("global_steps", source.global_steps);
  number("global_samples", source.global_samples);
  number("dp_world_size", layout.ranks);
  number("mp_world_size", 1);
  pickle.text("checkpoint_parallel_dimensions");
  file.value(Dict{{"pp_degree", 1}, {"tp_degree", 1}});
  pickle.text("ds_config");
  file.value(config_of(source, layout.stage));
  pickle.text("ds_version");
  pickle.text(kDeepSpeedVersion);
  if (layout.is_universal) {
    pickle.text("universal_checkpoint_info");
    file.value(Dict{{"universal_checkpoint_version", 0.4}});
  }
  write_client_state(file, source);
  pickle.end_dict();
  return file;
}

namespace {

// The hyperparameters of a group, under the names that DeepSpeed's optimizer class or, if
// `is_torch`, torch's class uses.
Dict group_keys(const DeepSpeedSource& source, const Dict& hyper) {
  Dict keys;
  for (const auto& [name, number] : hyper.entries()) {
    const size_t bracket = name.find('[');  // "betas[0]"
    Value& value = keys[name.substr(0, bracket)];
    if (bracket == std::string::npos) {
      value = number.as_number();
    } else {
      if (!value.is_list()) value = List();
      value.as_list().push_back(number.as_number());
    }
  }
  // Values that no schedule can change are in the config, not in a run's checkpoint.
  if (source.family == OptimizerFamily::kAdam && !keys.find("eps"))
    keys["eps"] = number_of(source, "/optimizer/params/eps", 1e-8);
  if (source.family == OptimizerFamily::kAdam && !source.is_torch_optimizer) {
    keys["bias_correction"] = flag_of(source, "/optimizer/params/bias_correction", true);
    keys["step"] = 0;  // the states count
  }
  // The flags of an optimizer that the program made are not in the config either.
  const auto with_imported_flags = [&] {
    if (const Dict* flags = source.imported_flags())
      for (const auto& [key, value] : flags->entries())
        if (keys.find(key)) keys[key] = value;
    return keys;
  };
  if (!source.is_torch_optimizer) return with_imported_flags();
  for (const char* off : {"maximize", "differentiable"}) keys[off] = false;
  for (const char* unset : {"foreach", "fused"}) keys[unset] = nullptr;
  if (source.family == OptimizerFamily::kAdam) {
    keys["amsgrad"] = false;
    keys["capturable"] = false;
    keys["decoupled_weight_decay"] = source.is_decay_decoupled;
  } else {
    keys["nesterov"] = flag_of(source, "/optimizer/params/nesterov", false);
    for (const char* key : {"momentum", "dampening", "weight_decay"})
      if (!keys.find(key)) keys[key] = number_of(source, formatted("/optimizer/params/{}", key), 0);
  }
  return with_imported_flags();
}

}  // namespace

void write_param_groups(DeepSpeedFile& file, const DeepSpeedSource& source, const std::vector<std::vector<int64_t>>& params) {
  files::PickleWriter& pickle = file.pickle();
  pickle.begin_list();
  for (size_t g = 0; g < source.groups.size(); ++g) {
    Dict keys = group_keys(source, source.groups[g].hyper);
    List numbers;
    for (const int64_t number : params[g]) numbers.push_back(number);
    keys["params"] = std::move(numbers);
    file.value(keys);
  }
  pickle.end_list();
}

bool has_step(const DeepSpeedSource& source) { return source.family != OptimizerFamily::kSgd; }

// torch's optimizers keep the step count in a tensor, DeepSpeed's in an integer.
void write_step(DeepSpeedFile& file, const DeepSpeedSource& source) {
  if (source.is_torch_optimizer)
    file.tensor(c10::kFloat, {}, {{"", 0, 1, static_cast<double>(source.applied_steps)}});
  else
    file.pickle().integer(source.applied_steps);
}

void write_states(DeepSpeedFile& file, const DeepSpeedSource& source, const std::vector<int64_t>& shape,
                  const std::function<TensorParts(const std::string& state)>& parts) {
  file.pickle().begin_dict();
  if (has_step(source)) {
    file.pickle().text("step");
    write_step(file, source);
  }
  for (const std::string& state : source.states) {
    file.pickle().text(state);
    file.tensor(c10::kFloat, shape, parts(formatted("state/{}", state)));
  }
  file.pickle().end_dict();
}

void write_scaler(DeepSpeedFile& file, const DeepSpeedSource& source) {
  files::PickleWriter& pickle = file.pickle();
  const bool is_dynamic = source.is_scale_dynamic();
  const auto add = [&](const char* key, const Value& value) {
    pickle.text(key);
    file.value(value);
  };
  pickle.text("loss_scaler");
  pickle.begin_object("deepspeed.runtime.fp16.loss_scaler", is_dynamic ? "DynamicLossScaler" : "LossScaler");
  add("cur_scale", source.precision == "fp16" ? source.scaler("scale").as_number() : 1.0);
  add("dynamic", is_dynamic);
  if (is_dynamic) {
    add("cur_iter", source.scaler("iteration"));
    add("last_overflow_iter", source.scaler("last_overflow_iteration"));
    add("scale_factor", 2.0);
    add("scale_window", static_cast<int64_t>(number_of(source, "/fp16/loss_scale_window", 1000)));
    add("min_scale", number_of(source, "/fp16/min_loss_scale", 1));
    add("delayed_shift", static_cast<int64_t>(number_of(source, "/fp16/hysteresis", 2)));
    add("cur_hysteresis", source.scaler("hysteresis_left"));
    add("consecutive_hysteresis", flag_of(source, "/fp16/consecutive_hysteresis", false));
    add("raise_error_at_min_scale", true);
    pickle.text("dtype");
    pickle.global("torch", "float16");
  }
  pickle.end_object();
  add("dynamic_loss_scale", is_dynamic);
  add("overflow", false);
}

TensorParts parts_of(const DeepSpeedSource& source, const std::string& kind, const SourceTensor& tensor, int64_t begin,
                     int64_t end) {
  const std::string name = formatted("{}/{}", kind, tensor.stored);
  const checkpoint::TensorInfo* info = source.from.find(name);
  if (!info) return {{"", 0, end - begin}};
  if (info->numel() != tensor.numel)
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: '{}' has {} elements and its parameter {}: DeepSpeed's states have as many", source.from.path(),
                          name, info->numel(), tensor.numel),
                "export only the weights with --format pt");
  return {{name, begin, end - begin}};
}

double number_of(const DeepSpeedSource& source, const std::string& path, double otherwise) {
  const Value* value = source.config_value(path);
  return value && value->is_number() ? value->as_number() : otherwise;
}

bool flag_of(const DeepSpeedSource& source, const std::string& path, bool otherwise) {
  const Value* value = source.config_value(path);
  return value && value->is_bool() ? value->as_bool() : otherwise;
}

}  // namespace gannet::convert
