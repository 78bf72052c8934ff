// Checkpoints: output_dir/checkpoint-N is a checkpoint of the engine under the tag "checkpoint-N", with Hugging Face's files in
// it (trainer_state.json, model.safetensors, training_args.json). What a resume needs of the Trainer is in the engine's
// checkpoint, which is there whole or not at all; the files beside it are for people and other programs.
#include <gannet/checkpoint.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>

#include "json.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPrefix = "checkpoint-";

void write_file(const fs::path& path, const std::string& text) {
  const fs::path beside = path.string() + ".tmp";
  {
    std::ofstream out(beside, std::ios::binary);
    out << text;
    out.flush();
    if (!out) throw Error(ErrorCode::kIo, "cannot write " + path.string(), "is the disk full, or the folder read-only?");
  }
  fs::rename(beside, path);
}

std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  const char *begin = name.data() + std::string(kPrefix).size(), *end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(begin, end, step);
  return error == std::errc() && stop == end ? std::optional(step) : std::nullopt;
}

// Hidden first, so that no reader takes what is left of it for a checkpoint.
void remove_checkpoint(const fs::path& path) {
  std::error_code ignored;
  const fs::path hidden = path.parent_path() / ("." + path.filename().string() + ".old");
  fs::rename(path, hidden, ignored);
  fs::remove_all(hidden, ignored);
}

Value or_null(const std::string& text) { return text.empty() ? Value() : Value(text); }

}  // namespace

Dict TrainerState::to_dict() const {
  List history;
  for (const Dict& entry : log_history) history.push_back(entry);
  Dict values{{"epoch", epoch},
              {"global_step", global_step},
              {"max_steps", max_steps},
              {"num_train_epochs", num_train_epochs},
              {"logging_steps", logging_steps},
              {"eval_steps", eval_steps},
              {"save_steps", save_steps},
              {"train_batch_size", train_batch_size},
              {"num_input_tokens_seen", 0},
              {"total_flos", 0.0},
              {"best_metric", best_metric ? Value(*best_metric) : Value()},
              {"best_global_step", best_global_step ? Value(*best_global_step) : Value()},
              {"best_model_checkpoint", or_null(best_model_checkpoint)},
              {"log_history", history},
              {"is_world_process_zero", is_world_process_zero},
              {"is_local_process_zero", is_local_process_zero},
              {"is_hyper_param_search", false},
              {"stateful_callbacks", Dict()},
              {"trial_name", Value()},
              {"trial_params", Value()}};
  return values;
}

TrainerState TrainerState::from_dict(const Dict& values) {
  const Value all(values);
  TrainerState state;
  state.epoch = all.at("epoch").as_number();
  state.global_step = all.at("global_step").as_int();
  if (const Value& best = all.at("best_metric"); !best.is_null()) state.best_metric = best.as_number();
  if (const Value& best = all.at("best_global_step"); !best.is_null()) state.best_global_step = best.as_int();
  if (const Value& best = all.at("best_model_checkpoint"); !best.is_null()) state.best_model_checkpoint = best.as_string();
  for (const Value& entry : all.at("log_history").as_list()) state.log_history.push_back(entry.as_dict());
  state.train_batch_size = all.at("train_batch_size").as_int();
  return state;
}

Dict TrainerBase::document() const {
  List callbacks;
  for (const auto& callback : callbacks_) callbacks.push_back(Dict{{"name", callback.name()}, {"state", callback.save()}});
  const int64_t total_batch =
      arguments_.per_device_train_batch_size * arguments_.gradient_accumulation_steps * engine_->world_size();
  return Dict{
      {"state", state_.to_dict()},
      {"arguments", arguments_.changed()},
      {"epoch", epoch_},
      {"updates_in_epoch",
       (micro_in_epoch_ + arguments_.gradient_accumulation_steps - 1) / arguments_.gradient_accumulation_steps},
      {"is_epoch_end_due", is_epoch_end_due_ || (is_in_epoch_ && (control_.should_epoch_stop || control_.should_training_stop))},
      {"is_stop_asked", control_.should_training_stop && state_.global_step < state_.max_steps},
      {"total_batch", total_batch},
      {"last_logged", last_logged_},
      {"total_loss", total_loss_},
      {"callbacks", callbacks}};
}

