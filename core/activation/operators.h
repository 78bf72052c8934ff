// Sees the operators of a region, in its forward and in its recomputation.
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
  /// `is_replay`: a recomputation. Memory without an allocator of LibTorch's (an engine's parameters, from_blob with a deleter)
  /// is then kept by keep() alone: what else of it the region writes, it has allocated itself in this run.
  explicit Operators(bool is_replay = false);
  ~Operators();
  Operators(const Operators&) = delete;

  struct Kept {
    at::Tensor tensor, values;  // all of a storage that was there before, and what it held before it was first written
                                // (of an engine's memory, which many parameters share, the one parameter)
    uint32_t version = 0;
  };
  /// Keeps the storage's values, once; nothing of memory whose end LibTorch does not know. Error(kUnsupported): a parameter that
  /// is gathered for the region (ZeRO stage 3).
  void keep(const at::Tensor& tensor);
  /// What was kept gets its values and its version back.
  void put_back();
  /// Ends the observing.
  void finish() { observing_.reset(); }

  const std::unordered_map<const void*, Kept>& kept() const { return kept_; }
  bool has_kept(const at::Tensor& tensor) const { return kept_.contains(key_of(tensor)); }
  /// Tensors that were there before, and were an argument.
  const std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>>& reads() const { return reads_; }
  const std::vector<DrawnFrom>& drawn_from() const { return drawn_from_; }
  const std::string& current_operator() const { return operator_; }
  void ignore(const at::Tensor& tensor) { known_.insert(tensor.unsafeGetTensorImpl()); }

 private:
  class Observer;
  // The storage, or of an engine's memory where the parameter begins.
  static const void* key_of(const at::Tensor& tensor);
  std::unordered_map<const void*, Kept> kept_;
  std::unordered_set<const c10::StorageImpl*> made_;  // by the operators
  std::unordered_set<const c10::TensorImpl*> known_;  // made by them, noted already, or to be ignored
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> reads_;
  std::vector<DrawnFrom> drawn_from_;
  std::string operator_;
  const bool is_replay_;
  std::unique_ptr<zero::Observing> observing_;  // the last member: it ends first
};

/// Copies without a trace: no graph, no version, and no operator that is seen.
void copy_quietly(at::Tensor into, const at::Tensor& from);

}  // namespace gannet::activation
