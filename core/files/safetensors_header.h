// Parses and formats the JSON header of a safetensors file, without reading or writing the tensors'
// bytes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::safetensors {

// The format's own limit, which guards against headers made only to fill memory.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct Entry {
  std::string name;
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // in bytes from the end of the header
};

struct Header {
  std::vector<Entry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// Returns "F32" for kFloat, and so on; null if the format has no name for the dtype.
const char* dtype_name(c10::ScalarType dtype);
/// The inverse of dtype_name(); empty for a name that the format does not have.
std::optional<c10::ScalarType> dtype_of(std::string_view name);

/// Checks everything: syntax, duplicate names, dtypes, shapes against byte counts, and that the
/// tensors cover the `data_bytes` after the header without gaps or overlaps. Throws
/// Error(kCorrupt), and Error(kUnsupported) for a dtype of the format that Gannet does not have.
/// `path` is for the message.
Header parse_header(std::string_view json, uint64_t data_bytes, const std::string& path);

/// Returns the JSON text, padded with spaces so that the data after it begins at a multiple of 8
/// bytes.
std::string format_header(const Header& header);

}  // namespace gannet::safetensors
