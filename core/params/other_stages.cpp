#include "params/other_stages.h"

#include <ATen/ops/empty.h>
#include <c10/core/Storage.h>
#include <gannet/error.h>

#include <map>
#include <mutex>

#include "base/format.h"
#include "base/text.h"

namespace gannet {
namespace {

// Marks these tensors: they share one empty storage per device.
struct Marks {
  std::mutex mutex;
  std::map<std::string, c10::Storage> by_device;
};

Marks& marks() {
  static Marks* const forever = new Marks;  // never destroyed: models in global variables may outlive it
  return *forever;
}

}  // namespace

void leave_to_other_stages(at::Tensor tensor) {
  at::Tensor empty = at::empty({0}, tensor.options().requires_grad(false));
  const std::lock_guard lock(marks().mutex);
  const c10::Storage& mark = marks().by_device.emplace(empty.device().str(), empty.storage()).first->second;
  empty.unsafeGetTensorImpl()->set_storage_keep_dtype(mark);
  tensor.set_data(empty);
}

void refuse_of_other_stages(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage() || tensor.numel() > 0) return;
  const std::lock_guard lock(marks().mutex);
  for (const auto& [device, mark] : marks().by_device)
    if (mark.unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl())
      throw Error(
          ErrorCode::kOrder,
          formatted("'{}' is of a model that an earlier pipeline has divided: its memory is on other stages", printable(name)),
          "make a new model, and load the earlier one's weights: save_16bit_model() writes those of all stages");
}

}  // namespace gannet
