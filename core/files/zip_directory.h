// The directory of a zip archive as torch.save writes it: stored entries, with zip64 for large
// sizes. Compressed entries (the code in TorchScript archives) are listed but cannot be read. No
// field is trusted without a check against the file's own bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/bytes.h"

namespace gannet::files {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0, bytes = 0;  // the position of its content in the file
  uint32_t crc = 0;
  uint16_t method = 0;  // 0: stored as is; others are compressed, and `bytes` is then the compressed size
};

class ZipDirectory {
 public:
  // Throws Error(kCorrupt) if the archive contradicts itself or the file's size: a directory that
  // is cut off or points elsewhere, overlapping entries, duplicate names. Throws
  // Error(kUnsupported) if it is encrypted or in several files.
  explicit ZipDirectory(const Bytes& bytes);
  const std::vector<ZipEntry>& entries() const { return entries_; }  // sorted by name
  const ZipEntry* find(std::string_view name) const;

 private:
  // The entries, sorted by name for the binary search of find(); each name occurs once.
  std::vector<ZipEntry> entries_;
};

// Throws Error(kUnsupported) for an entry that is compressed.
void require_stored(const Bytes& bytes, const ZipEntry& entry);
// Throws like require_stored(), and Error(kCorrupt) if the content's CRC-32 differs from the directory's.
void check_crc(const Bytes& bytes, const ZipEntry& entry);
std::string read_entry(const Bytes& bytes, const ZipEntry& entry, uint64_t limit);  // checks the limit and the CRC-32

}  // namespace gannet::files