void TrainerBase::write_state_into(const std::string& folder) {
  if (!is_first()) return;
  Dict state = state_.to_dict();
  Dict callbacks;
  for (const auto& callback : callbacks_)
    if (Value saved = callback.save(); !saved.is_null()) callbacks[callback.name()] = saved;
  state["stateful_callbacks"] = callbacks;
  write_file(fs::path(folder) / "trainer_state.json", pretty_json(state));
  write_file(fs::path(folder) / "training_args.json", pretty_json(arguments_.changed()));
}

void TrainerBase::save_checkpoint(bool is_for_stop) {
  const std::string name = kPrefix + std::to_string(state_.global_step);
  const fs::path folder = fs::path(arguments_.output_dir) / name;
  // The best model's checkpoint is the one of its step, which may be this one.
  const std::string former_best = state_.best_model_checkpoint;
  if (!is_for_stop && state_.best_global_step == state_.global_step) state_.best_model_checkpoint = folder.string();
  if (arguments_.save_only_model) {
    const fs::path staged = fs::path(arguments_.output_dir) / ("." + name + ".tmp");
    if (is_first()) {
      fs::remove_all(staged);
      fs::create_directories(staged);
    }
    engine_->process_group()->barrier();
    engine_->save_16bit_model(staged.string());
    write_state_into(staged.string());
    if (is_first()) {
      fs::remove_all(folder);
      fs::rename(staged, folder);
    }
  } else {
    Dict document = this->document();
    document["is_for_stop"] = is_for_stop;
    engine_->save_checkpoint(arguments_.output_dir, {.tag = name, .client_state = {.document = Dict{{"trainer", document}}}});
    engine_->wait_for_checkpoint();  // its folder is there now
    engine_->save_16bit_model(folder.string());
    write_state_into(folder.string());
  }
  last_saved_ = state_.global_step;
  if (is_for_stop) return;
  if (!stop_checkpoint_.empty() && stop_checkpoint_ != folder.string()) {
    if (is_first()) remove_checkpoint(stop_checkpoint_);
    stop_checkpoint_.clear();
  }
  rotate_checkpoints();
  engine_->process_group()->barrier();
  fire(TrainerEventKind::kSave);
}

void TrainerBase::rotate_checkpoints() {
  if (!arguments_.save_total_limit || !is_first()) return;
  std::vector<std::pair<int64_t, fs::path>> found;
  for (const auto& entry : fs::directory_iterator(arguments_.output_dir))
    if (const auto step = step_of(entry.path().filename().string())) found.emplace_back(*step, entry.path());
  std::sort(found.begin(), found.end());
  const auto best =
      std::find_if(found.begin(), found.end(), [&](const auto& one) { return one.second == state_.best_model_checkpoint; });
  int64_t limit = *arguments_.save_total_limit;
  // A resume needs the newest one, load_best_model_at_end the best one.
  if (best != found.end() && best + 1 != found.end()) {
    limit = std::max<int64_t>(limit, 2);
    std::rotate(best, best + 1, found.end() - 1);
  }
  for (size_t i = 0; static_cast<int64_t>(found.size() - i) > limit; ++i) remove_checkpoint(found[i].second);
}

