// What lies where in a zip archive, as torch.save writes them: entries that are stored, and zip64's large sizes. Compressed ones
// (the code in TorchScript's archives) are listed, and cannot be read.
// Nothing is believed that the file's own bytes do not bear out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "files/bytes.h"

namespace gannet::files {

struct ZipEntry {
  std::string name;
  uint64_t offset = 0, bytes = 0;  // of its content, in the file
  uint32_t crc = 0;
  uint16_t method = 0;  // 0: stored as it is; others are compressed, and `bytes` is then the size that it is compressed to
};

class ZipDirectory {
 public:
  // Throws Error(kCorrupt) where the archive contradicts itself or the file's size: a directory that is cut off or points
  // elsewhere, entries that overlap, names given twice. Error(kUnsupported): encrypted, or in several files.
  explicit ZipDirectory(const Bytes& bytes);
  const std::vector<ZipEntry>& entries() const { return entries_; }  // by name
  const ZipEntry* find(std::string_view name) const;

 private:
  // Sorted by name, each name once: find() is a binary search.
  std::vector<ZipEntry> entries_;
};

// Error(kUnsupported) for an entry that is compressed.
void require_stored(const Bytes& bytes, const ZipEntry& entry);
// The content's CRC-32 is what the directory says, else Error(kCorrupt).
void check_crc(const Bytes& bytes, const ZipEntry& entry);
std::string read_entry(const Bytes& bytes, const ZipEntry& entry, uint64_t limit);  // with its CRC

}  // namespace gannet::files
