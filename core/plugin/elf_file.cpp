#include "plugin/elf_file.h"

#include <fcntl.h>
#include <gannet/error.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>

#include "base/format.h"
#include "plugin/refuse.h"

namespace gannet::plugin {
namespace {

static_assert(std::endian::native == std::endian::little, "the ELF reader takes the files of a little-endian machine");

#if defined(__x86_64__)
constexpr uint16_t kMachine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
#else
#error "name this machine's ELF number here"
#endif

// These limits are far above what compilers and linkers write. A file that exceeds one is damaged,
// or crafted to exhaust its reader.
constexpr uint64_t kMostHeaders = 4096, kMostExports = 4096;
constexpr uint64_t kLongestName = 1 << 16, kLargestNote = 1 << 20;
constexpr uint64_t kLargestFile = uint64_t{4} << 30;

// Maps the file into memory. Opening a FIFO would wait for a writer, and opening a device may have
// side effects, so the file's type is checked before it is opened, and again afterwards.
std::string_view map_file(const std::string& path) {
  struct stat status{};
  if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) refuse("is not a regular file");
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) refuse(std::string("cannot be opened: ") + std::strerror(errno));
  const bool regular = fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<size_t>(status.st_size);
  const bool fits = size <= kLargestFile;
  void* bytes = regular && size > 0 && fits ? mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0) : MAP_FAILED;
  const int failure = errno;
  close(descriptor);
  if (!regular) refuse("is not a regular file");
  if (size == 0) refuse("is empty");
  if (!fits) refuse(formatted("has {} GiB, and no plugin is that large", size >> 30));
  if (bytes == MAP_FAILED) refuse(std::string("cannot be read: ") + std::strerror(failure));
  return {static_cast<const char*>(bytes), size};
}

}  // namespace

template <class T>
T ElfFile::at(uint64_t offset, const char* what) const {
  if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T))
    refuse(formatted("is truncated: its {} is beyond the file's {} bytes", what, bytes_.size()));
  T value;
  std::memcpy(&value, bytes_.data() + offset, sizeof(T));
  return value;
}

std::string ElfFile::range(uint64_t offset, uint64_t size, const char* what) const {
  if (offset > bytes_.size() || bytes_.size() - offset < size)
    refuse(formatted("is truncated: its {} is beyond the file's {} bytes", what, bytes_.size()));
  return std::string(bytes_.substr(offset, size));
}

std::string ElfFile::text(uint64_t offset) const {
  const std::string_view rest = offset < bytes_.size() ? bytes_.substr(offset, kLongestName) : std::string_view();
  const size_t length = rest.find('\0');
  if (length == std::string_view::npos) refuse("is damaged: a name in it does not end");
  return std::string(rest.substr(0, length));
}

ElfFile::ElfFile(const std::string& path) : bytes_(map_file(path)) {
  // If read_headers() throws, the destructor does not run.
  try {
    read_headers();
  } catch (...) {
    munmap(const_cast<char*>(bytes_.data()), bytes_.size());
    throw;
  }
}

ElfFile::~ElfFile() { munmap(const_cast<char*>(bytes_.data()), bytes_.size()); }

void ElfFile::read_headers() {
  if (bytes_.size() < SELFMAG || bytes_.compare(0, SELFMAG, ELFMAG) != 0) refuse("is not a shared object (no ELF header)");
  if (bytes_.size() > EI_CLASS && bytes_[EI_CLASS] == ELFCLASS32) refuse("is a 32-bit file; this program is 64-bit");
  header_ = at<Elf64_Ehdr>(0, "ELF header");
  if (header_.e_ident[EI_CLASS] != ELFCLASS64 || header_.e_ident[EI_DATA] != ELFDATA2LSB || header_.e_machine != kMachine)
    refuse(formatted("is built for another kind of processor (ELF machine {}, this one is {})", header_.e_machine, kMachine));
  if (header_.e_type != ET_DYN) refuse(formatted("is not a shared object (ELF type {}, a library has 3)", header_.e_type));
  if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phnum > kMostHeaders)
    refuse("is damaged: its segment table makes no sense");
  for (uint64_t i = 0; i < header_.e_phnum; ++i)
    segments_.push_back(at<Elf64_Phdr>(header_.e_phoff + i * sizeof(Elf64_Phdr), "segment table"));
}

