#include "profiler/modules.h"

#include <torch/nn/module.h>

#include <unordered_set>

namespace gannet::profiler {
namespace {

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()
                                                  : nullptr;
}

// Shortens "gpt2::AttentionImpl" to "Attention".
std::string short_type(std::string type) {
  if (const size_t arguments = type.find('<'); arguments != std::string::npos) type.resize(arguments);
  if (const size_t space = type.rfind("::"); space != std::string::npos) type.erase(0, space + 2);
  constexpr std::string_view kSuffix = "Impl";
  if (type.size() > kSuffix.size() && type.ends_with(kSuffix)) type.resize(type.size() - kSuffix.size());
  return type;
}

std::string parent_name(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

}  // namespace

Modules::Modules(const torch::nn::Module& model) {
  const auto add = [&](const std::string& name, const torch::nn::Module& module) {
    const bool is_root = rows_.empty();
    const size_t parent = is_root ? kRoot : by_name_.at(parent_name(name));
    by_name_[name] = rows_.size();
    parents_.push_back(parent);
    ModelProfile::Module row;
    row.name = name;
    row.type = short_type(module.name());
    row.depth = is_root ? 0 : rows_[parent].depth + 1;
    rows_.push_back(std::move(row));
  };
  add("", model);
  for (const auto& entry : model.named_modules("", /*include_self=*/false)) add(entry.key(), *entry.value());
  std::unordered_set<const void*> seen;
  for (const auto& entry : model.named_parameters()) {
    if (!entry.value().defined() || !seen.insert(entry.value().unsafeGetTensorImpl()).second) continue;
    const size_t module = of_parameter(entry.key());
    add_place(entry.value(), module);
    for (size_t above = module;; above = parents_[above]) {
      rows_[above].parameters += entry.value().numel();
      if (above == kRoot) break;
    }
  }
  for (const auto& entry : model.named_buffers())
    if (entry.value().defined() && seen.insert(entry.value().unsafeGetTensorImpl()).second)
      add_place(entry.value(), of_parameter(entry.key()));
}

size_t Modules::of_parameter(const std::string& name) const {
  const auto found = by_name_.find(parent_name(name));
  return found == by_name_.end() ? kRoot : found->second;
}

void Modules::add_place(const at::Tensor& tensor, size_t module) {
  const auto* storage = storage_of(tensor);
  if (!storage) return;
  const auto size = static_cast<int64_t>(tensor.element_size()), begin = tensor.storage_offset() * size;
  places_[storage].push_back({begin, begin + tensor.numel() * size, module});
}

size_t Modules::common_ancestor(size_t a, size_t b) const {
  while (a != b) {
    if (rows_[a].depth >= rows_[b].depth)
      a = parents_[a];
    else
      b = parents_[b];
  }
  return a;
}

std::optional<size_t> Modules::owner(const at::Tensor& tensor) const {
  const auto* storage = storage_of(tensor);
  if (!storage) return std::nullopt;
  if (const auto found = places_.find(storage); found != places_.end()) {
    const int64_t at = tensor.storage_offset() * static_cast<int64_t>(tensor.element_size());
    for (const ModuleRange& place : found->second)
      if (at >= place.begin && at < place.end) return place.module;
    return std::nullopt;
  }
  const auto copy = copies_.find(storage);
  return copy == copies_.end() ? std::nullopt : std::optional(copy->second.module);
}

void Modules::add_copy(const at::Tensor& copy, size_t module) {
  const auto* storage = storage_of(copy);
  if (!storage || places_.count(storage) || copies_.count(storage)) return;
  copies_.emplace(storage, ParameterCopy{copy.storage().getWeakStorageImpl(), module});
}

}  // namespace gannet::profiler
