// Reads the file of a shared object without running any of its code: a named section, the notes,
// the needed libraries. Every offset is checked against the file's size, so a truncated or hostile
// file causes an error, never a crash.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::plugin {

// Its functions throw Error(kPlugin) with only the reason ("is not a shared object ..."); the
// caller adds the file's name.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;

  // The content of a section; nullopt if there is no such section or the file has no section table.
  // A section of more than 1 MiB is refused, since notes are small.
  std::optional<std::string> section(const std::string& name) const;
  std::vector<std::string> note_segments() const;
  std::vector<std::string> needed() const;  // the DT_NEEDED entries, in order
  // The dynamic symbols that the file exports, up to the first 4096; none if the section table is
  // missing.
  std::vector<std::string> exported() const;
  std::string_view bytes() const { return bytes_; }

 private:
  void read_headers();
  // Returns a copy of the T at the offset, since headers in a file may be unaligned.
  template <class T>
  T at(uint64_t offset, const char* what) const;
  std::string range(uint64_t offset, uint64_t size, const char* what) const;
  std::string text(uint64_t offset) const;  // reads a null-terminated string
  std::vector<Elf64_Shdr> sections() const;
  // DT_STRTAB holds a virtual address; the PT_LOAD segment that maps it gives the file offset.
  std::optional<uint64_t> offset_of_address(uint64_t address) const;

  std::string_view bytes_;  // mapped, not read: files may be gigabytes large, and only a few headers are needed
  Elf64_Ehdr header_{};
  // The program headers. The loader needs them, so even a file that was stripped of its section
  // table has them.
  std::vector<Elf64_Phdr> segments_;
};

}  // namespace gannet::plugin
