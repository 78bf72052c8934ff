// Reads a shared object's file without running any of it: a named section, the notes, the needed
// libraries. Every offset is checked against the file's size: a truncated or hostile file is an
// error, never a crash.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::plugin {

// Throws Error(kPlugin) with the bare reason ("is not a shared object ..."); the caller adds the
// file.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;

  // Empty if there is no such section or the file has no section table. Notes are small: one of
  // megabytes is refused.
  std::optional<std::string> section(const std::string& name) const;
  std::vector<std::string> note_segments() const;
  std::vector<std::string> needed() const;  // DT_NEEDED, in order
  // The first thousands of dynamic symbols that the file exports; none if the section table is
  // missing.
  std::vector<std::string> exported() const;
  std::string_view bytes() const { return bytes_; }

 private:
  void read_headers();
  // A copy of the T at the offset: headers in a file may be unaligned.
  template <class T>
  T at(uint64_t offset, const char* what) const;
  std::string range(uint64_t offset, uint64_t size, const char* what) const;
  std::string text(uint64_t offset) const;  // null-terminated
  std::vector<Elf64_Shdr> sections() const;
  // DT_STRTAB holds a virtual address; the PT_LOAD segment that maps it gives the file offset.
  std::optional<uint64_t> offset_of_address(uint64_t address) const;

  std::string_view bytes_;  // mapped: a folder may hold files of gigabytes, and only a few headers are read
  Elf64_Ehdr header_{};
  // The loader needs these, so they are present even in a file without its section table.
  std::vector<Elf64_Phdr> segments_;
};

}  // namespace gannet::plugin
