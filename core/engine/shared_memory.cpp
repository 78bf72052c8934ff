// Refuses two tensors in the same memory: at construction, because the flat buffers would separate
// them, and later if the program gives a parameter different memory.
#include "engine/shared_memory.h"

#include <gannet/error.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/format.h"
#include "engine/construction.h"

namespace gannet {
namespace {

// Returns the start of the first element and the end of the last one, in bytes from the start of
// the storage.
std::pair<int64_t, int64_t> extent_of(const at::Tensor& tensor) {
  int64_t last = 0;
  for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  const auto size = static_cast<int64_t>(tensor.element_size());
  return {tensor.storage_offset() * size, (tensor.storage_offset() + last + 1) * size};
}

bool has_bytes(const c10::StorageImpl* storage) { return !zero::is_watched(storage) && storage->data() != nullptr; }

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  if (!a.has_storage() || !b.has_storage() || a.numel() == 0 || b.numel() == 0) return false;
  const c10::StorageImpl* const in_a = a.storage().unsafeGetStorageImpl();
  const c10::StorageImpl* const in_b = b.storage().unsafeGetStorageImpl();
  const auto [begin_a, end_a] = extent_of(a);
  const auto [begin_b, end_b] = extent_of(b);
  if (in_a == in_b) return begin_a < end_b && begin_b < end_a;
  if (!has_bytes(in_a) || !has_bytes(in_b)) return false;
  const auto* const at_a = static_cast<const char*>(in_a->data());
  const auto* const at_b = static_cast<const char*>(in_b->data());
  return at_a + begin_a < at_b + end_b && at_b + begin_b < at_a + end_a;
}

using StorageHolders = std::unordered_map<const c10::StorageImpl*, size_t>;

// Counts the bases of parameters that were created as views of a temporary, such as
// torch::ones({4}).unsqueeze(0). Autograd keeps the temporary for the parameter, and nothing else
// can reach it.
void count_bases(const ParameterStore& store, StorageHolders& holders) {
  std::unordered_map<const void*, size_t> views;  // the number of views of each base
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters)
      if (parameter.tensor.is_view()) ++views[parameter.tensor._base().unsafeGetTensorImpl()];
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters) {
      if (!parameter.tensor.is_view()) continue;
      const at::TensorBase& base = parameter.tensor._base();
      const auto found = views.find(base.unsafeGetTensorImpl());
      if (found == views.end()) continue;
      if (base.use_count() == found->second) ++holders[base.storage().unsafeGetStorageImpl()];
      views.erase(found);
    }
}

}  // namespace

void refuse_overlap(const torch::nn::Module& module, const std::vector<std::pair<std::string, at::Tensor>>& given) {
  const auto parameters = module.named_parameters(), buffers = module.named_buffers();
  const auto refuse = [](const std::string& name, const std::string& other) {
    throw Error(ErrorCode::kArgument,
                formatted("parameter '{}' was given the memory of {} (by set_data): they would share memory, and the engine "
                          "trains each in a place of its own",
                          name, other),
                "register one tensor under both names before initialize() (tied), or give it a copy (clone())");
  };
  for (const auto& [name, tensor] : given) {
    for (const auto& other : parameters)
      if (!other.value().is_same(tensor) && overlap(other.value(), tensor))
        refuse(name, formatted("parameter '{}'", other.key()));
    for (const auto& other : buffers)
      if (other.value().defined() && overlap(other.value(), tensor)) refuse(name, formatted("buffer '{}'", other.key()));
  }
}

namespace {

// Two parameters in the same memory would separate when each gets its own place in the flat
// buffers.
void refuse_parameters_in_one_memory(const ParameterStore& store) {
  struct Extent {
    const char *begin, *end;
    const std::string* name;
  };
  std::vector<Extent> extents;
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters) {
      const at::Tensor& tensor = parameter.tensor;
      const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
      if (zero::is_watched(storage) || storage->data() == nullptr) continue;
      const auto* const bytes = static_cast<const char*>(storage->data());
      const auto [begin, end] = extent_of(tensor);
      extents.push_back({bytes + begin, bytes + end, &parameter.name});
    }
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].begin < extents[i - 1].end)
      throw Error(
          ErrorCode::kArgument,
          formatted(
              "parameters '{}' and '{}' share memory (one is a view of the other), and an update of each alone would part them",
              *extents[i - 1].name, *extents[i].name),
          "register one tensor under both names (tied), or register one and make the view in forward");
}

// Anything else that holds a parameter's memory would keep the current values forever, because the
// parameter moves into the flat buffers.
void refuse_held_memory(const torch::nn::Module& module, const ParameterStore& store) {
  StorageHolders holders;
  std::unordered_map<const c10::StorageImpl*, std::string> buffers;
  std::unordered_set<const void*> seen;
  const auto count = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage() && seen.insert(tensor.unsafeGetTensorImpl()).second)
      ++holders[tensor.storage().unsafeGetStorageImpl()];
  };
  for (const auto& tensor : module.parameters()) count(tensor);
  for (const auto& entry : module.named_buffers()) {
    count(entry.value());
    if (entry.value().defined() && entry.value().has_storage())
      buffers.emplace(entry.value().storage().unsafeGetStorageImpl(), entry.key());
  }
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters) count(parameter.tensor);
  count_bases(store, holders);
  for (const auto& range : store.ranges())
    for (const auto& parameter : range.parameters) {
      const c10::StorageImpl* const storage = parameter.tensor.storage().unsafeGetStorageImpl();
      if (zero::is_watched(storage) || !Ownership::owner_of(parameter.tensor).empty()) continue;
      const auto buffer = buffers.find(storage);
      const bool is_held = static_cast<size_t>(parameter.tensor.storage().use_count()) > holders[storage];
      if (buffer != buffers.end() || is_held)
        throw Error(
            ErrorCode::kArgument,
            formatted(
                "the memory of parameter '{}' is also that of {} (a view or a detach() made before initialize(), a loss that "
                "still holds its graph, or what LibTorch keeps of a backward that threw): it would keep the values of today "
                "while the parameter trains elsewhere",
                parameter.name,
                buffer != buffers.end() ? formatted("buffer '{}'", buffer->second) : std::string("another tensor")),
            "make views in forward (weight.t()), clone() what is to be kept, and let losses of earlier forwards go; after a "
            "backward that threw, parameter.set_data(parameter.detach().clone())");
    }
}

}  // namespace

void refuse_shared_memory(const torch::nn::Module& module, const ParameterStore& store) {
  refuse_parameters_in_one_memory(store);
  refuse_held_memory(module, store);
}

}  // namespace gannet
