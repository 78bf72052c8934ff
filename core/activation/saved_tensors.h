// Per-thread stack of keepers for what operators save for backward. LibTorch's C++ API has hooks
// only for single saved tensors, but its autograd engine has a virtual function that returns hooks
// for every saved tensor. Our engine, which is LibTorch's except for that function, asks the keeper
// on top of this thread's stack.
//
//   install_saved_tensor_hooks();            // once
//   KeeperScope kept(&keeper);                   // operators of this thread save to the keeper
//   y = f(x);
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace gannet::activation {

class Keeper {
 public:
  virtual ~Keeper() = default;
  /// Returns hooks for one saved tensor; null: LibTorch keeps it.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
  /// Whether everything that is saved is dropped, as by a region. Dropped tensors are recomputed,
  /// so that later changes of them do not matter.
  virtual bool drops_all() const { return true; }
  /// Whether saved tensors leave the device's memory. The inputs of regions then need not be moved
  /// separately.
  virtual bool keeps_elsewhere() const { return false; }
};

/// Throws Error(kUnsupported) if the process has another engine (Python's), which has its own
/// hooks.
void install_saved_tensor_hooks();

/// While it lives, this keeper is asked, and none below it on this thread's stack. Null: LibTorch
/// keeps what is saved.
class KeeperScope {
 public:
  explicit KeeperScope(Keeper* keeper);
  ~KeeperScope();
  KeeperScope(const KeeperScope&) = delete;
};

/// The keeper that is currently asked; null: none.
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
