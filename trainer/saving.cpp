// Checkpoints: output_dir/checkpoint-N is an engine checkpoint with the tag "checkpoint-N", plus
// Hugging Face's files (trainer_state.json, model.safetensors, training_args.json). The Trainer
// state that a resume needs is in the engine's checkpoint, which is written atomically; the other
// files are for human readers and other programs.
#include <gannet/checkpoint.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "common/json.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kHiddenWeights = ".weights";  // suffix of the folder that stages a checkpoint's weights

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

// Renames the folder to a hidden name first, so that no reader mistakes a partly removed folder for
// a checkpoint.
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
  const List checkpoints(checkpoints_.begin(), checkpoints_.end());
  List callbacks;
  for (const auto& callback : callbacks_) callbacks.push_back(Dict{{"name", callback.name()}, {"state", callback.save()}});
  return Dict{
      {"state", state_.to_dict()},
      {"arguments", arguments_.changed()},
      {"epoch", epoch_},
      {"updates_in_epoch",
       (micro_in_epoch_ + arguments_.gradient_accumulation_steps - 1) / arguments_.gradient_accumulation_steps},
      {"is_epoch_end_due", is_epoch_end_due_ || (is_in_epoch_ && (control_.should_epoch_stop || control_.should_training_stop))},
      // Whether the run ended within an epoch only because of max_steps; a resume with a larger
      // max_steps then continues there.
      {"is_end_of_run_alone", state_.global_step >= state_.max_steps && !control_.should_epoch_stop &&
                                  !(steps_in_epoch_ && micro_in_epoch_ >= *steps_in_epoch_)},
      {"is_stop_asked", control_.should_training_stop && state_.global_step < state_.max_steps},
      {"total_batch", samples_in_update()},
      {"last_logged", last_logged_},
      {"total_loss", total_loss_},
      {"losses", losses_},
      {"checkpoints", checkpoints},
      {"callbacks", callbacks}};
}

void TrainerBase::write_state_into(const std::string& folder) {
  if (!is_first()) return;
  Dict state = state_.to_dict();
  Dict callbacks;
  for (const auto& callback : callbacks_) {
    const Value saved = callback.save();
    if (saved.is_null()) continue;
    Value& known = callbacks[callback.name()];
    if (known.is_null()) {
      known = saved;
    } else {  // several callbacks of one type form a list, as in Hugging Face
      if (!known.is_list()) known = List{known};
      known.as_list().push_back(saved);
    }
  }
  state["stateful_callbacks"] = callbacks;
  write_file(fs::path(folder) / "trainer_state.json", common::pretty_json(state));
  write_file(fs::path(folder) / "training_args.json", common::pretty_json(arguments_.changed()));
}

// Removes leftovers of runs that were killed while saving or removing a checkpoint.
void TrainerBase::clear_left_over() const {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(arguments_.output_dir, ignored)) {
    const std::string name = entry.path().filename();
    const std::string extension = entry.path().extension();
    if (name.starts_with(std::string(".") + kPrefix) &&
        (extension == kHiddenWeights || extension == ".tmp" || extension == ".old"))
      fs::remove_all(entry.path(), ignored);
  }
}

void TrainerBase::save_weights_alone(const std::string& folder) {
  const fs::path staged = fs::path(arguments_.output_dir) / ("." + fs::path(folder).filename().string() + ".tmp");
  if (is_first()) fs::create_directories(staged);
  engine_->process_group()->barrier();
  save_weights(staged.string());
  write_state_into(staged.string());
  if (!is_first()) return;
  if (checkpoint_files_) checkpoint_files_(staged.string());
  fs::remove_all(folder);
  fs::rename(staged, folder);
}

// All ranks contribute to the weights, so these are first staged in a separate folder. By the time
// the checkpoint gets its name, it has all its files.
void TrainerBase::save_whole(const std::string& name, bool is_for_stop) {
  const fs::path weights = fs::path(arguments_.output_dir) / ("." + name + kHiddenWeights);
  engine_->save_16bit_model(weights.string());
  SaveOptions options{.tag = name};
  Dict document = this->document();
  document["is_for_stop"] = is_for_stop;
  options.client_state.document = Dict{{"trainer", document}};
  options.add_files = [&](const std::string& folder) {
    if (!is_first()) return;
    if (fs::exists(weights))
      for (const auto& file : fs::directory_iterator(weights)) fs::rename(file.path(), fs::path(folder) / file.path().filename());
    write_state_into(folder);
    if (checkpoint_files_) checkpoint_files_(folder);
  };
  engine_->save_checkpoint(arguments_.output_dir, options);
  engine_->wait_for_checkpoint();  // its folder exists now
  std::error_code ignored;
  if (is_first()) fs::remove_all(weights, ignored);
}

void TrainerBase::save_checkpoint(bool is_for_stop) {
  const std::string name = kPrefix + std::to_string(state_.global_step);
  const fs::path folder = fs::path(arguments_.output_dir) / name;
  if (!is_for_stop) {
    std::erase(checkpoints_, name);
    checkpoints_.push_back(name);
  }
  // The best model's checkpoint is the one saved after its step, which may be this one.
  if (!is_for_stop && state_.best_global_step == state_.global_step) state_.best_model_checkpoint = folder.string();
  if (is_first()) clear_left_over();
  if (arguments_.save_only_model)
    save_weights_alone(folder.string());
  else
    save_whole(name, is_for_stop);
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

// Removes old checkpoints of this run and of the runs that it resumed, but not those of other runs
// in the same folder. Every rank keeps the list; rank 0 removes the folders.
void TrainerBase::rotate_checkpoints() {
  if (!arguments_.save_total_limit || checkpoints_.empty()) return;
  const auto path_of = [&](const std::string& name) { return fs::path(arguments_.output_dir) / name; };
  int64_t limit = *arguments_.save_total_limit;
  // A resume needs the newest checkpoint, and load_best_model_at_end needs the best one.
  const std::string& newest = checkpoints_.back();
  const auto is_best = [&](const std::string& name) { return path_of(name).string() == state_.best_model_checkpoint; };
  const auto is_needed = [&](const std::string& name) { return name == newest || is_best(name); };
  if (std::any_of(checkpoints_.begin(), checkpoints_.end() - 1, is_best)) limit = std::max<int64_t>(limit, 2);
  std::vector<std::string> kept;
  int64_t left = static_cast<int64_t>(checkpoints_.size());
  for (const std::string& name : checkpoints_) {
    if (left > limit && !is_needed(name)) {
      --left;
      if (is_first()) remove_checkpoint(path_of(name));
    } else {
      kept.push_back(name);
    }
  }
  checkpoints_ = std::move(kept);
}

void TrainerBase::save_model(const std::string& folder) {
  ensure_engine();
  save_weights(folder.empty() ? arguments_.output_dir : folder);
}

// At ZeRO stage 3 save_16bit_model writes only if the config says so, and logs that.
void TrainerBase::save_weights(const std::string& folder) {
  if (engine_->save_16bit_model(folder)) return;
  engine_->save_fp32_model(folder);
  if (is_first()) log_info(folder + "/model.safetensors has the fp32 weights");
}

void TrainerBase::save_state() {
  ensure_engine();
  if (is_first()) fs::create_directories(arguments_.output_dir);
  write_state_into(arguments_.output_dir);
}

}  // namespace gannet
