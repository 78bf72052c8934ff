// Checkpoints of a trial: each output_dir/checkpoints/<engine>/batch-N is an ordinary checkpoint of
// that engine. A resume uses the newest N that is complete for all engines, so that a run that
// ends between the saves of two engines loses at most one period. The trial's own state is in the
// first engine's checkpoint; output_dir/trial.json identifies the trial.
#include <gannet/checkpoint.h>
#include <gannet/error.h>
#include <gannet/folder.h>
#include <gannet/log.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <set>

#include "common/json.h"
#include "runner.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;
constexpr const char* kPrefix = "batch-";

std::string tag_of(int64_t batches) { return kPrefix + std::to_string(batches); }

std::optional<int64_t> batches_of(const std::string& tag) {
  if (!tag.starts_with(kPrefix)) return std::nullopt;
  int64_t batches = 0;
  const char *begin = tag.data() + std::string(kPrefix).size(), *end = tag.data() + tag.size();
  const auto [rest, error] = std::from_chars(begin, end, batches);
  return error == std::errc() && rest == end ? std::optional(batches) : std::nullopt;
}

std::set<int64_t> saved_in(const std::string& folder) {
  std::set<int64_t> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder, none))
    if (const auto batches = batches_of(entry.path().filename().string())) found.insert(*batches);
  return found;
}

// Renames the folder to a hidden name first, so that no reader mistakes a partly removed folder for
// a checkpoint.
void remove_checkpoint(const fs::path& path) {
  std::error_code ignored;
  const fs::path hidden = path.parent_path() / ("." + path.filename().string() + ".old");
  fs::rename(path, hidden, ignored);
  fs::remove_all(hidden, ignored);
}

}  // namespace

std::string TrialRunner::folder_of(const std::string& engine) const { return settings_.output_dir + "/checkpoints/" + engine; }

Dict TrialRunner::identity() const {
  List engines;
  for (const auto& wrapped : context_.engines_) engines.push_back(wrapped.name);
  return Dict{{"type", type_},
              {"engines", engines},
              {"seed", settings_.seed},
              {"train_batch_size", engine().train_batch_size()},
              {"hparams", settings_.hparams.peek()}};
}

void TrialRunner::check_identity(const Dict& former) const {
  const std::string where = settings_.output_dir + "/trial.json";
  const Dict now = identity();
  const auto text = [](const Dict& dict, const char* name) {
    const Value* value = dict.find(name);
    return value ? value->to_json() : "nothing";
  };
  for (const char* name : {"type", "engines", "seed", "train_batch_size"})
    if (text(former, name) != text(now, name))
      throw Error(
          ErrorCode::kMismatch,
          where + " is of another trial: " + name + " is " + text(former, name) + " there, and " + text(now, name) + " here",
          "give another --output_dir, or run the former trial");
  // The order of the keys does not matter.
  const Dict before = former.find("hparams") && former.find("hparams")->is_dict() ? former.find("hparams")->as_dict() : Dict();
  // Converted in the same way as the values in the file, where a non-finite number is null.
  const Value read = common::parse_json(common::pretty_json(*now.find("hparams")), where);
  const Dict today = read.as_dict();
  std::string changes;
  const auto differs = [&](const std::string& name, const Value* then, const Value* current) {
    changes += std::string(changes.empty() ? "" : ", ") + name + " is " + (then ? then->to_json() : "nothing") + " there and " +
               (current ? current->to_json() : "nothing") + " here";
  };
  const std::function<void(const Dict&, const Dict&, const std::string&)> compare = [&](const Dict& a, const Dict& b,
                                                                                        const std::string& prefix) {
    for (const auto& [name, value] : a.entries()) {
      const Value* other = b.find(name);
      if (other && other->is_dict() && value.is_dict())
        compare(value.as_dict(), other->as_dict(), prefix + name + ".");
      else if (!other || other->to_json() != value.to_json())
        differs(prefix + name, &value, other);
    }
    for (const auto& [name, value] : b.entries())
      if (!a.find(name)) differs(prefix + name, nullptr, &value);
  };
  compare(before, today, "");
  if (changes.empty()) return;
  if (!settings_.allow_changed_hparams)
    throw Error(ErrorCode::kMismatch, where + " is of another trial: its hyperparameters differ: " + changes,
                "give another --output_dir, or --allow_changed_hparams to resume with these");
  if (is_first()) log_warning("resumed with other hyperparameters: " + changes);
}

