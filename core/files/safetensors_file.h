// A safetensors file, opened and checked: what is in it at once, values when they are asked for.
//
//   const SafetensorsFile file("model.safetensors");
//   for (const auto& entry : file.header().entries) at::Tensor values = file.read(entry);
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "files/io.h"
#include "files/safetensors_header.h"

namespace gannet::safetensors {

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);  // throws as load_safetensors does
  const std::string& path() const { return path_; }
  const Header& header() const { return header_; }
  at::Tensor read(const Entry& entry) const;  // on the CPU, in memory of its own
  // Bytes [begin, begin + bytes) of a tensor. Thread-safe.
  void read(const Entry& entry, uint64_t begin, uint64_t bytes, char* to) const;

 private:
  void read(char* to, uint64_t bytes, uint64_t offset) const;

  std::string path_;
  // Read with pread() alone, which leaves no file position for threads to share.
  files::Descriptor file_;
  Header header_;
  // Bytes before the data, from which offsets of entries count: 8 and the header's length.
  uint64_t data_begin_ = 0;
};

}  // namespace gannet::safetensors
