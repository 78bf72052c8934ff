// What torch::load has put under a parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace gannet {

// Who else has the storage of a parameter.
struct Sharing {
  bool is_shared = false;
  int64_t extent = 0;      // elements from the storage's begin to the end of the last parameter in it
  int64_t flat_bytes = 0;  // of the flat buffer that this engine has the parameter in
};

/// torch::load puts a file's storage under a parameter without a look at the dtype: fp32 weights in a 16-bit parameter would be
/// read as pairs of numbers. It does so by set_(), which advances the version. The storage is all of the tensor or, where an
/// engine's module was saved, the flat buffer that this was in. Answers `tensor`, or its memory in the dtype of the file.
/// Error(kArgument): the memory is of no dtype.
at::Tensor as_a_file_has_it(const std::string& name, const at::Tensor& tensor, const Sharing& sharing);

}  // namespace gannet
