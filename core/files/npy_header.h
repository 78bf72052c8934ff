// The header of a file of numpy.save: the literal of a Python dictionary.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace gannet::files {

inline constexpr const char* kSaveArrayAgain = "save the array again, by numpy.save(path, numpy.ascontiguousarray(array))";

struct NpyHeader {
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<int64_t> shape;
};

// Reads "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }". Throws Error(kCorrupt) if it is
// something else, and Error(kUnsupported) for types that have no dtype here, another order of bytes, and
// arrays in Fortran's order.
NpyHeader parse_npy_header(const std::string& text, const std::string& path);

}  // namespace gannet::files