void TrialRunner::add_states() {
  engine().add_loader("training_data", loader_);
  // State that differs between ranks: the sums since the last report.
  engine().add_state(
      "trial",
      [this]() -> Value {
        List reducers;
        for (const auto& [name, reducer, use] : context_.reducers_) {
          const bool is_collecting = use.for_training && reported_at_ != batches_;
          reducers.push_back(is_collecting ? reducer->save() : Value());
          if (is_collecting && reducers.back().is_null() && is_first())
            log_warning("reducer '" + name + "' has no save(): a resume loses what it collected since the last report");
        }
        return Dict{{"ranks", int64_t{engine().world_size()}}, {"training", training_.save()}, {"reducers", reducers}};
      },
      [this](const Value& saved) {
        const double share = static_cast<double>(saved.at("ranks").as_int()) / engine().world_size();
        training_.load(saved.at("training"), share);
        const List& reducers = saved.at("reducers").as_list();
        // A reducer's per-rank state cannot be redistributed over a different number of ranks, so
        // the reducer starts empty.
        for (size_t i = 0; i < std::min(reducers.size(), context_.reducers_.size()); ++i)
          if (!reducers[i].is_null() && share == 1) context_.reducers_[i].reducer->load(reducers[i]);
      });
}

std::vector<int64_t> TrialRunner::common_checkpoints() const {
  std::set<int64_t> common = saved_in(folder_of(context_.engines_.front().name));
  for (const auto& wrapped : context_.engines_) {
    const auto here = saved_in(folder_of(wrapped.name));
    std::erase_if(common, [&](int64_t batches) { return !here.contains(batches); });
  }
  return {common.rbegin(), common.rend()};
}

void TrialRunner::begin_or_resume() {
  const std::string path = settings_.output_dir + "/trial.json";
  check_folder(settings_.output_dir);
  add_states();
  // All ranks follow what rank 0 finds in the folder.
  List seen;
  for (const int64_t batches : common_checkpoints()) seen.push_back(batches);
  const std::string text =
      engine().gather(Value(Dict{{"former", trials::read_file(path)}, {"checkpoints", seen}}).to_json()).front();
  const Value found = common::parse_json(text, path);
  int64_t former_batches = 0;
  if (const std::string& former = found.at("former").as_string(); !former.empty()) {
    const Value parsed = common::parse_json(former, path);
    check_identity(parsed.is_dict() ? parsed.as_dict() : Dict());
    if (const Value* known = parsed.is_dict() ? parsed.as_dict().find("batches") : nullptr; known && known->is_int())
      former_batches = known->as_int();
  }
  std::string skipped;
  for (const Value& candidate : found.at("checkpoints").as_list()) {
    const int64_t batches = candidate.as_int();
    try {
      load(batches);
      is_resumed_ = true;
      break;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCorrupt) throw;
      skipped += "\n  " + tag_of(batches) + ": " + error.message();
    }
  }
  if (!skipped.empty() && !is_resumed_)
    throw Error(ErrorCode::kCorrupt, settings_.output_dir + " has no checkpoint that is whole:" + skipped,
                "give another --output_dir to begin again");
  if (!skipped.empty() && is_first()) log_warning("checkpoints that are not whole were passed over:" + skipped);
  if (!is_resumed_ && former_batches > 0 && is_first())
    log_warning(path + " is of a trial that had saved batch " + std::to_string(former_batches) + ", but " + settings_.output_dir +
                "/checkpoints has no checkpoint" + (context_.engines_.size() > 1 ? " that all engines have" : "") +
                ": the trial begins again, and its records too");
  records_.emplace(settings_.output_dir, batches_, is_first());
  if (is_resumed_) {
    if (is_first()) log_info("resumed " + settings_.output_dir + " after batch " + std::to_string(batches_));
  } else {
    write_summary();
  }
}

