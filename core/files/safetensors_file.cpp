#include "files/safetensors_file.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <gannet/error.h>

#include <bit>
#include <cerrno>

static_assert(std::endian::native == std::endian::little, "the format is little-endian and tensors are read as they lie");

namespace gannet::safetensors {

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const auto kind = files::kind_of(path);
  if (kind.exists && !kind.is_file) throw Error(ErrorCode::kIo, "cannot read " + path + ": it is not a file");
  file_ = files::open_file(path, O_RDONLY | O_NONBLOCK);
  const std::string advice = "the file is damaged or not in the safetensors format: fetch or save it again";
  uint64_t header_bytes = 0;
  if (kind.bytes < sizeof(header_bytes))
    throw Error(ErrorCode::kCorrupt, path + ": a file of " + std::to_string(kind.bytes) + " bytes has no room for a header",
                advice);
  read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes), 0);
  if (header_bytes > kMaxHeaderBytes)
    throw Error(ErrorCode::kCorrupt,
                path + ": its header claims " + std::to_string(header_bytes) + " bytes, the format allows 100000000", advice);
  if (header_bytes > kind.bytes - sizeof(header_bytes))
    throw Error(
        ErrorCode::kCorrupt,
        path + ": its header claims " + std::to_string(header_bytes) + " bytes, the file has " + std::to_string(kind.bytes),
        advice);
  std::string json(header_bytes, '\0');
  read(json.data(), header_bytes, sizeof(header_bytes));
  data_begin_ = sizeof(header_bytes) + header_bytes;
  header_ = parse_header(json, kind.bytes - data_begin_, path);
}

void SafetensorsFile::read(char* to, uint64_t bytes, uint64_t offset) const {
  errno = 0;
  if (files::read_at(file_, to, bytes, offset)) return;
  if (errno != 0) files::io_failed("read", path_, errno);
  throw Error(ErrorCode::kIo, path_ + " became shorter while it was read");
}

void SafetensorsFile::read(const Entry& entry, uint64_t begin, uint64_t bytes, char* to) const {
  if (begin > entry.end - entry.begin || bytes > entry.end - entry.begin - begin)
    throw Error(ErrorCode::kArgument, path_ + ": bytes beyond the end of tensor '" + entry.name + "' are asked for");
  read(to, bytes, data_begin_ + entry.begin + begin);
}

at::Tensor SafetensorsFile::read(const Entry& entry) const {
  at::Tensor tensor = at::empty(entry.shape, entry.dtype);
  read(static_cast<char*>(tensor.mutable_data_ptr()), entry.end - entry.begin, data_begin_ + entry.begin);
  return tensor;
}

}  // namespace gannet::safetensors