void TrainerBase::resume() {
  // This rank's part of the losses since the last log: the other numbers are the same on all ranks.
  engine_->add_state(
      "trainer",
      [this]() -> Value {
        return Dict{{"loss_since_log", loss_since_log_.item<double>()}, {"ranks", int64_t{engine_->world_size()}}};
      },
      [this](const Value& saved) {
        const double ranks = static_cast<double>(saved.at("ranks").as_int());
        loss_since_log_.fill_(saved.at("loss_since_log").as_number() * ranks / engine_->world_size());
      });
  stop_checkpoint_.clear();
  const TrainSize size = open_train_loader(train_loader_options(engine_->loader_options()));
  plan_run(size);
  if (arguments_.resume_from_checkpoint.empty()) return;

  const bool is_last = arguments_.resume_from_checkpoint == "last";
  const fs::path path = fs::path(arguments_.resume_from_checkpoint).lexically_normal();
  const fs::path trimmed = path.has_filename() ? path : path.parent_path();
  const std::string folder = is_last                         ? arguments_.output_dir
                             : trimmed.parent_path().empty() ? "."
                                                             : trimmed.parent_path().string();
  if (is_last && !fs::exists(folder)) {
    if (is_first()) log_info("resume_from_checkpoint=last: " + folder + " does not exist yet, a fresh start");
    return;
  }
  LoadOptions load;
  if (!is_last) load.tag = trimmed.filename().string();
  load.if_present = is_last;
  const LoadReceipt receipt = engine_->load_checkpoint(folder, load);
  if (!receipt) {
    if (is_first()) log_info("resume_from_checkpoint=last: no checkpoint in " + folder + ", a fresh start");
    return;
  }
  const Value* saved = receipt.client_state.document.find("trainer");
  if (!saved)
    throw Error(ErrorCode::kMismatch, receipt.path + " is a checkpoint of an engine, but not of a Trainer",
                "load it with engine().load_checkpoint, or name a checkpoint-N that a Trainer saved");
  const int64_t total_batch =
      arguments_.per_device_train_batch_size * arguments_.gradient_accumulation_steps * engine_->world_size();
  if (saved->at("total_batch").as_int() != total_batch)
    throw Error(ErrorCode::kMismatch,
                receipt.path + " was trained with " + std::to_string(saved->at("total_batch").as_int()) +
                    " samples in an update, this run has " + std::to_string(total_batch),
                "choose per_device_train_batch_size x gradient_accumulation_steps x ranks equal to the former");
  const TrainerState planned = state_;
  state_ = TrainerState::from_dict(saved->at("state").as_dict());
  state_.max_steps = planned.max_steps;
  state_.num_train_epochs = planned.num_train_epochs;
  state_.logging_steps = planned.logging_steps;
  state_.eval_steps = planned.eval_steps;
  state_.save_steps = planned.save_steps;
  state_.train_batch_size = planned.train_batch_size;
  epoch_ = saved->at("epoch").as_int();
  micro_in_epoch_ = saved->at("updates_in_epoch").as_int() * arguments_.gradient_accumulation_steps;
  if (steps_in_epoch_) micro_in_epoch_ = std::min(micro_in_epoch_, *steps_in_epoch_);
  is_epoch_end_due_ = saved->at("is_epoch_end_due").as_bool();
  control_.should_training_stop = saved->at("is_stop_asked").as_bool();
  // Within an epoch the loader continues where its cursor is.
  is_resumed_ = !is_epoch_end_due_ && micro_in_epoch_ > 0;
  if (is_resumed_ && arguments_.ignore_data_skip) is_resumed_ = false;
  is_in_epoch_ = false;
  last_logged_ = saved->at("last_logged").as_int();
  last_saved_ = state_.global_step;
  total_loss_ = saved->at("total_loss").as_number();
  for (const Value& callback : saved->at("callbacks").as_list())
    for (const auto& mine : callbacks_)
      if (mine.name() == callback.at("name").as_string() && !callback.at("state").is_null()) mine.load(callback.at("state"));
  if (saved->at("is_for_stop").as_bool()) stop_checkpoint_ = (fs::path(folder) / receipt.tag).string();

  if (!is_first()) return;
  log_info("resumed from " + receipt.path + " after update " + std::to_string(state_.global_step));
  Dict before = saved->at("arguments").as_dict(), now = arguments_.changed();
  for (Dict* both : {&before, &now})
    for (const char* name : {"resume_from_checkpoint", "output_dir"}) both->erase(name);
  const auto differs = [](const std::string& name, const Value* then, const Value* today) {
    log_warning("argument " + name + " was " + (then ? then->to_json() : "its default") +
                " where the checkpoint was saved, and is " + (today ? today->to_json() : "its default") + " now");
  };
  for (const auto& [name, value] : before.entries())
    if (const Value* today = now.find(name); !today || !(*today == value)) differs(name, &value, today);
  for (const auto& [name, value] : now.entries())
    if (!before.find(name)) differs(name, nullptr, &value);
}

void TrainerBase::load_best_model() {
  if (state_.best_model_checkpoint.empty()) {
    if (is_first()) log_warning("load_best_model_at_end: no checkpoint of the best evaluation was saved; the last weights stay");
    return;
  }
  const fs::path best = state_.best_model_checkpoint;
  engine_->load_checkpoint(best.parent_path().string(), {.tag = best.filename().string(), .load_module_only = true});
  if (is_first())
    log_info("loaded the best model, " + best.string() + " (" + arguments_.metric_for_best_model + " " +
             Value(state_.best_metric.value_or(0)).to_json() + ")");
}

void TrainerBase::save_model(const std::string& folder) {
  ensure_engine().save_16bit_model(folder.empty() ? arguments_.output_dir : folder);
}

void TrainerBase::save_state() {
  ensure_engine();
  if (is_first()) fs::create_directories(arguments_.output_dir);
  write_state_into(arguments_.output_dir);
}

}  // namespace gannet
