// Resumes from a checkpoint: restores the engine's state and the Trainer's, finds the best checkpoint
// even if its folder was moved, and writes the files that a killed run left unwritten. Also loads the
// best model at the end.
#include <gannet/checkpoint.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/trainer_base.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace gannet {
namespace {

namespace fs = std::filesystem;

// Recognises checkpoints of transformers' Trainer by files that Gannet's Trainer does not save.
bool is_of_transformers(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "manifest.json", ignored)) return false;
  for (const char* name :
       {"training_args.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "rng_state_0.pth", "zero_to_fp32.py"})
    if (fs::exists(folder / name, ignored)) return true;
  return false;
}

// Refuses an existing folder that holds no checkpoint to resume from.
void refuse_other_checkpoints(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored) || fs::exists(path / "manifest.json", ignored)) return;
  const std::string named = "resume_from_checkpoint names " + path.string() + ", which ";
  if (is_of_transformers(path))
    throw Error(ErrorCode::kArgument,
                named + "is a checkpoint of Hugging Face's Trainer: its states of optimizer and schedule are not read",
                "begin with its weights, gannet::from_pretrained<Model>(\"" + path.string() +
                    "\"), and without resume_from_checkpoint; where DeepSpeed saved it (a folder global_stepN in it), "
                    "`gannet checkpoint import` takes its optimizer too (docs/import_export.md)");
  if (fs::exists(path / "model.safetensors", ignored) || fs::exists(path / "pytorch_model.bin", ignored))
    throw Error(ErrorCode::kArgument, named + "holds only weights (it has no manifest.json)",
                "begin with its weights, and without resume_from_checkpoint; a run with save_only_model cannot be resumed");
  throw Error(ErrorCode::kArgument, named + "is a folder without a checkpoint: it has no manifest.json",
              "give a folder checkpoint-N that a Trainer saved, or begin without resume_from_checkpoint");
}

// Finds a checkpoint of transformers, such as "checkpoint-3", in the folder where this run looks
// for its own; returns "" if there is none.
std::string foreign_checkpoint_in(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().filename().string().starts_with("checkpoint-") && is_of_transformers(entry.path()))
      return entry.path().filename();
  return "";
}

// Returns the number at the end of a name such as "step8", by which checkpoints are sorted; -1 if
// there is none.
int64_t number_at_end(const std::string& name) {
  const size_t begin = name.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  return begin == name.size() ? -1 : std::atoll(name.c_str() + begin);
}

// The complete checkpoints in a folder, newest first.
std::vector<std::string> checkpoints_in(const fs::path& folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with('.') && fs::exists(entry.path() / "manifest.json", ignored))
      found.emplace_back(number_at_end(name), name);
  }
  std::sort(found.rbegin(), found.rend());
  std::vector<std::string> names;
  for (auto& [number, name] : found) names.push_back(std::move(name));
  return names;
}

// Refuses a path that is not a folder: a misspelt name, or a file inside the checkpoint.
void refuse_what_is_no_folder(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return;
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const std::string named = "resume_from_checkpoint names " + path.string() + ", which ";
  if (fs::exists(path, ignored))
    throw Error(ErrorCode::kArgument, named + "is a file, and a checkpoint is a folder",
                fs::exists(parent / "manifest.json", ignored) ? "give its folder, " + parent.string()
                                                              : "give a folder checkpoint-N that a Trainer saved");
  std::vector<std::string> there = checkpoints_in(parent);
  there.resize(std::min<size_t>(there.size(), 3));
  std::string names;
  for (const std::string& name : there) names += (names.empty() ? "" : ", ") + (parent / name).string();
  throw Error(ErrorCode::kNotFound, named + "does not exist",
              there.empty() ? "check the path: a Trainer saves checkpoints as output_dir/checkpoint-N"
                            : "the newest that are there: " + names);
}

// Refuses a run's folder where the path of one of its checkpoints is needed.
void refuse_folder_of_checkpoints(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path / "manifest.json", ignored)) return;
  const std::vector<std::string> there = checkpoints_in(path);
  if (there.empty()) return;
  throw Error(ErrorCode::kArgument,
              "resume_from_checkpoint names " + path.string() + ", which is a folder of checkpoints and not one of them",
              "give " + (path / there[0]).string() + ", or \"last\" with output_dir " + path.string());
}

}  // namespace

