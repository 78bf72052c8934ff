// Recomputation by operator: of a module that nobody has changed, what cheap operators made is dropped where other operators save
// it for backward, and made again by that one operator.
//
//   const CheapOperators chosen({"gelu", "layer_norm"});
//   { const Selective forward(chosen); y = model->forward(x); }
//   y.sum().backward();
//
// While it lives, on its thread: the interception (params/interception.h) shows each call of a chosen operator, which becomes a
// recipe (recipe.h); the hooks of saved tensors (saved_tensors.h) ask whether a tensor's storage has one. What an operator that
// is made of others saves inside (the mask of a dropout) is dropped with it.
//
// A tensor is dropped where all that its recipe needs is kept anyway, or made again itself: relu of a product, whose input nobody
// keeps, stays as it is. That is known when it is saved, or at the latest when the forward ends. What is not dropped is kept as
// LibTorch keeps it, and its version is compared.
//
// In a region of checkpointing the region decides alone; without grad nothing is noted.
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

class Selective : private Keeper, private zero::CallWatcher, private Notes {
 public:
  /// Throws Error(kUnsupported) where the process has another autograd engine. Ends on its thread.
  explicit Selective(const CheapOperators& chosen);
  ~Selective() override;
  Selective(const Selective&) = delete;

 private:
  struct Saved;
  class Hooks;
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks() override;
  bool drops_all() const override { return false; }
  void on_call(const c10::OperatorHandle& op, const std::vector<c10::IValue>& stack, c10::function_ref<void()> run) override;
  std::shared_ptr<Recipe> recipe_of(const at::Tensor& tensor) const override;
  bool is_kept(const c10::StorageImpl* storage) const override;
  void pack(const std::shared_ptr<Saved>& saved, const at::Tensor& tensor);
  void keep(const Saved& saved);
  struct Candidate {
    std::weak_ptr<Saved> saved;
    std::shared_ptr<Recipe> recipe;
    std::optional<size_t> inside;
  };
  bool drop(const Candidate& candidate);

  // Of the operator that runs.
  struct Running {
    Recipe& recipe;
    size_t saved = 0;  // so far
    std::vector<std::pair<size_t, std::weak_ptr<Saved>>> inside{};
  };

  const CheapOperators& chosen_;
  // A weak reference keeps its storage's address from being used again.
  using Made = std::pair<WeakStorage, std::shared_ptr<Recipe>>;
  ska::flat_hash_map<const c10::StorageImpl*, Made> recipes_;
  ska::flat_hash_map<const c10::StorageImpl*, WeakStorage> kept_;
  std::vector<Candidate> undecided_;  // kept as yet
  Running* running_ = nullptr;
  zero::Interception armed_;
  Keeping keeping_;
  zero::CallWatcher* const outer_;
};

}  // namespace gannet::activation
