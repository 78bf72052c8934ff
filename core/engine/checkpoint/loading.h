// One load from one checkpoint: checks that it belongs to this model, reads it, and restores the
// engine. Nothing is written before everything that the manifest describes was compared.
#pragma once

#include <gannet/rng_tracker.h>

#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "engine/impl.h"
#include "state/comparison.h"
#include "state/saved_groups.h"

namespace torch::serialize {
class InputArchive;
}

namespace gannet {

class RankLoad {
 public:
  // Compares this rank's entries. Throws Error(kCorrupt) on a checkpoint that lacks what every engine saves.
  RankLoad(EngineBase::Impl& impl, const LoadOptions& options, const checkpoint::Opened& found, const checkpoint::Ranks& ranks);

  // Names of this rank's entries in the checkpoint.
  const std::set<std::string>& expected() const { return comparison_.expected(); }

  // Loads this rank's part; `expected_by_all`: what all ranks expect. Throws Error(kMismatch) with
  // the first differences before anything is written. Leaves `torn` set for the caller, who knows
  // the outcome on the other ranks and publishes the parameters.
  LoadReceipt run(const std::set<std::string>& expected_by_all);

 private:
  bool wants_states() const { return options_.load_optimizer_states && !module_only_; }
  const Value& value(const char* key) const;
  const Dict& dict(const char* key) const { return value(key).as_dict(); }
  int64_t count(const char* key) const { return value(key).as_int(); }  // that check_numbers has checked
  void note(std::string text) { receipt_.notes.push_back(std::move(text)); }

  // ---- loading.cpp: the tensors
  bool is_there(const char* prefix) const;  // a tensor with this prefix
  GroupMapping compare_groups() const;
  std::vector<StateEntry> entries() const;  // the engine's; states of a group under the group's number in the checkpoint
  std::string other_optimizer() const;      // "": the checkpoint has states of the same one
  bool has_same_parts() const;              // this rank has the same boxes as the one with its coordinates had
  void compare_accumulation();
  void compare_user_optimizer() const;
  bool reads_user_optimizer() const;  // what the program's own optimizer serialized
  void read();
  void read_entries(std::vector<checkpoint::Target>& targets);
  void read_accumulation(std::vector<checkpoint::Target>& targets);
  at::Tensor whole(const std::string& name, std::vector<checkpoint::Target>& targets) const;  // undefined if it is not there
  void hand_to_program();
  void start_averages();  // of parameters without one in the checkpoint

  // ---- restore.cpp: the numbers
  void restore();
  void restore_loss_scale();
  void restore_accumulation();
  void restore_schedule();
  void restore_optimizer();
  void restore_user_optimizer();
  void load_user_optimizer(torch::serialize::InputArchive& archive);
  void load_torch_optimizer(torch::serialize::InputArchive& archive);
  bool restore_hyperparameters();
  double scheduled_now(const std::string& name, const std::string& group, double due, double saved, const Value* then);
  void restore_random_numbers();
  void restore_program_states();

  EngineBase::Impl& impl_;
  const LoadOptions& options_;
  const checkpoint::Opened& found_;
  const checkpoint::Ranks ranks_;
  const bool is_weights_;   // an import of weights, not saved by an engine
  const bool module_only_;  // that, or the program asked for the module only
  const bool is_same_mesh_;
  const GroupMapping groups_;  // for weights only, no group maps to the checkpoint's
  const std::vector<StateEntry> entries_;
  const SavedNames names_;
  Comparison comparison_;
  LoadReceipt receipt_;
  // Read into the first, then copied into the second: another dtype, not contiguous, or on a tier.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
  std::deque<std::pair<at::Tensor, std::shared_ptr<StoredBytes>>> stored_copies_;
  std::map<std::string, at::Tensor> for_program_, random_;
  checkpointing::RngTracker::States streams_;
  std::vector<std::tuple<Range*, TrainedParameter*, at::Tensor>> gradients_;
  bool holds_sums_ = false;  // of gradients over ranks
  at::Tensor user_optimizer_;
  bool rates_are_restored_ = false;
};

}  // namespace gannet