// The k-th saved state of a type belongs to the k-th callback of that type.
void TrainerBase::restore_callbacks(const Value& saved) const {
  std::map<std::string, std::vector<const TrainerCallback*>> of_type;
  for (const auto& mine : callbacks_) of_type[mine.name()].push_back(&mine);
  std::map<std::string, size_t> used;
  for (const Value& callback : saved.as_list()) {
    const std::string& name = callback.at("name").as_string();
    const size_t place = used[name]++;
    if (const auto& all = of_type[name]; place < all.size() && !callback.at("state").is_null())
      all[place]->load(callback.at("state"));
  }
  for (const auto& [name, count] : used)
    if (count != of_type[name].size() && is_first())
      log_warning("the checkpoint has the states of " + std::to_string(count) + " callbacks of type " + name + ", this run has " +
                  std::to_string(of_type[name].size()) + " of them: states are given in their order");
}

// Returns the path of the best model's checkpoint for this run. Looks in `folder`, from which the
// run was resumed, since the checkpoint may have been moved, copied or renamed with it; then at the
// former path. Returns "" if the checkpoint is gone.
std::string TrainerBase::best_checkpoint_in(const std::string& folder) const {
  const fs::path former = state_.best_model_checkpoint;
  if (former.empty()) return "";
  std::string found;
  if (is_first()) {
    std::error_code ignored;
    const fs::path here = fs::path(folder) / former.filename();
    found = fs::is_directory(here, ignored) ? here.string() : fs::is_directory(former, ignored) ? former.string() : "";
    if (found.empty())
      log_warning("best_model_checkpoint " + former.string() + " is not there any more, nor in " + folder +
                  ": load_best_model_at_end needs a better evaluation");
    else if (found != former.string() && !fs::equivalent(found, former, ignored))
      log_info("best_model_checkpoint " + former.string() + " is now " + found);
  }
  return gather_from_all(found)[0];
}

// Writes the files that are missing if a run was killed after it had saved its checkpoint; the state
// just loaded gives the same files. In a folder other than output_dir, it only warns.
void TrainerBase::finish_saving(const std::string& folder, bool is_own) {
  std::error_code ignored;
  const bool is_whole = fs::exists(fs::path(folder) / "trainer_state.json", ignored);
  if (gather_from_all(is_whole ? "1" : "")[0] == "1") return;
  if (is_first())
    log_warning(folder +
                " is a whole checkpoint, but the run ended before model.safetensors and trainer_state.json were written" +
                (is_own ? "; they are written now" : ""));
  if (!is_own) return;
  engine_->save_16bit_model(folder);
  write_state_into(folder);
  if (is_first() && checkpoint_files_) checkpoint_files_(folder);
  rotate_checkpoints();
  engine_->process_group()->barrier();
}

// Splits resume_from_checkpoint into a folder of checkpoints and the tag of one ("last": no tag). Throws for other paths.
std::pair<std::string, LoadOptions> TrainerBase::place_of_resume() const {
  LoadOptions load;
  load.if_present = arguments_.resume_from_checkpoint == "last";
  if (load.if_present) return {arguments_.output_dir, load};
  const fs::path path = fs::path(arguments_.resume_from_checkpoint).lexically_normal();
  const fs::path trimmed = path.has_filename() ? path : path.parent_path();
  refuse_what_is_no_folder(trimmed);
  refuse_folder_of_checkpoints(trimmed);
  refuse_other_checkpoints(trimmed);
  load.tag = trimmed.filename().string();
  return {trimmed.parent_path().empty() ? "." : trimmed.parent_path().string(), load};
}