void TrialRunner::load(int64_t batches) {
  for (const auto& [name, engine] : context_.engines_) {
    const auto receipt = engine->load_checkpoint(folder_of(name), {.tag = tag_of(batches)});
    const Value* saved = receipt.client_state.document.find("trial");
    if (!saved || saved->at("type").as_string() != type_ || saved->at("engine").as_string() != name)
      throw Error(ErrorCode::kMismatch, receipt.path + " is not a checkpoint of the engine '" + name + "' of the trial " + type_,
                  "give another --output_dir");
    if (engine.get() != &this->engine()) continue;
    batches_ = saved->at("batches").as_int();
    reported_at_ = saved->at("reported_at").as_int();
    validated_at_ = saved->at("validated_at").as_int();
    is_end_asked_ = saved->at("is_end_asked").as_bool();
    best_batch_ = saved->at("best_batch").as_int();
    best_metric_.reset();
    if (const Value& best = saved->at("best_metric"); !best.is_null()) best_metric_ = best.as_number();
    const Value* by = saved->as_dict().find("best_name");  // absent from older checkpoints
    best_name_ = by ? by->as_string() : settings_.metric;
    best_is_smallest_ = by ? saved->at("best_is_smallest").as_bool() : settings_.smaller_is_better;
    forget_best_of_another(settings_.metric.empty() ? best_name_ : settings_.metric);
  }
  saved_at_ = batches_;
}

void TrialRunner::save() {
  if (saved_at_ == batches_) return;
  for (const auto& [name, engine] : context_.engines_) {
    const Dict document{{"type", type_},
                        {"engine", name},
                        {"batches", batches_},
                        {"reported_at", reported_at_},
                        {"validated_at", validated_at_},
                        {"is_end_asked", is_end_asked_},
                        {"best_batch", best_batch_},
                        {"best_name", best_name_},
                        {"best_is_smallest", best_is_smallest_},
                        {"best_metric", best_metric_ ? Value(*best_metric_) : Value()}};
    engine->save_checkpoint(folder_of(name),
                            {.tag = tag_of(batches_), .client_state = {.document = Dict{{"trial", document}}, .tensors = {}}});
  }
  saved_at_ = batches_;
  if (settings_.keep_checkpoints > 0) {
    for (const auto& wrapped : context_.engines_) wrapped.engine->wait_for_checkpoint();  // before older ones are removed
    if (is_first()) remove_old_checkpoints();
  }
  write_summary();
}

void TrialRunner::remove_old_checkpoints() const {
  const auto common = common_checkpoints();
  std::set<int64_t> kept;
  for (const int64_t batches : common)
    if (static_cast<int64_t>(kept.size()) < settings_.keep_checkpoints) kept.insert(batches);
  if (best_metric_) kept.insert(best_batch_);
  for (const auto& wrapped : context_.engines_)
    for (const int64_t batches : saved_in(folder_of(wrapped.name)))
      if (!kept.contains(batches)) remove_checkpoint(fs::path(folder_of(wrapped.name)) / tag_of(batches));
}

void TrialRunner::write_summary() const {
  if (!is_first()) return;
  Dict summary = identity();
  summary["batches"] = batches_;
  summary["best_batch"] = best_batch_;
  summary["best_metric"] = best_metric_ ? Value(*best_metric_) : Value();
  trials::write_file(settings_.output_dir + "/trial.json", common::pretty_json(summary));
}

}  // namespace gannet
