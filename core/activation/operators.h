// Observes the operators of a region, in its forward and in its recomputation.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "activation/trace.h"
#include "params/observer.h"

namespace gannet::activation {

class Operators {
 public:
  /// `is_replay`: this is a recomputation. Memory without a LibTorch allocator (an engine's
  /// parameters, from_blob with a deleter) is then kept only if keep() is called for it: any other
  /// such memory that the region writes was allocated by the region in this run.
  explicit Operators(bool is_replay = false);
  ~Operators();
  Operators(const Operators&) = delete;

  struct StorageSnapshot {
    at::Tensor tensor, values;  // a whole storage (or an engine's parameter), and its values before its first write
    uint32_t version = 0;
  };
  /// Keeps the values of the tensor's storage, once per storage. Does nothing for memory whose
  /// lifetime LibTorch does not know. Throws Error(kUnsupported) for a parameter that is gathered
  /// for the region (ZeRO stage 3).
  void keep(const at::Tensor& tensor);
  /// Restores the values and the version of everything that was kept.
  void put_back();
  /// Stops observing.
  void finish() { observing_.reset(); }

  const std::unordered_map<const void*, StorageSnapshot>& kept() const { return kept_; }
  bool has_kept(const at::Tensor& tensor) const { return kept_.contains(key_of(tensor)); }
  /// Tensors that existed before the region and were arguments of its operators.
  const std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>>& reads() const { return reads_; }
  const std::vector<GeneratorSnapshot>& drawn_from() const { return drawn_from_; }
  const std::string& current_operator() const { return operator_; }
  void ignore(const at::Tensor& tensor) { known_.insert(tensor.unsafeGetTensorImpl()); }

 private:
  class Observer;
  // The key in kept_: the tensor's storage or, in an engine's memory, the address of the parameter.
  static const void* key_of(const at::Tensor& tensor);
  std::unordered_map<const void*, StorageSnapshot> kept_;
  std::unordered_set<const c10::StorageImpl*> made_;  // storages that the operators created
  std::unordered_set<const c10::TensorImpl*> known_;  // created by the operators, already noted, or ignored
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> reads_;
  std::vector<GeneratorSnapshot> drawn_from_;
  std::string operator_;
  const bool is_replay_;
  std::unique_ptr<zero::ObserverScope> observing_;  // the last member, so that it is destroyed first
};

/// Copies without recording a graph, without changing the version, and without running an operator
/// that observers see.
void copy_quietly(at::Tensor into, const at::Tensor& from);

}  // namespace gannet::activation
