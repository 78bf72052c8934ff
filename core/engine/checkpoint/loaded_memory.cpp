#include "engine/checkpoint/loaded_memory.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "params/range.h"

namespace gannet {
namespace {

bool is_zero(const char* begin, const char* end) {
  return std::all_of(begin, end, [](char byte) { return byte == 0; });
}

// Returns the bytes per element in a storage that torch::load gave a parameter; 0 if no dtype fits.
// A flat buffer is saved with its padding, which is zero; a separate tensor has no padding.
int64_t element_bytes_in(const at::Tensor& value, const StorageSharing& sharing) {
  const auto bytes = static_cast<int64_t>(value.storage().nbytes()), own = static_cast<int64_t>(value.element_size());
  const auto fits = [&](int64_t size) { return sharing.extent * size <= bytes && bytes < 2 * sharing.extent * size; };
  if (sharing.is_shared) {
    if (fits(own) || bytes == sharing.flat_bytes) return own;
    for (const int64_t size : {8, 4, 2})
      if (fits(size)) return size;
    return 0;
  }
  const auto* const data = static_cast<const char*>(value.storage().data());
  const bool is_padded = value.is_cpu() && bytes > sharing.extent * own && bytes % (zero::kAlignment * own) == 0 &&
                         is_zero(data + sharing.extent * own, data + bytes);
  for (const int64_t size : {8, 4})
    if (bytes == value.numel() * size) return is_padded && bytes == sharing.flat_bytes ? own : size;
  return is_padded ? own : 0;
}

}  // namespace

at::Tensor as_a_file_has_it(const std::string& name, const at::Tensor& tensor, const StorageSharing& sharing) {
  const at::Tensor value = tensor.detach();
  const auto bytes = static_cast<int64_t>(value.storage().nbytes());
  if ((value.storage_offset() != 0 && !sharing.is_shared) || !value.is_contiguous() || !value.is_floating_point() ||
      value.numel() == 0 || bytes == static_cast<int64_t>(value.nbytes()))
    return tensor;
  const int64_t size = element_bytes_in(value, sharing);
  if (size == static_cast<int64_t>(value.element_size())) return tensor;
  const auto dtype = size == 8 ? at::kDouble : size == 4 ? at::kFloat : at::ScalarType::Undefined;
  if (dtype == at::ScalarType::Undefined)
    throw Error(ErrorCode::kArgument,
                formatted("parameter '{}' was given memory of {} bytes for {} elements of {} (by set_, or torch::load of a file "
                          "in another dtype)",
                          name, bytes, value.numel(), c10::toString(value.scalar_type())),
                "load weights with engine->load_checkpoint() or gannet::load_weights(), or copy_() them");
  return at::empty({0}, value.options().dtype(dtype))
      .set_(value.storage(), value.storage_offset(), value.sizes(), value.strides());
}

}  // namespace gannet
