// Parses and formats the JSON header of a safetensors file, without reading or writing the bytes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::safetensors {

// The format's own limit, against headers made only to fill memory.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct Entry {
  std::string name;
  c10::ScalarType dtype;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes, from the end of the header
};

struct Header {
  std::vector<Entry> entries;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

/// "F32" for kFloat ...; null if the format has no name for it.
const char* dtype_name(c10::ScalarType dtype);
/// The inverse; empty for a name that the format does not have.
std::optional<c10::ScalarType> dtype_of(std::string_view name);

/// Checks everything: syntax, duplicate names, dtypes, shapes against byte counts, and that the
/// tensors cover the `data_bytes` behind the header without gap or overlap. Throws Error(kCorrupt),
/// and Error(kUnsupported) for a dtype of the format that Gannet does not have. `path` is for the
/// message.
Header parse_header(std::string_view json, uint64_t data_bytes, const std::string& path);

/// The JSON text, padded with spaces so that the data behind it begins at a multiple of 8 bytes.
std::string format_header(const Header& header);

}  // namespace gannet::safetensors
