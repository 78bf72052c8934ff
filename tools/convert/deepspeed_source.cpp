#include "convert/deepspeed_source.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/export.h"
#include "convert/deepspeed_keys.h"

namespace gannet::convert {
namespace {

const Value& member(const checkpoint::Opened& from, const Dict& document, const char* key) {
  if (const Value* found = document.find(key)) return *found;
  throw Error(ErrorCode::kUnsupported, formatted("{}: its document has no '{}'", from.path(), key),
              "checkpoints of only weights have no training state: export them with --format pt");
}

// The names of each group's tensors in the checkpoint, in the order of the program's groups. Stages
// of a pipeline each record their own.
std::vector<std::vector<std::string>> tensors_of_groups(const checkpoint::Opened& from) {
  const List& groups = member(from, from.document(), "groups").as_list();
  std::vector<std::vector<std::string>> names(groups.size());
  std::set<std::string> known;
  const auto append = [&](const Value* tensors, size_t g) {
    if (!tensors || g >= names.size()) return;
    for (const Value& name : tensors->as_list())
      if (known.insert(name.as_string()).second) names[g].push_back(name.as_string());
  };
  for (size_t g = 0; g < groups.size(); ++g) append(groups[g].as_dict().find("tensors"), g);
  for (uint32_t rank = 0; rank < from.world_size(); ++rank)
    if (const Value* of_stage = from.rank_document(rank).find("group_tensors"))
      for (size_t g = 0; g < of_stage->as_list().size(); ++g) append(&of_stage->as_list()[g], g);
  if (known.empty())  // an import that was not trained since
    if (const Value* imported = from.document().find("imported"))
      if (const Value* lists = imported->as_dict().find("group_tensors"))
        for (size_t g = 0; g < lists->as_list().size(); ++g) append(&lists->as_list()[g], g);
  if (known.empty())
    throw Error(ErrorCode::kMismatch, formatted("{}: it does not record which parameters its groups have", from.path()),
                "load it in the program that trains it, save it there, and export that checkpoint");
  return names;
}

SourceTensor tensor_of(const checkpoint::Opened& from, const std::string& stored, const std::string& name) {
  const checkpoint::TensorInfo* info = from.find(formatted("parameter/{}", stored));
  if (!info) throw Error(ErrorCode::kCorrupt, formatted("{}: the tensor 'parameter/{}' is missing", from.path(), stored));
  return {name, stored, info->shape, info->numel()};
}

void add_tensors(DeepSpeedSource& source, const ToDeepSpeedOptions& options) {
  const checkpoint::Opened& from = source.from;
  Renaming rename(options.renames);
  std::set<std::string> names, trained;
  const auto renamed = [&](const std::string& name) {
    const std::string result = rename(name);
    if (!names.insert(result).second)
      throw Error(ErrorCode::kArgument, formatted("{}: two tensors are named {}, one of them by --rename", from.path(), result),
                  "choose other names");
    return result;
  };
  const List& groups = member(from, from.document(), "groups").as_list();
  const auto lists = tensors_of_groups(from);
  for (size_t g = 0; g < lists.size(); ++g) {
    if (lists[g].empty()) continue;
    SourceGroup& group = source.groups.emplace_back(SourceGroup{{}, groups[g].at("hyper").as_dict()});
    for (const std::string& stored : lists[g]) {
      group.tensors.push_back(tensor_of(from, stored, renamed(stored)));
      trained.insert(stored);
    }
  }
  for (const auto& [name, info] : checkpoint::weights_of(from)) {
    const bool is_buffer = !info.name.starts_with("parameter/");
    if (!is_buffer && trained.contains(name)) continue;
    (is_buffer ? source.buffers : source.frozen).push_back({renamed(name), info.name, info.shape, info.numel()});
  }
  rename.check(from.path());
  source.tied = options.tied;
  if (options.tied.empty())
    if (const Value* imported = from.document().find("imported"))
      if (const Value* tied = imported->as_dict().find("tied"))
        for (const auto& [alias, name] : tied->as_dict().entries()) source.tied.emplace_back(alias, rename(name.as_string()));
  for (const auto& [alias, name] : source.tied) {
    if (!names.contains(name))
      throw Error(ErrorCode::kArgument, formatted("--tied {}={}: {} has no tensor '{}'", alias, name, from.path(), name),
                  "write ALIAS=NAME, with the NAME that the tensor has after --rename");
    if (!names.insert(alias).second)
      throw Error(ErrorCode::kArgument,
                  formatted("--tied {}={}: {} has a tensor '{}' of its own", alias, name, from.path(), alias), "leave it out");
  }
}

// The optimizer's name as recorded by a run; for an import, as in the config.
std::string optimizer_of(const checkpoint::Opened& from) {
  if (const Value* name = from.document().find("optimizer"); name && name->is_string()) return name->as_string();
  return "";
}

void set_optimizer(DeepSpeedSource& source) {
  std::string name = optimizer_of(source.from);
  if (const Value* type = name.empty() ? source.config_value("/optimizer/type") : nullptr; type && type->is_string())
    name = type->as_string();
  const bool is_own = name.starts_with("torch::optim::");  // an optimizer of the program's own
  if (is_own) {
    name = name.substr(14);
    source.is_torch_optimizer = true;
  }
  const std::string kind = lower(name);
  std::set<std::string> there = source.state_names();
  const Value* torch_adam = source.config_value("/optimizer/params/torch_adam");
  source.is_torch_optimizer |= torch_adam && torch_adam->is_bool() && torch_adam->as_bool();
  if (const Dict* flags = source.imported_flags()) source.is_torch_optimizer |= flags->find("maximize") != nullptr;
  if (there.contains("max_exp_avg_sq"))
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: the states of amsgrad (max_exp_avg_sq) are not exported", source.from.path()),
                "export only the weights with --format pt");
  static const std::set<std::string> kAdams = {"adam", "adamw", "onebitadam", "zerooneadam"};
  const Value* w_mode = source.config_value("/optimizer/params/adam_w_mode");
  source.is_decay_decoupled =
      kind == "adamw" || (kind == "adam" && !is_own && (!w_mode || !w_mode->is_bool() || w_mode->as_bool()));
  if (kAdams.contains(kind) || (kind.empty() && there.contains("exp_avg_sq"))) {
    source.family = OptimizerFamily::kAdam;
    source.states = {"exp_avg", "exp_avg_sq"};
  } else if (kind == "sgd") {
    source.family = OptimizerFamily::kSgd;
    source.is_torch_optimizer = true;
    if (there.contains("momentum_buffer")) source.states = {"momentum_buffer"};
  } else if (kind == "lion") {
    source.family = OptimizerFamily::kLion;
    source.states = {"exp_avg"};
  } else {
    const std::string what = name.empty() ? formatted("states of an optimizer that its config does not name ({})",
                                                      there.empty() ? "none" : join({there.begin(), there.end()}, ", "))
                                          : formatted("states of the optimizer '{}'", name);
    throw Error(ErrorCode::kUnsupported,
                formatted("{}: the {} are not exported: DeepSpeed's ZeRO loads those of Adam, AdamW, SGD and Lion",
                          source.from.path(), what),
                "export only the weights with --format pt");
  }
  for (const std::string& state : source.states) there.erase(state);
  for (const char* unsent : {"worker_error", "server_error"}) there.erase(unsent);  // add_left_out() lists them
  if (!there.empty())
    source.left_out.push_back(formatted("optimizer states {}: DeepSpeed's {} does not have them",
                                        join({there.begin(), there.end()}, ", "), name.empty() ? "Adam" : name));
}

void set_numbers(DeepSpeedSource& source) {
  const Dict& document = source.from.document();
  const auto number = [&](const char* key, int64_t& into) { into = member(source.from, document, key).as_int(); };
  number("global_steps", source.global_steps);
  number("applied_steps", source.applied_steps);
  number("skipped_steps", source.skipped_steps);
  number("global_samples", source.global_samples);
  number("schedule_position", source.schedule_position);
  number("accumulation_steps", source.accumulation_steps);
  source.precision = source.scaler("precision").as_string();
  source.model_dtype = source.precision == "fp16" ? c10::kHalf : source.precision == "bf16" ? c10::kBFloat16 : c10::kFloat;
}

// Names the parameters whose values DeepSpeed's files cannot hold as Gannet's do.
void add_unlike_parameters(DeepSpeedSource& source) {
  std::vector<std::string> rounded, empty;
  for (const SourceGroup& group : source.groups)
    for (const SourceTensor& tensor : group.tensors)
      if (source.from.find(formatted("parameter/{}", tensor.stored))->dtype == c10::kDouble) rounded.push_back(tensor.name);
  for (const SourceTensor& tensor : source.frozen)
    if (tensor.numel == 0) empty.push_back(tensor.name);
  if (!rounded.empty())
    source.left_out.push_back(formatted("the bits below fp32 of fp64 masters and states: {} are rounded", join(rounded, ", ")));
  if (!empty.empty())
    source.left_out.push_back(
        formatted("parameters without elements: {}, which no group of Gannet's has; keep them out of "
                  "DeepSpeed's groups as well (requires_grad=False)",
                  join(empty, ", ")));
}

// Lists the parts of the checkpoint that DeepSpeed's files cannot hold.
void add_left_out(DeepSpeedSource& source) {
  const checkpoint::Opened& from = source.from;
  const Dict& document = from.document();
  std::set<std::string> kinds, states;
  for (const auto& tensor : from.tensors()) kinds.insert(tensor.name.substr(0, tensor.name.find('/')));
  const std::set<std::string> of_optimizer = source.state_names();
  if (of_optimizer.contains("worker_error") || of_optimizer.contains("server_error")) kinds.insert("rank_state");
  const auto say = [&](const char* kind, const char* what) {
    if (kinds.contains(kind)) source.left_out.push_back(what);
  };
  say("rank_state", "what each rank's 1-bit optimizer has not sent yet (worker_error, server_error): DeepSpeed begins at zero");
  say("rank_parameter", "parameters of each rank after a local step: DeepSpeed gets the common ones of the last average");
  say("average", "the moving average of the parameters (gannet.ema): export it with --ema --format pt");
  say("gradient", "gradients between two steps: DeepSpeed resumes at the start of a step");
  say("rng", "random-number states: DeepSpeed does not save them");
  say("optimizer", "what the program's own optimizer class serialized");
  for (uint32_t rank = 0; rank < from.world_size(); ++rank)
    if (const Value* of_rank = from.rank_document(rank).find("states"))
      for (const auto& [name, value] : of_rank->as_dict().entries()) states.insert(name);
  for (const std::string& name : states)
    source.left_out.push_back(
        formatted("'{}' of each rank (the loader's position, add_state): the program finds its data by global_samples", name));
  if (const Value* client = document.find("client_state"); client && client->is_dict())
    for (const auto& [key, value] : client->as_dict().entries())
      if (engine_keys().contains(key))
        source.left_out.push_back(formatted("'{}' of client_state: DeepSpeed's engine uses that key itself", key));
  if (from.world_size() > 1 && !source.buffers.empty()) source.left_out.push_back("buffers of ranks other than 0");
  if (const Value* state = document.find("schedule_state"); state && !state->as_list().empty())
    source.left_out.push_back("the state of the schedule besides its position");
  if (const Value* excluded = document.find("frozen_excluded"); excluded && excluded->is_bool() && excluded->as_bool())
    source.left_out.push_back(
        "frozen parameters, if the model has any: the checkpoint was saved without them (load_module_strict=False)");
  if (const Value* lags = document.find("missed_updates"); lags && !lags->as_dict().entries().empty())
    source.left_out.push_back("the updates that single parameters missed: DeepSpeed has one step for a group");
}

}  // namespace

