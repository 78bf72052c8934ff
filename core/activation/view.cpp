#include "activation/view.h"

#include <gannet/error.h>

#include <utility>

#include "base/format.h"
#include "base/text.h"

namespace gannet::activation {

WeakStorage weak_storage(const at::Tensor& tensor) {
  return WeakStorage(tensor.unsafeGetTensorImpl()->unsafe_storage().getWeakStorageImpl());
}

View::View(const at::Tensor& tensor)
    : sizes(tensor.sizes()), strides(tensor.strides()), offset(tensor.storage_offset()), dtype(tensor.scalar_type()) {}

View View::of_bytes(int64_t begin, int64_t count) {
  View view;
  view.sizes = {count};
  view.strides = {1};
  view.offset = begin;
  view.dtype = at::kByte;
  return view;
}

int64_t span_of(const at::Tensor& tensor) {
  int64_t span = 1;
  for (int64_t d = 0; d < tensor.dim(); ++d) span += (tensor.size(d) - 1) * tensor.stride(d);
  return span;
}

bool is_plain(const at::Tensor& tensor) {
  return tensor.has_storage() && tensor.layout() == at::kStrided && !tensor.is_quantized() && !tensor.is_conj() &&
         !tensor.is_neg() && !tensor.is_inference();
}

bool is_of_leaf(const at::Tensor& tensor) {
  const auto is_owned = [](const at::TensorBase& one) { return one.is_leaf() && one.requires_grad(); };
  return is_owned(tensor) || (tensor.is_view() && is_owned(tensor._base()));
}

at::Tensor tensor_over(const c10::Storage& storage, c10::DispatchKeySet keys, const View& view) {
  auto impl = c10::make_intrusive<c10::TensorImpl>(c10::Storage(storage), keys, c10::scalarTypeToTypeMeta(view.dtype));
  impl->set_sizes_and_strides(view.sizes, view.strides, view.offset);
  return at::Tensor(std::move(impl));
}

at::Tensor without_graph(const at::Tensor& tensor) {
  auto* const impl = tensor.unsafeGetTensorImpl();
  if (tensor.is_inference()) return tensor;
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), /*allow_tensor_metadata_change=*/true));
}

void throw_changed(const View& saved, const Version& version) {
  throw Error(ErrorCode::kOrder,
              formatted("a tensor of {} {} that an operator saved for backward was changed in place afterwards: it is at "
                        "version {}, and version {} was saved",
                        c10::toString(saved.dtype), shape_text(saved.sizes), version.counter.current_version(), version.number),
              "use the operator that makes a new tensor (relu for relu_), and call backward before the optimizer's step");
}

}  // namespace gannet::activation
