// A per-thread stack of keepers for the tensors that operators save for backward. LibTorch's C++
// API has hooks only for single saved tensors, but its autograd engine has a virtual function that
// returns hooks for every saved tensor. Gannet installs an engine that overrides that function to
// ask the keeper on top of this thread's stack, and leaves everything else to LibTorch's.
//
//   install_saved_tensor_hooks();            // once
//   KeeperScope kept(&keeper);                   // operators on this thread save to the keeper
//   y = f(x);
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace gannet::activation {

class Keeper {
 public:
  virtual ~Keeper() = default;
  /// Returns the hooks for one saved tensor; null: LibTorch keeps the tensor.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
  /// Whether all saved tensors are dropped, as a region drops them. Dropped tensors are recomputed,
  /// so later changes to them do not matter.
  virtual bool drops_all() const { return true; }
  /// Whether saved tensors leave the device's memory. The inputs of regions then need not be moved
  /// separately.
  virtual bool keeps_elsewhere() const { return false; }
};

/// Throws Error(kUnsupported) if the process has a different autograd engine, such as Python's,
/// which has its own hooks.
void install_saved_tensor_hooks();

/// While an object of this class lives, its keeper is on top of this thread's stack, and is the
/// only one in use. A null keeper means that LibTorch keeps the saved tensors.
class KeeperScope {
 public:
  explicit KeeperScope(Keeper* keeper);
  ~KeeperScope();
  KeeperScope(const KeeperScope&) = delete;
};

/// The keeper on top of this thread's stack; null: none.
Keeper* keeper_here();
/// Whether saved tensors currently go to a tier.
inline bool is_kept_elsewhere() {
  const Keeper* const keeper = keeper_here();
  return keeper && keeper->keeps_elsewhere();
}
/// Whether saved tensors are currently dropped.
inline bool is_dropping() {
  const Keeper* const keeper = keeper_here();
  return keeper && keeper->drops_all();
}

}  // namespace gannet::activation
