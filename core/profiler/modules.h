// A model's modules as a tree, and whose a tensor is: of the module that names its parameter or buffer first. Views and copies
// are found too.
//
//   Modules modules(*model);
//   modules.owner(weight.t());            // 3, say: "h.0.attn"
//   modules.common_ancestor(3, 7);
#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/intrusive_ptr.h>
#include <gannet/profile.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace gannet::profiler {

class Modules {
 public:
  static constexpr size_t kRoot = 0;
  explicit Modules(const torch::nn::Module& model);

  // Names, types, depths and parameters; the rest is zero. A module stands before those below it.
  const std::vector<ModelProfile::Module>& rows() const { return rows_; }
  size_t parent(size_t module) const { return parents_[module]; }  // the root's is the root
  size_t common_ancestor(size_t a, size_t b) const;
  // The module that "h.0.weight" belongs to.
  size_t of_parameter(const std::string& name) const;

  std::optional<size_t> owner(const at::Tensor& tensor) const;
  // A copy of a parameter, in another dtype perhaps, is the module's too, as long as it lives.
  void add_copy(const at::Tensor& copy, size_t module);
  bool is_part_of_model(const c10::StorageImpl* storage) const { return places_.count(storage) > 0; }

 private:
  struct Place {
    int64_t begin, end;  // bytes in the storage: parameters may share one
    size_t module;
  };
  struct Copy {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // alive or not, no other storage gets its address meanwhile
    size_t module;
  };
  void add_place(const at::Tensor& tensor, size_t module);

  std::vector<ModelProfile::Module> rows_;
  std::vector<size_t> parents_;
  std::unordered_map<std::string, size_t> by_name_;
  // Of parameters and buffers. Bare addresses, good for as long as the model keeps these storages.
  std::unordered_map<const c10::StorageImpl*, std::vector<Place>> places_;
  std::unordered_map<const c10::StorageImpl*, Copy> copies_;
};

}  // namespace gannet::profiler
