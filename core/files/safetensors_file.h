// A safetensors file, opened and checked. The header is read up front, values on demand.
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
  at::Tensor read(const Entry& entry) const;  // returns a tensor on the CPU, in its own memory
  // Reads bytes [begin, begin + bytes) of a tensor. Thread-safe.
  void read(const Entry& entry, uint64_t begin, uint64_t bytes, char* to) const;

 private:
  void read(char* to, uint64_t bytes, uint64_t offset) const;

  std::string path_;
  // It is read only with pread(), so threads share no file position.
  files::Descriptor file_;
  Header header_;
  // The number of bytes before the data: 8 plus the header's length. Entries' offsets count from
  // here.
  uint64_t data_begin_ = 0;
};

}  // namespace gannet::safetensors
