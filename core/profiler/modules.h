// A model's modules as a tree, with a lookup of the module that owns a tensor: the first module
// that names it as a parameter or buffer. The lookup also works for views and copies of parameters.
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

  // The modules with their names, types, depths and parameter counts; the other fields are zero. A
  // module precedes its submodules.
  const std::vector<ModelProfile::Module>& rows() const { return rows_; }
  size_t parent(size_t module) const { return parents_[module]; }  // the root's parent is the root
  size_t common_ancestor(size_t a, size_t b) const;
  // The module that a parameter or buffer with this name, such as "h.0.weight", belongs to.
  size_t of_parameter(const std::string& name) const;

  std::optional<size_t> owner(const at::Tensor& tensor) const;
  // Registers a copy of a parameter, possibly in a different dtype, as belonging to the module for
  // as long as the copy lives.
  void add_copy(const at::Tensor& copy, size_t module);
  bool is_part_of_model(const c10::StorageImpl* storage) const { return places_.count(storage) > 0; }

 private:
  struct ModuleRange {
    int64_t begin, end;  // bytes [begin, end) of the storage, since parameters may share one
    size_t module;
  };
  struct ParameterCopy {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // even an expired reference keeps the address from being reused
    size_t module;
  };
  void add_place(const at::Tensor& tensor, size_t module);

  std::vector<ModelProfile::Module> rows_;
  std::vector<size_t> parents_;
  std::unordered_map<std::string, size_t> by_name_;
  // The storages of parameters and buffers. The keys are raw pointers, which are valid as long as
  // the model keeps these storages.
  std::unordered_map<const c10::StorageImpl*, std::vector<ModuleRange>> places_;
  std::unordered_map<const c10::StorageImpl*, ParameterCopy> copies_;
};

}  // namespace gannet::profiler