bool TrainerBase::resume() {
  stop_checkpoint_.clear();
  const TrainSize size = open_train_loader(train_loader_options(engine_->loader_options()));
  plan_run(size);
  if (arguments_.resume_from_checkpoint.empty()) return false;

  const auto [folder, load] = place_of_resume();
  if (load.if_present && !fs::exists(folder)) {
    if (is_first()) log_info("resume_from_checkpoint=last: " + folder + " does not exist yet, a fresh start");
    return false;
  }
  const LoadReceipt receipt = engine_->load_checkpoint(folder, load);
  if (!receipt) {
    if (is_first()) {
      log_info("resume_from_checkpoint=last: no checkpoint in " + folder + ", a fresh start");
      if (const std::string other = foreign_checkpoint_in(folder); !other.empty())
        log_warning(
            folder + "/" + other +
            " is a checkpoint of Hugging Face's Trainer, which is not resumed: begin with its weights by from_pretrained");
    }
    return false;
  }
  const Value* saved = receipt.client_state.document.find("trainer");
  if (!saved)
    throw Error(ErrorCode::kMismatch, receipt.path + " is a checkpoint of an engine, but not of a Trainer",
                "load it with engine().load_checkpoint, or name a checkpoint-N that a Trainer saved");
  if (saved->at("total_batch").as_int() != samples_in_update())
    throw Error(ErrorCode::kMismatch,
                receipt.path + " was trained with " + std::to_string(saved->at("total_batch").as_int()) +
                    " samples in an update, this run has " + std::to_string(samples_in_update()),
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
  if (const Value* alone = saved->as_dict().find("is_end_of_run_alone");
      alone && alone->as_bool() && state_.global_step < state_.max_steps)
    is_epoch_end_due_ = false;
  control_.should_training_stop = saved->at("is_stop_asked").as_bool();
  // Within an epoch the loader continues at its restored position.
  is_resumed_ = !is_epoch_end_due_ && micro_in_epoch_ > 0;
  if (is_resumed_ && arguments_.ignore_data_skip) is_resumed_ = false;
  is_in_epoch_ = false;
  last_logged_ = saved->at("last_logged").as_int();
  last_saved_ = state_.global_step;
  total_loss_ = saved->at("total_loss").as_number();
  const Value* const losses = saved->as_dict().find("losses");  // older checkpoints do not have it: there every update has a loss
  losses_ = losses ? losses->as_int() : last_logged_;
  losses_since_log_ = restored_losses_.value_or(state_.global_step - last_logged_);
  restore_callbacks(saved->at("callbacks"));
  std::error_code ignored;
  const bool is_own = gather_from_all(fs::equivalent(folder, arguments_.output_dir, ignored) ? "1" : "")[0] == "1";
  const std::string base = is_own ? arguments_.output_dir : folder;
  state_.best_model_checkpoint = best_checkpoint_in(base);
  const bool is_for_stop = saved->at("is_for_stop").as_bool();
  if (is_for_stop) stop_checkpoint_ = (fs::path(base) / receipt.tag).string();
  if (is_own) {
    const Value* listed = receipt.client_state.document.find("trainer")->as_dict().find("checkpoints");
    if (listed)
      for (const Value& name : listed->as_list()) checkpoints_.push_back(name.as_string());
    else if (!is_for_stop)  // the checkpoint is from a version that kept no list
      checkpoints_.push_back(receipt.tag);
  }
  if (is_first()) log_info("resumed from " + receipt.path + " after update " + std::to_string(state_.global_step));
  finish_saving((fs::path(base) / receipt.tag).string(), is_own);
  if (is_first()) list_changes(saved->at("arguments").as_dict());
  return true;
}

// Refuses folders that this run would save to but must not replace: the bare weights of a run with
// save_only_model, or an interrupted copy. Otherwise the save would refuse them hours later.
void TrainerBase::check_places_of_checkpoints() {
  const bool by_steps = arguments_.save_strategy == "steps", by_epochs = arguments_.save_strategy == "epoch";
  if (arguments_.save_only_model || !(by_steps || by_epochs)) return;
  std::string found;
  std::error_code ignored;
  if (is_first())
    for (const auto& entry : fs::directory_iterator(arguments_.output_dir, ignored)) {
      const std::string name = entry.path().filename();
      if (!name.starts_with("checkpoint-") || !entry.is_directory(ignored)) continue;
      const int64_t step = std::atoll(name.c_str() + std::strlen("checkpoint-"));
      const bool is_saved_to = step > state_.global_step && step <= state_.max_steps &&
                               (step % (by_steps ? state_.save_steps : updates_per_epoch_) == 0 || step == state_.max_steps);
      if (is_saved_to && !fs::exists(entry.path() / "manifest.json", ignored) && !fs::is_empty(entry.path(), ignored))
        found = entry.path().string();
    }
  found = gather_from_all(found)[0];
  if (!found.empty())
    throw Error(ErrorCode::kArgument,
                found + " is a folder that is not a whole checkpoint, where this run will save one: it has no manifest.json",
                "move it away or remove it, or choose another output_dir");
}

void TrainerBase::list_changes(const Dict& former) const {
  Dict before = former, now = arguments_.changed();
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

}  // namespace gannet
