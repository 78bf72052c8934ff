// A file of numpy.save, opened and checked: one array of numbers. Values are read on demand, by
// pread() and not through a mapping: a file that another program shortens is then an error, where a
// mapping would end the process, and several processes share the page cache either way.
//
//   const NpyFile file("input_ids.npy");
//   at::Tensor first = file.rows(0, 8);          // [8, ...], in its own memory
//
// Format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html, versions 1.0 to 3.0.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "files/io.h"
#include "files/npy_header.h"

namespace gannet::files {

class NpyFile {
 public:
  // Throws Error(kNotFound), Error(kIo), and the errors of parse_npy_header.
  explicit NpyFile(const std::string& path);
  const std::string& path() const { return path_; }
  at::ScalarType dtype() const { return header_.dtype; }
  const std::vector<int64_t>& shape() const { return header_.shape; }
  // Rows [begin, begin + count) of the first dimension, which must be there. Thread-safe.
  at::Tensor rows(int64_t begin, int64_t count) const;

 private:
  std::string path_;
  Descriptor file_;
  NpyHeader header_;
  uint64_t data_begin_ = 0, row_bytes_ = 0;
};

}  // namespace gannet::files
