// Reads a tensor's elements in logical order from a storage with any strides: transposed, expanded,
// overlapping.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "files/object.h"

namespace gannet::files {

// Reads bytes [offset, offset + count) of the storage.
using ReadStorage = std::function<void(char* to, uint64_t count, uint64_t offset)>;

// Reads elements [begin, begin + into.numel()) of the flattened tensor. `into` is contiguous CPU
// memory of its dtype. Elements that are already in order are read in place; the rest goes through
// a buffer of at most 64 MiB.
void read_elements(const StoredTensor& tensor, int64_t begin, const at::Tensor& into, const ReadStorage& read);

}  // namespace gannet::files
