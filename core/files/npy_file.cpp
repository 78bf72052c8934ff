#include "files/npy_file.h"

#include <ATen/ops/empty.h>
#include <c10/core/ScalarType.h>
#include <fcntl.h>
#include <gannet/error.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string_view>

#include "base/first_bytes.h"
#include "base/format.h"

static_assert(std::endian::native == std::endian::little, "arrays are read as they are stored");

namespace gannet::files {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr uint64_t kLongestHeader = 1 << 20;  // of a plain array: a few hundred bytes
void read_or_throw(int file, char* to, uint64_t bytes, uint64_t offset, const std::string& path) {
  errno = 0;  // read_at() sets it only on an error
  if (read_at(file, to, bytes, offset)) return;
  if (errno != 0) io_failed("read", path, errno);
  throw Error(ErrorCode::kIo, formatted("{} became shorter while it was read", path));
}

}  // namespace

NpyFile::NpyFile(const std::string& path) : path_(path) {
  const PathKind kind = kind_of(path);
  if (kind.exists && !kind.is_file) throw Error(ErrorCode::kIo, formatted("cannot read {}: it is not a file", path));
  file_ = open_file(path, O_RDONLY | O_NONBLOCK);
  char head[kHeadBytes];
  const uint64_t head_bytes = std::min<uint64_t>(sizeof(head), kind.bytes);
  read_or_throw(file_, head, head_bytes, 0, path);
  const std::string_view start(head, head_bytes);
  if (!start.starts_with(kMagic)) {
    require_format(start, kind.bytes, path, {});
    throw Error(ErrorCode::kCorrupt, formatted("{} is not a file of numpy.save", path), kSaveArrayAgain);
  }
  // The major version says how long the length is.
  const auto byte = [&](size_t at) { return uint64_t{static_cast<unsigned char>(head[at])}; };
  if (head_bytes < 12)
    throw Error(ErrorCode::kCorrupt, formatted("{}: a file of {} bytes has no header", path, kind.bytes), kSaveArrayAgain);
  const bool is_first_version = byte(6) == 1;
  if (byte(6) < 1 || byte(6) > 3)
    throw Error(ErrorCode::kUnsupported, formatted("{} has version {}.{} of numpy's format", path, byte(6), byte(7)),
                kSaveArrayAgain);
  const uint64_t begin = is_first_version ? 10 : 12;
  const uint64_t bytes = is_first_version ? byte(8) | byte(9) << 8 : byte(8) | byte(9) << 8 | byte(10) << 16 | byte(11) << 24;
  if (bytes > kLongestHeader || begin + bytes > kind.bytes)
    throw Error(ErrorCode::kCorrupt, formatted("{}: its header claims {} bytes, the file has {}", path, bytes, kind.bytes),
                kSaveArrayAgain);
  std::string text(bytes, '\0');
  read_or_throw(file_, text.data(), bytes, begin, path);
  header_ = parse_npy_header(text, path);
  data_begin_ = begin + bytes;
  uint64_t needed = c10::elementSize(header_.dtype);
  row_bytes_ = needed;
  for (size_t i = 0; i < header_.shape.size(); ++i) {
    needed *= static_cast<uint64_t>(header_.shape[i]);
    if (i > 0) row_bytes_ *= static_cast<uint64_t>(header_.shape[i]);
  }
  if (kind.bytes - data_begin_ < needed)
    throw Error(ErrorCode::kCorrupt,
                formatted("{}: its array has {} bytes, the file holds {} of them", path, needed, kind.bytes - data_begin_),
                "the file was cut short: copy or save it again");
}

at::Tensor NpyFile::rows(int64_t begin, int64_t count) const {
  if (header_.shape.empty() || begin < 0 || count < 0 || begin > header_.shape[0] - count)
    throw Error(ErrorCode::kArgument, formatted("{}: rows beyond its end are asked for", path_));
  std::vector<int64_t> shape = header_.shape;
  shape[0] = count;
  at::Tensor tensor = at::empty(shape, header_.dtype);
  read_or_throw(file_, static_cast<char*>(tensor.mutable_data_ptr()), row_bytes_ * static_cast<uint64_t>(count),
                data_begin_ + row_bytes_ * static_cast<uint64_t>(begin), path_);
  return tensor;
}

}  // namespace gannet::files
