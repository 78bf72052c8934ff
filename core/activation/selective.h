// Recomputation by operator. In an unchanged module, outputs of cheap operators are dropped where
// other operators save them for backward, and each is recomputed by running its one operator again.
//
//   const CheapOperators chosen({"gelu", "layer_norm"});
//   { const SelectiveRecomputation forward(chosen); y = model->forward(x); }
//   y.sum().backward();
//
// It is active on its thread while it lives. The interception (params/interception.h) shows each
// call of a chosen operator, and the call becomes a recipe (recipe.h). The hooks of saved tensors
// (saved_tensors.h) look up whether a tensor's storage has a recipe. What a composite operator
// saves inside (the mask of a dropout) is dropped with it.
//
// A tensor is dropped only if all inputs of its recipe are kept anyway or recomputed themselves.
// For example, relu of a product stays as it is if the product is not kept. That is decided when
// the tensor is saved, or at the latest when the forward ends. Tensors that are not dropped are
// kept as LibTorch keeps them, and their versions are checked.
//
// Inside a checkpointed region only the region decides. Without grad mode nothing is noted.
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
  /// Throws Error(kUnsupported) if the process has another autograd engine. Must be destroyed on
  /// the same thread.
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

  // State of the operator that is running.
  struct RunningOperator {
    Recipe& recipe;
    size_t saved = 0;  // so far
    std::vector<std::pair<size_t, std::weak_ptr<SavedTensor>>> inside{};
  };

  const CheapOperators& chosen_;
  // The weak reference keeps the storage's address from being reused.
  using StorageRecipe = std::pair<WeakStorage, std::shared_ptr<Recipe>>;
  ska::flat_hash_map<const c10::StorageImpl*, StorageRecipe> recipes_;
  ska::flat_hash_map<const c10::StorageImpl*, WeakStorage> kept_;
  std::vector<DropCandidate> undecided_;  // kept for now
  RunningOperator* running_ = nullptr;
  zero::Interception armed_;
  KeeperScope keeping_;
  zero::CallWatcher* const outer_;
};

}  // namespace gannet::activation
