// Checks whether a checkpoint fits an engine: every entry of this rank against the manifest, and
// the manifest against the entries of all ranks, since a tensor that another rank has is not
// unexpected.
//
//   Comparison comparison(found, names, {.options = options, ...});
//   for (const StateEntry& entry : entries) comparison.add(entry);
//   ... every rank's comparison.expected() is gathered ...
//   comparison.finish(expected_by_all);   // throws Error(kMismatch) with the first differences
//   for (const auto& [entry, saved] : comparison.wanted()) ...
#pragma once

#include <gannet/checkpoint.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "state/saved_names.h"

namespace gannet {

class Comparison {
 public:
  struct Rules {
    const LoadOptions& options;
    bool wants_states = true;  // whether optimizer states are loaded
    bool has_user_optimizer = false;
    const MeshShape& mesh;             // the mesh of the loading ranks
    std::string other_optimizer = "";  // non-empty: the error text for states of a different optimizer
    bool reads_user_states = false;    // states without entries are read from those that the program's own optimizer serialized
  };
  Comparison(const checkpoint::Opened& found, const SavedNames& names, const Rules& rules);

  void add(const StateEntry& entry);
  // The names that this rank's entries have, or would have, in the checkpoint.
  const std::set<std::string>& expected() const { return expected_; }

  // `expected_by_all`: the union of every rank's expected().
  void finish(const std::set<std::string>& expected_by_all);

  // ---- after finish()
  const std::vector<std::pair<StateEntry, const checkpoint::TensorInfo*>>& wanted() const { return wanted_; }
  const std::vector<std::string>& notes() const { return notes_; }
  int64_t parameters = 0, buffers = 0, states = 0;  // numbers of tensors loaded, over all ranks

 private:
  void find_unexpected(const std::set<std::string>& expected_by_all);
  void count_of_all(const std::set<std::string>& expected_by_all);
  void require_fit();
  bool is_for_this_rank(const std::string& name) const;

  const checkpoint::Opened& found_;
  const SavedNames& names_;
  const Rules rules_;
  bool is_weights_, frozen_excluded_;
  bool has_users_;  // the checkpoint has states serialized by a program's own optimizer
  std::vector<std::pair<StateEntry, const checkpoint::TensorInfo*>> wanted_;
  std::vector<std::string> differences_, notes_;
  std::set<std::string> expected_, missing_parameters_;
  std::map<std::string, int64_t> converted_;
};

}  // namespace gannet
