// Recomputes the outputs of single operators. In an unchanged module, outputs of cheap operators
// are dropped where other operators save them for backward, and each is recomputed by running only
// its operator again.
//
//   const CheapOperators chosen({"gelu", "layer_norm"});
//   { const SelectiveRecomputation forward(chosen); y = model->forward(x); }
//   y.sum().backward();
//
// An object is active on its thread while it lives. The interception (params/interception.h)
// reports each call of a chosen operator, and a recipe (recipe.h) is made from the call. The hooks
// of saved tensors (saved_tensors.h) look up whether a tensor's storage has a recipe. Tensors that
// a composite operator saves internally, such as the mask of a dropout, are dropped together with
// its output.
//
// A tensor is dropped only if all inputs of its recipe are kept anyway or recomputed themselves.
// For example, the result of relu on a product is kept if the product is not. This is decided when
// the tensor is saved, or at the latest when the forward ends. Tensors that are not dropped are
// kept as LibTorch keeps them, and their versions are checked.
//
// Inside a checkpointed region only the region decides what is dropped. Without grad mode nothing
// is recorded.
#pragma once

#include <c10/util/flat_hash_map.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "activation/cheap_operators.h"
#include "activation/recipe.h"
#include "activation/saved_tensors.h"
#include "params/interception.h"

namespace gannet::activation {

class SelectiveRecomputation : private Keeper, private zero::CallWatcher, private StorageNotes {
 public:
  /// Throws Error(kUnsupported) if the process has an autograd engine other than LibTorch's. The
  /// object must be destroyed on the same thread.
  explicit SelectiveRecomputation(const CheapOperators& chosen);
  ~SelectiveRecomputation() override;
  SelectiveRecomputation(const SelectiveRecomputation&) = delete;

 private:
  struct SavedTensor;
  class Hooks;
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
  bool drops_all() const override { return false; }
  void on_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, c10::function_ref<void()> run) override;
  std::shared_ptr<Recipe> recipe_of(const at::Tensor& tensor) const override;
  bool is_kept(const c10::StorageImpl* storage) const override;
  void pack(const std::shared_ptr<SavedTensor>& saved, const at::Tensor& tensor);
  void keep(const SavedTensor& saved);
  struct DropCandidate {
    std::weak_ptr<SavedTensor> saved;
    std::shared_ptr<Recipe> recipe;
    std::optional<size_t> inside;
  };
  bool drop(const DropCandidate& candidate);

  // State of the chosen operator that is running.
  struct RunningOperator {
    Recipe& recipe;
    size_t saved = 0;  // number of tensors saved so far
    std::vector<std::pair<size_t, std::weak_ptr<SavedTensor>>> inside{};
  };

  const CheapOperators& chosen_;
  // The weak reference keeps the storage's address from being reused.
  using StorageRecipe = std::pair<WeakStorage, std::shared_ptr<Recipe>>;
  ska::flat_hash_map<const c10::StorageImpl*, StorageRecipe> recipes_;
  ska::flat_hash_map<const c10::StorageImpl*, WeakStorage> kept_;
  std::vector<DropCandidate> undecided_;  // tensors that are kept for now but may still be dropped
  RunningOperator* running_ = nullptr;
  zero::Interception armed_;
  KeeperScope keeping_;
  zero::CallWatcher* const outer_;
};

}  // namespace gannet::activation
