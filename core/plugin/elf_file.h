// What stands in a shared object's file, read without running any of it: a named section, the notes, the libraries it needs.
// Every offset is checked against the file's size: a truncated or hostile file is a sentence, never a crash.
#pragma once

#include <elf.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::plugin {

// Throws Error(kPlugin) whose message is the bare reason ("is not a shared object ..."), for a caller that knows the file.
class ElfFile {
 public:
  explicit ElfFile(const std::string& path);
  ~ElfFile();
  ElfFile(const ElfFile&) = delete;

  // Null when there is no such section, or the file has lost its section table. A note is small: one of megabytes is refused.
  std::optional<std::string> section(const std::string& name) const;
  std::vector<std::string> note_segments() const;
  std::vector<std::string> needed() const;  // DT_NEEDED, in order
  // Dynamic symbols that it defines for others, the first thousands of them; none when the section table is gone.
  std::vector<std::string> exported() const;
  std::string_view bytes() const { return bytes_; }

 private:
  void read_headers();
  // A copy of the T at that offset: headers in a file need not be aligned.
  template <class T>
  T at(uint64_t offset, const char* what) const;
  std::string range(uint64_t offset, uint64_t size, const char* what) const;
  std::string text(uint64_t offset) const;  // null-ended
  std::vector<Elf64_Shdr> sections() const;
  // DT_STRTAB holds a virtual address; its place in the file is that of the PT_LOAD segment which maps it.
  std::optional<uint64_t> offset_of_address(uint64_t address) const;

  std::string_view bytes_;  // mapped: a folder may hold files of gigabytes, of which a few headers are read
  Elf64_Ehdr header_{};
  // The loader needs these, so they are there even where the section table was removed.
  std::vector<Elf64_Phdr> segments_;
};

}  // namespace gannet::plugin
