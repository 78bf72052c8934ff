// What is refused at construction because two tensors hold one memory: the flat buffers would take one of them away.
#include <gannet/error.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/format.h"
#include "engine/construction.h"
#include "engine/impl.h"

namespace gannet {

// Two parameters in one memory would part when each gets a place of its own in the flat buffers.
void refuse_shared_memory(const EngineBase::Impl& impl) {
  struct Extent {
    const char *begin, *end;
    const std::string* name;
  };
  std::vector<Extent> extents;
  for (const auto& range : impl.store.ranges())
    for (const auto& parameter : range.parameters) {
      const at::Tensor& tensor = parameter.tensor;
      const c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
      if (zero::is_watched(storage) || storage->data() == nullptr) continue;
      int64_t last = 0;
      for (int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
      const auto* const begin = static_cast<const char*>(storage->data()) + tensor.storage_offset() * tensor.element_size();
      extents.push_back({begin, begin + (last + 1) * static_cast<int64_t>(tensor.element_size()), &parameter.name});
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

  // Who else holds the memory would see the values of today for ever: the parameter moves into the flat buffers.
  std::unordered_map<const c10::StorageImpl*, size_t> holders;
  std::unordered_map<const c10::StorageImpl*, std::string> buffers;
  std::unordered_set<const void*> seen;
  const auto count = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.has_storage() && seen.insert(tensor.unsafeGetTensorImpl()).second)
      ++holders[tensor.storage().unsafeGetStorageImpl()];
  };
  for (const auto& tensor : impl.module->parameters()) count(tensor);
  for (const auto& entry : impl.module->named_buffers()) {
    count(entry.value());
    if (entry.value().defined() && entry.value().has_storage())
      buffers.emplace(entry.value().storage().unsafeGetStorageImpl(), entry.key());
  }
  for (const auto& range : impl.store.ranges())
    for (const auto& parameter : range.parameters) count(parameter.tensor);
  for (const auto& range : impl.store.ranges())
    for (const auto& parameter : range.parameters) {
      const c10::StorageImpl* const storage = parameter.tensor.storage().unsafeGetStorageImpl();
      if (zero::is_watched(storage) || !Ownership::owner_of(parameter.tensor).empty()) continue;
      const auto buffer = buffers.find(storage);
      const bool is_held = static_cast<size_t>(parameter.tensor.storage().use_count()) > holders[storage];
      if (buffer != buffers.end() || is_held)
        throw Error(
            ErrorCode::kArgument,
            formatted("the memory of parameter '{}' is also that of {} (a view or a detach() made before initialize(), or a loss "
                      "that still holds its graph): it would keep the values of today while the parameter trains elsewhere",
                      parameter.name,
                      buffer != buffers.end() ? formatted("buffer '{}'", buffer->second) : std::string("another tensor")),
            "make views in forward (weight.t()), clone() what is to be kept, and let losses of earlier forwards go");
    }
}

}  // namespace gannet
