// One load from one checkpoint: checks that it belongs to this model, reads it, and restores the
// engine. Nothing is written until everything in the manifest has been compared.
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
  // Compares this rank's entries. Throws Error(kCorrupt) if the checkpoint lacks something that every
  // engine saves, and Error(kMismatch) if a group with states of its own has no counterpart there.
  RankLoad(EngineBase::Impl& impl, const LoadOptions& options, const checkpoint::Opened& found, const checkpoint::Ranks& ranks);

  // The names of this rank's entries in the checkpoint.
  const std::set<std::string>& expected() const { return comparison_.expected(); }

  // Loads this rank's part; `expected_by_all`: the names of all ranks' entries. If these differ
  // from the checkpoint's, throws Error(kMismatch) with the first differences before anything is
  // written. Leaves the engine's parameters marked as undefined (torn): the caller knows the
  // outcome on the other ranks, and publishes the parameters.
  LoadReceipt run(const std::set<std::string>& expected_by_all);

 private:
  bool wants_states() const { return options_.load_optimizer_states && !module_only_; }
  const Value& value(const char* key) const;
  const Dict& dict(const char* key) const { return value(key).as_dict(); }
  int64_t count(const char* key) const { return value(key).as_int(); }  // a number that check_numbers has checked
  void note(std::string text) { receipt_.notes.push_back(std::move(text)); }

  // ---- loading.cpp: the tensors
  bool is_there(const char* prefix) const;  // whether there is a tensor with this prefix
  GroupMapping compare_groups() const;
  std::vector<StateEntry> entries() const;  // the engine's entries; a group's states are named by its number in the checkpoint
  std::string other_optimizer() const;      // names both optimizers if they differ; "": the same, unknown, or no states loaded
  bool has_same_parts() const;              // whether this rank's part of the model is unchanged
  void compare_accumulation();
  void compare_user_optimizer() const;
  bool reads_user_optimizer() const;  // whether to read the program optimizer's serialised data
  void read();
  void read_entries(std::vector<checkpoint::Target>& targets);
  void read_accumulation(std::vector<checkpoint::Target>& targets);
  at::Tensor whole(const std::string& name, std::vector<checkpoint::Target>& targets) const;  // undefined if it is not there
  void hand_to_program();
  void start_averages();  // for parameters without an average in the checkpoint

  // ---- restore.cpp: scalars, random states, program states
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
  const bool is_weights_;   // the checkpoint is an import of weights, not saved by an engine
  const bool module_only_;  // is_weights_, or the program asked for the module only
  const bool is_same_mesh_;
  const GroupMapping groups_;  // with weights only, no group has a counterpart in the checkpoint
  const std::vector<StateEntry> entries_;
  const SavedNames names_;
  Comparison comparison_;
  LoadReceipt receipt_;
  // Pairs of a buffer to read into and the destination to copy it to, which has a different dtype,
  // is not contiguous, or is on a tier.
  std::vector<std::pair<at::Tensor, at::Tensor>> copies_;
  std::deque<std::pair<at::Tensor, std::shared_ptr<StoredBytes>>> stored_copies_;
  std::map<std::string, at::Tensor> for_program_, random_;
  checkpointing::RngTracker::States streams_;
  std::vector<std::tuple<Range*, TrainedParameter*, at::Tensor>> gradients_;
  bool holds_sums_ = false;  // the checkpoint has sums of gradients over ranks
  at::Tensor user_optimizer_;
  bool rates_are_restored_ = false;
};

}  // namespace gannet