int64_t SourceGroup::numel() const {
  int64_t sum = 0;
  for (const SourceTensor& tensor : tensors) sum += tensor.numel;
  return sum;
}

const Value* DeepSpeedSource::config_value(const std::string& path) const {
  const Value* config = from.document().find("config");
  if (config && config->is_dict())
    if (const Value* value = config->as_dict().find(path)) return value;
  // An import has the config that DeepSpeed saved, as a tree.
  const Value* at = from.document().find("imported");
  at = at && at->is_dict() ? at->as_dict().find("ds_config") : nullptr;
  for (const std::string& key : split(path.substr(1), '/')) at = at && at->is_dict() ? at->as_dict().find(key) : nullptr;
  return at;
}

std::set<std::string> DeepSpeedSource::state_names() const {
  std::set<std::string> names;
  for (const auto& tensor : from.tensors())
    if (tensor.name.starts_with("state/")) names.insert(tensor.name.substr(6, tensor.name.find('/', 6) - 6));
  return names;
}

const Dict* DeepSpeedSource::imported_flags() const {
  const Value* imported = from.document().find("imported");
  const Value* flags = imported && imported->is_dict() ? imported->as_dict().find("optimizer_flags") : nullptr;
  return flags && flags->is_dict() ? &flags->as_dict() : nullptr;
}

const Value& DeepSpeedSource::scaler(const std::string& key) const {
  return member(from, from.document(), "loss_scaler").at(key);
}

bool DeepSpeedSource::is_scale_dynamic() const {
  if (precision != "fp16") return false;
  const Value* dynamic = member(from, from.document(), "loss_scaler").as_dict().find("dynamic");  // older imports have none
  return !dynamic || dynamic->as_bool();
}

DeepSpeedSource deepspeed_source(const checkpoint::Opened& from, const ToDeepSpeedOptions& options) {
  DeepSpeedSource source{from};
  add_tensors(source, options);
  set_optimizer(source);
  set_numbers(source);
  add_unlike_parameters(source);
  add_left_out(source);
  return source;
}

}  // namespace gannet::convert
