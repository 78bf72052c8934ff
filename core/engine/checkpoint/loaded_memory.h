// Interprets the memory that torch::load gave a parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace gannet {

// How a parameter shares its storage.
struct StorageSharing {
  bool is_shared = false;
  int64_t extent = 0;      // elements from the start of the storage to the end of the last parameter in it
  int64_t flat_bytes = 0;  // the size of this engine's flat buffer that holds the parameter
};

/// torch::load gives a parameter the storage of a file without checking the dtype: fp32 weights in
/// a 16-bit parameter would each be read as two numbers. It uses set_(), which advances the
/// version. The storage holds only the tensor or, if an engine's module was saved, the flat buffer
/// that contained the tensor. Returns `tensor`, or a view of its memory in the file's dtype. Throws
/// Error(kArgument) if the memory fits no dtype.
at::Tensor as_a_file_has_it(const std::string& name, const at::Tensor& tensor, const StorageSharing& sharing);

}  // namespace gannet
