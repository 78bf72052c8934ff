#include "files/safetensors_file.h"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <gannet/error.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "base/first_bytes.h"
#include "base/format.h"

static_assert(std::endian::native == std::endian::little, "the format is little-endian and tensors are read as they lie");

namespace gannet::safetensors {

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  const auto kind = files::kind_of(path);
  if (kind.exists && !kind.is_file) throw Error(ErrorCode::kIo, formatted("cannot read {}: it is not a file", path));
  file_ = files::open_file(path, O_RDONLY | O_NONBLOCK);
  const std::string advice = "the file is damaged or not in the safetensors format: fetch or save it again";
  char head[kHeadBytes];
  const uint64_t head_bytes = std::min<uint64_t>(sizeof(head), kind.bytes);
  read(head, head_bytes, 0);
  require_format({head, head_bytes}, kind.bytes, path, {Format::kSafetensors});
  uint64_t header_bytes = 0;
  if (kind.bytes < sizeof(header_bytes))
    throw Error(ErrorCode::kCorrupt, formatted("{}: a file of {} bytes has no room for a header", path, kind.bytes), advice);
  read(reinterpret_cast<char*>(&header_bytes), sizeof(header_bytes), 0);
  if (header_bytes > kMaxHeaderBytes)
    throw Error(ErrorCode::kCorrupt, formatted("{}: its header claims {} bytes, the format allows 100000000", path, header_bytes),
                advice);
  if (header_bytes > kind.bytes - sizeof(header_bytes))
    throw Error(ErrorCode::kCorrupt, formatted("{}: its header claims {} bytes, the file has {}", path, header_bytes, kind.bytes),
                advice);
  std::string json(header_bytes, '\0');
  read(json.data(), header_bytes, sizeof(header_bytes));
  data_begin_ = sizeof(header_bytes) + header_bytes;
  header_ = parse_header(json, kind.bytes - data_begin_, path);
}

void SafetensorsFile::read(char* to, uint64_t bytes, uint64_t offset) const {
  // read_at() returns false both on an error and at the end of the file; only the error sets errno.
  errno = 0;
  if (files::read_at(file_, to, bytes, offset)) return;
  if (errno != 0) files::io_failed("read", path_, errno);
  throw Error(ErrorCode::kIo, formatted("{} became shorter while it was read", path_));
}

void SafetensorsFile::read(const Entry& entry, uint64_t begin, uint64_t bytes, char* to) const {
  if (begin > entry.end - entry.begin || bytes > entry.end - entry.begin - begin)
    throw Error(ErrorCode::kArgument, formatted("{}: bytes beyond the end of tensor '{}' are asked for", path_, entry.name));
  read(to, bytes, data_begin_ + entry.begin + begin);
}

at::Tensor SafetensorsFile::read(const Entry& entry) const {
  at::Tensor tensor = at::empty(entry.shape, entry.dtype);
  read(static_cast<char*>(tensor.mutable_data_ptr()), entry.end - entry.begin, data_begin_ + entry.begin);
  return tensor;
}

}  // namespace gannet::safetensors