std::vector<Elf64_Shdr> ElfFile::sections() const {
  if (header_.e_shoff == 0 || header_.e_shnum == 0) return {};
  if (header_.e_shentsize != sizeof(Elf64_Shdr) || header_.e_shnum > kMostHeaders || header_.e_shstrndx >= header_.e_shnum)
    refuse("is damaged: its section table makes no sense");
  std::vector<Elf64_Shdr> result;
  for (uint64_t i = 0; i < header_.e_shnum; ++i)
    result.push_back(at<Elf64_Shdr>(header_.e_shoff + i * sizeof(Elf64_Shdr), "section table"));
  return result;
}

std::optional<std::string> ElfFile::section(const std::string& name) const {
  const auto all = sections();
  for (const auto& section : all)
    if (section.sh_type != SHT_NULL && section.sh_type != SHT_NOBITS &&
        text(all[header_.e_shstrndx].sh_offset + section.sh_name) == name) {
      if (section.sh_size > kLargestNote) refuse(formatted("is damaged: its {} has {} bytes", name, section.sh_size));
      return range(section.sh_offset, section.sh_size, name.c_str());
    }
  return std::nullopt;
}

std::vector<std::string> ElfFile::exported() const {
  std::vector<std::string> names;
  const auto all = sections();
  for (const auto& section : all) {
    if (section.sh_type != SHT_DYNSYM || section.sh_link >= all.size()) continue;
    if (section.sh_offset > bytes_.size() || bytes_.size() - section.sh_offset < section.sh_size)
      refuse(formatted("is truncated: its symbol table is beyond the file's {} bytes", bytes_.size()));
    for (uint64_t offset = 0; offset + sizeof(Elf64_Sym) <= section.sh_size; offset += sizeof(Elf64_Sym)) {
      const auto symbol = at<Elf64_Sym>(section.sh_offset + offset, "symbol table");
      const auto visibility = ELF64_ST_VISIBILITY(symbol.st_other);
      if (symbol.st_shndx == SHN_UNDEF || ELF64_ST_BIND(symbol.st_info) == STB_LOCAL || visibility == STV_HIDDEN ||
          visibility == STV_INTERNAL)
        continue;
      names.push_back(text(all[section.sh_link].sh_offset + symbol.st_name));
      if (names.size() == kMostExports) return names;
    }
    break;  // a file has at most one
  }
  return names;
}

std::vector<std::string> ElfFile::note_segments() const {
  std::vector<std::string> notes;
  for (const auto& segment : segments_)
    if (segment.p_type == PT_NOTE && segment.p_filesz <= kLargestNote)
      notes.push_back(range(segment.p_offset, segment.p_filesz, "note segment"));
  return notes;
}

std::optional<uint64_t> ElfFile::offset_of_address(uint64_t address) const {
  for (const auto& segment : segments_)
    if (segment.p_type == PT_LOAD && address >= segment.p_vaddr && address - segment.p_vaddr < segment.p_filesz)
      return segment.p_offset + (address - segment.p_vaddr);
  return std::nullopt;
}

std::vector<std::string> ElfFile::needed() const {
  std::vector<uint64_t> name_offsets;
  std::optional<uint64_t> names;
  for (const auto& segment : segments_) {
    if (segment.p_type != PT_DYNAMIC) continue;
    for (uint64_t offset = 0; offset + sizeof(Elf64_Dyn) <= segment.p_filesz; offset += sizeof(Elf64_Dyn)) {
      const auto entry = at<Elf64_Dyn>(segment.p_offset + offset, "dynamic section");
      if (entry.d_tag == DT_NULL) break;
      if (entry.d_tag == DT_NEEDED && name_offsets.size() < kMostHeaders) name_offsets.push_back(entry.d_un.d_val);
      if (entry.d_tag == DT_STRTAB) names = offset_of_address(entry.d_un.d_ptr);
    }
    break;  // a file has at most one
  }
  std::vector<std::string> result;
  if (!name_offsets.empty() && !names) refuse("is damaged: the names of the libraries that it needs are not in it");
  for (const uint64_t offset : name_offsets) result.push_back(text(*names + offset));
  return result;
}

}  // namespace gannet::plugin
