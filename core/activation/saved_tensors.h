// Who keeps what operators save for backward, on this thread. LibTorch's C++ API has hooks of single saved tensors, and its
// autograd engine a virtual function that gives every saved tensor its own. An engine of ours, which is LibTorch's but for that
// function, asks the top of a stack of this thread.
//
//   install_saved_tensor_hooks();            // once
//   Keeping kept(&keeper);                   // operators of this thread save to the keeper
//   y = f(x);
#pragma once

#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace gannet::activation {

class Keeper {
 public:
  virtual ~Keeper() = default;
  /// Hooks for one saved tensor; null: LibTorch keeps it.
  virtual std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() = 0;
  /// Whether all that is saved is dropped, as by a region, so that whatever becomes of a tensor it is computed again.
  virtual bool drops_all() const { return true; }
  /// Whether what is saved leaves the device's memory: the inputs of regions then need no other place.
  virtual bool keeps_elsewhere() const { return false; }
};

/// Throws Error(kUnsupported) where the process has another engine (Python's), whose hooks are its own.
void install_saved_tensor_hooks();

/// While it lives, the keeper is asked, and none below it on this thread's stack. Null: LibTorch keeps what is saved.
class Keeping {
 public:
  explicit Keeping(Keeper* keeper);
  ~Keeping();
  Keeping(const Keeping&) = delete;
};

/// Who is asked at the moment; null: nobody.
Keeper* keeper_here();
/// Whether what is saved at the moment goes to a tier.
inline bool is_kept_elsewhere() {
  const Keeper* const keeper = keeper_here();
  return keeper && keeper->keeps_elsewhere();
}
/// Whether what is saved at the moment is dropped.
inline bool is_dropping() {
  const Keeper* const keeper = keeper_here();
  return keeper && keeper->drops_all();
}

}  // namespace gannet::activation
