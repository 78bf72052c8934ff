#include "convert/deepspeed_document.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "checkpoint/numbers.h"
#include "convert/deepspeed_keys.h"
#include "convert/inert.h"

namespace gannet::convert {
namespace {

std::string number_text(double number) { return Value(number).to_json(); }

std::string place_of(const files::Node& node) { return formatted("{}: {}", node.file()->path(), node.where()); }

int64_t counter(const files::Node& model, const char* key) {
  const auto found = model.find(key);
  return found ? checkpoint::checked_count(found->integer(), place_of(*found)) : 0;
}

// A value of the run's config, as stored in the file.
std::optional<files::Node> of_config(const files::Node& model, std::initializer_list<const char*> path) {
  auto at = model.find("ds_config");
  for (const char* key : path) at = at && at->has_entries() ? at->find(key) : std::nullopt;
  return at;
}

// The precision of the training: from the config in the file, else the parameters' own dtype.
std::string precision_of(const files::Node& model) {
  for (const char* section : {"fp16", "bf16", "bfloat16"})
    if (const auto enabled = of_config(model, {section, "enabled"});
        enabled && enabled->is(files::Object::Kind::kBool) && enabled->boolean())
      return section == std::string("fp16") ? "fp16" : "bf16";
  if (model.find("ds_config")) return "fp32";
  const auto module = model.find("module");
  if (!module) return "fp32";  // a pipeline, whose files always have ds_config
  for (const auto& [name, node] : module->entries())
    if (node.is_tensor() && c10::isFloatingType(node.tensor().dtype))
      return node.tensor().dtype == c10::kHalf ? "fp16" : node.tensor().dtype == c10::kBFloat16 ? "bf16" : "fp32";
  return "fp32";
}

Dict scaler_of(const files::Node& model, const DeepSpeedState& state, DeepSpeedReceipt& receipt) {
  const std::string precision = precision_of(model);
  const bool is_fp16 = precision == "fp16";
  bool is_dynamic = is_fp16;
  double scale = 1;
  int64_t iteration = 0, last_overflow = -1, hysteresis = 1;
  if (!state.scaler.empty()) {
    const files::Node& scaler = state.scaler[0];
    const auto count = [&](const char* key, int64_t& into, int64_t least) {
      const auto found = scaler.find(key);
      if (found) into = checkpoint::checked_count(found->integer(), place_of(*found), least);
      return found.has_value();
    };
    scale = checkpoint::checked_loss_scale(scaler.at("cur_scale").number(), place_of(scaler.at("cur_scale")));
    for (const char* key : {"dynamic", "dynamic_loss_scale"})  // the second: stage 0
      if (const auto found = scaler.find(key)) is_dynamic = is_fp16 && found->boolean();
    count("cur_iter", iteration, 0);
    count("last_overflow_iter", last_overflow, -1);
    if (!count("cur_hysteresis", hysteresis, 0) && is_fp16) {
      const auto given = of_config(model, {"fp16", "hysteresis"});
      hysteresis = given ? checkpoint::checked_count(given->integer(), place_of(*given)) : 2;
      if (scaler.find("last_overflow_iter"))
        receipt.not_taken.push_back(formatted(
            "overflows until the loss scale is halved: stage 0 of DeepSpeed does not count them; it begins at {}", hysteresis));
    }
    if (is_fp16)
      receipt.taken.push_back(
          is_dynamic ? formatted("loss scale {}, iteration {}, last overflow {}", number_text(scale), iteration, last_overflow)
                     : formatted("loss scale {}, which is static", number_text(scale)));
  }
  if (!is_fp16)
    receipt.not_taken.push_back(formatted("a loss scale: the run was in {}; in fp16 it begins at the config's", precision));
  return Dict{{"precision", precision},
              {"dynamic", is_dynamic},
              {"scale", scale},
              {"iteration", iteration},
              {"last_overflow_iteration", last_overflow},
              {"hysteresis_left", hysteresis}};
}

// The schedule and the optimizer advance on every step that was not skipped.
int64_t steps_taken(const files::Node& model) {
  const int64_t steps = counter(model, "global_steps"), skipped = counter(model, "skipped_steps");
  return checkpoint::checked_count(steps - skipped, formatted("{}global_steps less skipped_steps", place_of(model)));
}

// DeepSpeed's schedules count from -1, torch's from 0; ours is the number of steps taken.
int64_t position_of(const files::Node& model, DeepSpeedReceipt& receipt) {
  const auto scheduler = model.find("lr_scheduler");
  if (!scheduler) return 0;
  std::optional<int64_t> position;
  if (scheduler->has_entries()) {
    if (const auto last = scheduler->find("last_batch_iteration"))
      position = checkpoint::checked_count(last->integer(), place_of(*last), -1) + 1;
    else if (const auto epoch = scheduler->find("last_epoch"))
      position = checkpoint::checked_count(epoch->integer(), place_of(*epoch));
  }
  if (position) {
    receipt.taken.push_back(formatted("the schedule's position, {}; its parameters are the config's", *position));
    return *position;
  }
  const int64_t steps = steps_taken(model);
  receipt.not_taken.push_back(formatted(
      "the scheduler's state: it has neither last_batch_iteration nor last_epoch; the position is the {} steps taken", steps));
  return steps;
}

List group_records(const DeepSpeedState& state, DeepSpeedReceipt& receipt) {
  List groups;
  std::set<std::string> left;
  std::string rates;
  for (const files::Node& group : state.groups) {
    Dict hyper;
    std::string name = formatted("group {}", groups.size());
    for (const auto& [key, value] : group.entries()) {
      if (key == "params" || key == "step" || value.is_none()) continue;
      const auto is_number = [](const files::Node& node) {
        return node.is(files::Object::Kind::kNumber) || node.is(files::Object::Kind::kInt) ||
               (node.is_tensor() && node.tensor().numel() == 1);
      };
      const auto number_of = [&](const files::Node& node) {
        return checkpoint::checked_hyperparameter(key, node.number(), place_of(node));
      };
      if (is_number(value)) {
        hyper[key] = number_of(value);
      } else if (value.is_sequence()) {
        const auto items = value.items();
        for (size_t i = 0; i < items.size(); ++i)
          if (is_number(items[i])) hyper[formatted("{}[{}]", key, i)] = number_of(items[i]);
      } else if (key == "name" && value.is(files::Object::Kind::kString)) {
        name = value.text();
      } else {
        left.insert(key);
      }
    }
    if (const Value* lr = hyper.find("lr")) rates += (rates.empty() ? "" : ", ") + lr->to_json();
    groups.push_back(Dict{{"name", name}, {"hyper", std::move(hyper)}});
  }
  if (!groups.empty())
    receipt.taken.push_back(formatted("hyperparameters of {}{}{}", groups.size(), groups.size() == 1 ? " group" : " groups",
                                      rates.empty() ? "" : formatted(", lr {}", rates)));
  if (!left.empty())
    receipt.not_taken.push_back(
        formatted("{} of the optimizer's groups: not a number; the config supplies it", join({left.begin(), left.end()}, ", ")));
  return groups;
}

int64_t applied_steps(const files::Node& model, const DeepSpeedState& state, DeepSpeedReceipt& receipt) {
  if (state.steps.empty()) return steps_taken(model);
  const double last = *state.steps.rbegin();
  receipt.taken.push_back(formatted("the optimizer's step, {}", static_cast<int64_t>(last)));
  // A run may begin its optimizer's states later than its steps, and DeepSpeed's optimizers may count one step as they are made.
  if (const int64_t taken = steps_taken(model); last < taken || last > taken + 1)
    receipt.warnings.push_back(
        formatted("the optimizer counts {} steps, and {} {} (global_steps less skipped_steps): unless the run loaded "
                  "without optimizer states, these are files of two saves",
                  static_cast<int64_t>(last), model.file()->path(), taken));
  // DeepSpeed's fused Adam counts steps in one state of a group and leaves the others at zero; that
  // count holds for all.
  const double first =
      *state.steps.begin() == 0 && state.steps.size() > 1 ? *std::next(state.steps.begin()) : *state.steps.begin();
  if (first != last)
    receipt.not_taken.push_back(formatted("the step of each parameter ({} to {}): Gannet has one for all parameters",
                                          static_cast<int64_t>(first), static_cast<int64_t>(last)));
  return static_cast<int64_t>(last);
}

Dict client_state(const files::Node& model, DeepSpeedReceipt& receipt, std::vector<checkpoint::Slice>& client) {
  Dict document;
  std::vector<std::string> names;
  files::ReadAmount amount;
  size_t unnamed = 0;
  for (const auto& [key, value] : model.entries(&unnamed)) {
    if (engine_keys().count(key)) continue;
    if (value.is_tensor()) {
      const files::StoredTensor& tensor = value.tensor();
      const files::StoredPieces pieces = files::whole(value);
      amount.add(pieces);
      client.push_back({formatted("client/{}", key), tensor.sizes, 0, at::Tensor(), files::stored(pieces, tensor.dtype)});
      client.back().data = at::empty({tensor.numel()}, at::TensorOptions().dtype(tensor.dtype).device(at::kMeta));
      names.push_back(key);
      continue;
    }
    std::string fault;
    if (auto converted = inert(value, fault)) {
      document[key] = std::move(*converted);
      names.push_back(key);
    } else {
      receipt.not_taken.push_back(formatted("'{}' of client_state: {}", key, fault));
    }
  }
  if (unnamed > 0) receipt.not_taken.push_back(formatted("{} of client_state under keys that are not strings", unnamed));
  amount.check();
  if (!names.empty()) receipt.taken.push_back(formatted("client_state: {}", join(names, ", ")));
  return document;
}

}  // namespace

const std::set<std::string>& engine_keys() {
  static const std::set<std::string>& keys = *new std::set<std::string>{"module",
                                                                        "buffer_names",
                                                                        "optimizer",
                                                                        "param_shapes",
                                                                        "frozen_param_shapes",
                                                                        "shared_params",
                                                                        "frozen_param_fragments",
                                                                        "lr_scheduler",
                                                                        "data_sampler",
                                                                        "random_ltd",
                                                                        "sparse_tensor_module_names",
                                                                        "skipped_steps",
                                                                        "global_steps",
                                                                        "global_samples",
                                                                        "dp_world_size",
                                                                        "mp_world_size",
                                                                        "checkpoint_parallel_dimensions",
                                                                        "ds_config",
                                                                        "ds_version",
                                                                        "universal_checkpoint_info",
                                                                        "num_experts",
                                                                        "ds_autoep_layers"};
  return keys;
}

Dict document_of(const DeepSpeedFolder& folder, const DeepSpeedState& state, DeepSpeedReceipt& receipt,
                 std::vector<checkpoint::Slice>& client) {
  const files::Node& model = folder.models[0];
  const int64_t steps = counter(model, "global_steps");
  steps_taken(model);  // checks that no more steps were skipped than counted
  receipt.taken.push_back(formatted("step {}, {} skipped, {} samples seen", steps, counter(model, "skipped_steps"),
                                    counter(model, "global_samples")));
  const auto accumulation = of_config(model, {"gradient_accumulation_steps"});
  const int64_t accumulation_steps = accumulation && accumulation->is(files::Object::Kind::kInt)
                                         ? checkpoint::checked_count(accumulation->integer(), place_of(*accumulation), 1, 1 << 30)
                                         : 1;
  if (steps > checkpoint::kMostCount / accumulation_steps)
    checkpoint::checked_count(INT64_MAX, formatted("{}global_steps times gradient_accumulation_steps", place_of(model)));
  Dict imported{{"from", "DeepSpeed"}, {"stage", state.stage}, {"ranks", static_cast<int64_t>(state.ranks)}};
  if (!folder.stages.empty()) imported["pipeline_stages"] = static_cast<int64_t>(folder.stages.size());
  if (const auto version = model.find("ds_version"); version && version->is(files::Object::Kind::kString))
    imported["version"] = version->text();
  std::string fault;
  if (const auto config = model.find("ds_config"))
    if (auto value = inert(*config, fault)) imported["ds_config"] = std::move(*value);
  const int64_t applied = applied_steps(model, state, receipt);
  Dict document{
      {"global_steps", steps},
      {"applied_steps", applied},
      {"skipped_steps", counter(model, "skipped_steps")},
      {"consecutive_skips", 0},
      {"micro_steps", steps * accumulation_steps},
      {"global_samples", counter(model, "global_samples")},
      {"accumulation_steps", accumulation_steps},
      {"loss_scaler", scaler_of(model, state, receipt)},
      {"schedule_position", position_of(model, receipt)},
      {"groups", group_records(state, receipt)},
      {"frozen_excluded", state.frozen_excluded},
      {"config", Dict()},
      {"imported", std::move(imported)},
      {"client_state", client_state(model, receipt, client)},
  };
  for (const char* key : {"data_sampler", "random_ltd"})
    if (const auto found = model.find(key); found && !(found->has_entries() && found->entries().empty()))
      receipt.not_taken.push_back(formatted("{}: it is for DeepSpeed's own data pipeline", key));
  receipt.not_taken.push_back("random-number states and the loader's position: DeepSpeed does not save them");
  receipt.not_taken.push_back(
      "micro-steps and gradients between two steps: DeepSpeed does not save them; training resumes at the start of a step");
  return document;
}

}  // namespace gannet::convert
