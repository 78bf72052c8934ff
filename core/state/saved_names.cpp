#include "state/saved_names.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <torch/nn/module.h>

#include "base/format.h"

namespace gannet {

using checkpoint::TensorInfo;

bool holds_weights_alone(const checkpoint::Opened& found) {
  const Value* contents = found.document().find("contents");
  return contents && contents->is_string() && contents->as_string() == "weights";
}

SavedNames::SavedNames(const torch::nn::Module& module, const checkpoint::Opened& found, const MeshShape& mesh, uint32_t rank)
    : found_(found),
      is_weights_(holds_weights_alone(found)),
      source_(rank_name(found.mesh(), source_rank(found.mesh(), mesh, rank))) {
  std::map<const void*, std::vector<std::string>> names;
  for (const auto& entry : module.named_parameters()) names[entry.value().unsafeGetTensorImpl()].push_back(entry.key());
  for (const auto& [tensor, all] : names)
    for (const auto& name : all)
      for (const auto& other : all)
        if (other != name) tied_[name].push_back(other);
  if (found.mesh().size(kDataAxis) == found.mesh().world_size()) return;
  for (const TensorInfo& saved : found.tensors())
    if (saved.name.starts_with("buffer/")) buffers_.try_emplace(saved.name.substr(saved.name.find('/', 7) + 1), &saved);
}

const TensorInfo* SavedNames::find(const StateEntry& entry) const {
  const std::string name = expected(entry);
  if (const TensorInfo* saved = found_.find(name)) return saved;
  if (entry.kind == StateEntry::Kind::kBuffer) {
    if (is_weights_) return found_.find(formatted("parameter/{}", entry.name));
    const auto another = buffers_.find(entry.name);
    return another == buffers_.end() ? nullptr : another->second;
  }
  const std::string own = parameter_of(entry);
  const std::string prefix = name.substr(0, name.size() - (entry.saved_as.empty() ? own : entry.saved_as).size());
  std::vector<std::string> names = entry.also_saved_as;
  if (const auto others = tied_.find(own); others != tied_.end())
    names.insert(names.end(), others->second.begin(), others->second.end());
  for (const std::string& other : names)
    if (const TensorInfo* saved = found_.find(prefix + other)) return saved;
  return nullptr;
}

bool SavedNames::is_copy_of_tied(const TensorInfo& saved) const {
  if (!is_weights_ || !saved.name.starts_with("parameter/")) return false;
  const auto others = tied_.find(saved.name.substr(saved.name.find('/') + 1));
  if (others == tied_.end()) return false;
  for (const std::string& other : others->second) {
    const TensorInfo* twin = found_.find(formatted("parameter/{}", other));
    if (!twin || twin->shape != saved.shape || twin->dtype != saved.dtype) continue;
    const at::Tensor one = at::empty({saved.numel()}, saved.dtype), two = at::empty({saved.numel()}, saved.dtype);
    found_.read({{saved.name, 0, one}, {twin->name, 0, two}});
    if (one.equal(two)) return true;
  }
  return false;
}

}  // namespace gannet
