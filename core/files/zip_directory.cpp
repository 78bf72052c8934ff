// Fields and signatures: APPNOTE.TXT, "4.3 General Format of a .ZIP file".
#include "files/zip_directory.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/format.h"

namespace gannet::files {
namespace {

constexpr uint32_t kLocal = 0x04034b50, kCentral = 0x02014b50, kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
// Sizes of the records' fixed parts. Names, extra fields and comments follow; the records give
// their lengths.
constexpr uint64_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
// Bits 0 and 3 of the general purpose flag (4.4.4); with bit 3, the checksum and sizes follow the
// content.
constexpr uint16_t kEncrypted = 1, kSizesFollow = 8;

// The central directory: its number of entries, its length in bytes and its first byte in the file.
struct CentralDirectory {
  uint64_t entries = 0, bytes = 0, offset = 0;
};

[[noreturn]] void unsupported(const std::string& what) {
  throw Error(ErrorCode::kUnsupported, what,
              "torch.save writes one file whose entries are stored as they are: load the file in PyTorch and save it again");
}

// Finds the end-of-archive record. It ends the file, except for an optional comment of a declared
// length.
uint64_t find_end(const Bytes& bytes) {
  const uint64_t most = std::min<uint64_t>(bytes.size(), kEndBytes + 0xffff);
  std::vector<char> tail(most);
  bytes.read(tail.data(), most, bytes.size() - most);
  for (uint64_t at = most < kEndBytes ? 0 : most - kEndBytes + 1; at-- > 0;) {
    uint32_t signature;
    uint16_t comment;
    std::memcpy(&signature, tail.data() + at, sizeof(signature));
    std::memcpy(&comment, tail.data() + at + 20, sizeof(comment));
    if (signature == kEnd && at + kEndBytes + comment == most) return bytes.size() - most + at;
  }
  corrupt(bytes.path(), bytes.size(), "the zip archive has no end: its directory, which is written last, is missing");
}

CentralDirectory read_end(const Bytes& bytes) {
  const uint64_t end = find_end(bytes);
  Cursor record(bytes, end + 4, end + kEndBytes);
  const char* const what = "the end record";
  const auto disk = record.number<uint16_t>(what), first_disk = record.number<uint16_t>(what);
  const auto here = record.number<uint16_t>(what), entries = record.number<uint16_t>(what);
  const auto directory_bytes = record.number<uint32_t>(what), offset = record.number<uint32_t>(what);
  CentralDirectory found{entries, directory_bytes, offset};
  // The directory precedes the record that describes it: the zip64 end record, or the end record if
  // there is none.
  uint64_t limit = end;
  uint32_t signature = 0;
  if (end >= kLocator64Bytes) bytes.read(reinterpret_cast<char*>(&signature), sizeof(signature), end - kLocator64Bytes);
  if (signature == kLocator64) {
    Cursor locator(bytes, end - kLocator64Bytes + 8, end);
    const auto end64 = locator.number<uint64_t>("the zip64 locator");
    if (end64 > end - kLocator64Bytes || end - kLocator64Bytes - end64 < kEnd64Bytes)
      corrupt(bytes.path(), end - kLocator64Bytes,
              formatted("the zip64 end record should be at byte {}, where it does not fit", end64));
    Cursor record64(bytes, end64, end64 + kEnd64Bytes);
    if (record64.number<uint32_t>("the zip64 end record") != kEnd64)
      corrupt(bytes.path(), end64, "no zip64 end record is here, as the locator says");
    record64.take(20, "the zip64 end record");
    const auto here64 = record64.number<uint64_t>("entries");
    found.entries = record64.number<uint64_t>("entries");
    found.bytes = record64.number<uint64_t>("the directory's size");
    found.offset = record64.number<uint64_t>("the directory's place");
    if (here64 != found.entries) unsupported(formatted("{} is one part of a zip archive in several files", bytes.path()));
    limit = end64;
  } else if (disk != 0 || first_disk != 0 || here != entries) {
    unsupported(formatted("{} is one part of a zip archive in several files", bytes.path()));
  }
  if (found.offset > limit || found.bytes > limit - found.offset)
    corrupt(bytes.path(), end,
            formatted("the zip directory should have {} bytes from byte {}, which is past byte {}, where it ends", found.bytes,
                      found.offset, limit));
  // This count sizes a reservation, so it must not exceed what the directory's bytes can hold.
  if (found.entries > found.bytes / kCentralBytes)
    corrupt(bytes.path(), end, formatted("the zip directory should have {} entries in {} bytes", found.entries, found.bytes));
  return found;
}

// The 64-bit values of fields whose 32-bit value is all ones. The "extra" part has them in this
// order, for those fields only.
struct WideFields {
  uint64_t bytes, stored_bytes, offset;
};

void widen(WideFields& fields, std::string_view extra, const Bytes& bytes, uint64_t at) {
  uint64_t* wanted[] = {&fields.bytes, &fields.stored_bytes, &fields.offset};
  const bool any = std::any_of(std::begin(wanted), std::end(wanted), [](const uint64_t* field) { return *field == 0xffffffff; });
  while (any && extra.size() >= 4) {
    uint16_t id, length;
    extra.copy(reinterpret_cast<char*>(&id), 2);
    extra.copy(reinterpret_cast<char*>(&length), 2, 2);
    if (length > extra.size() - 4) break;
    std::string_view content = extra.substr(4, length);
    extra.remove_prefix(4 + length);
    // Header id 1: zip64 extended information (4.5.3). Extra fields of other kinds are skipped.
    if (id != 1) continue;
    for (uint64_t* field : wanted) {
      if (*field != 0xffffffff) continue;
      if (content.size() < 8) corrupt(bytes.path(), at, "an entry's zip64 sizes are cut off");
      content.copy(reinterpret_cast<char*>(field), 8);
      content.remove_prefix(8);
    }
    return;
  }
  if (any) corrupt(bytes.path(), at, "an entry of 4 GiB or more has no zip64 sizes");
}

// Checks the entry's own header, which repeats the entry's name. The content follows the header,
// before the directory.
void read_local(const Bytes& bytes, ZipEntry& entry, uint64_t header, uint64_t directory) {
  const auto wrong = [&](const std::string& what) {
    corrupt(bytes.path(), header, formatted("the entry {} {}", shown(entry.name), what));
  };
  if (header > directory || directory - header < kLocalBytes) wrong("should have its header here, where no entry can be");
  Cursor local(bytes, header, directory, 256);
  const char* const what = "an entry's header";
  if (local.number<uint32_t>(what) != kLocal) wrong("should have its header here, and has none");
  local.take(2, what);  // version needed to extract
  const auto flags = local.number<uint16_t>(what);
  local.take(10, what);  // method, time, date, CRC-32
  const auto stored = local.number<uint32_t>(what), size = local.number<uint32_t>(what);
  const auto name_bytes = local.number<uint16_t>(what), extra_bytes = local.number<uint16_t>(what);
  if (local.take(name_bytes, "an entry's name") != entry.name) wrong("has another name here than in the directory");
  local.take(extra_bytes, "an entry's extra part");
  // Streaming writers put the sizes after the content. In that case, only the directory has them.
  if (!(flags & kSizesFollow) &&
      ((stored != 0xffffffff && stored != entry.bytes) || (entry.method == 0 && size != 0xffffffff && size != entry.bytes)))
    wrong("has another size here than in the directory");
  entry.offset = local.offset();
  if (entry.bytes > directory - entry.offset)
    wrong(formatted("should have {} bytes, and {} are left", entry.bytes, directory - entry.offset));
}

}  // namespace

ZipDirectory::ZipDirectory(const Bytes& bytes) {
  const CentralDirectory found = read_end(bytes);
  entries_.reserve(found.entries);
  std::vector<std::pair<uint64_t, uint64_t>> extents;  // from each entry's header to the end of its content
  extents.reserve(found.entries);
  Cursor directory(bytes, found.offset, found.offset + found.bytes);
  for (uint64_t i = 0; i < found.entries; ++i) {
    const uint64_t at = directory.offset();
    const char* const what = "an entry of the zip directory";
    if (directory.number<uint32_t>(what) != kCentral)
      corrupt(bytes.path(), at, formatted("no entry of the zip directory is here; it should have {}", found.entries));
    directory.take(4, what);  // version made by, version needed
    const auto flags = directory.number<uint16_t>(what), method = directory.number<uint16_t>(what);
    directory.take(4, what);  // time, date
    ZipEntry entry;
    entry.crc = directory.number<uint32_t>(what);
    WideFields wide{};
    wide.stored_bytes = directory.number<uint32_t>(what);
    wide.bytes = directory.number<uint32_t>(what);
    const auto name_bytes = directory.number<uint16_t>(what), extra_bytes = directory.number<uint16_t>(what),
               comment_bytes = directory.number<uint16_t>(what);
    directory.take(8, what);  // disk of the entry, internal and external attributes
    wide.offset = directory.number<uint32_t>(what);
    entry.name = directory.take(name_bytes, "an entry's name");
    widen(wide, directory.take(extra_bytes, "an entry's extra part"), bytes, at);
    directory.take(comment_bytes, "an entry's comment");
    if (flags & kEncrypted) unsupported(formatted("{}: the entry {} is encrypted", bytes.path(), shown(entry.name)));
    if (method == 0 && wide.bytes != wide.stored_bytes)
      corrupt(bytes.path(), at, formatted("the entry {} is not compressed and has two sizes", shown(entry.name)));
    entry.method = method;
    entry.bytes = wide.stored_bytes;
    read_local(bytes, entry, wide.offset, found.offset);
    extents.emplace_back(wide.offset, entry.offset + entry.bytes);
    entries_.push_back(std::move(entry));
  }
  if (directory.left() != 0)
    corrupt(bytes.path(), directory.offset(), formatted("{} bytes follow the zip directory's last entry", directory.left()));
  // In a zip bomb, entries that each pass their own checks share bytes.
  std::sort(extents.begin(), extents.end());
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].first < extents[i - 1].second)
      corrupt(bytes.path(), extents[i].first, "two entries of the zip archive overlap here");
  std::sort(entries_.begin(), entries_.end(), [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  for (size_t i = 1; i < entries_.size(); ++i)
    if (entries_[i].name == entries_[i - 1].name)
      corrupt(bytes.path(), entries_[i].offset, formatted("the zip archive has two entries {}", shown(entries_[i].name)));
}

const ZipEntry* ZipDirectory::find(std::string_view name) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), name,
                                      [](const ZipEntry& entry, std::string_view key) { return entry.name < key; });
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

void require_stored(const Bytes& bytes, const ZipEntry& entry) {
  if (entry.method != 0)
    unsupported(formatted("{}: the entry {} is compressed (method {})", bytes.path(), shown(entry.name), entry.method));
}

void check_crc(const Bytes& bytes, const ZipEntry& entry) {
  require_stored(bytes, entry);
  Cursor content(bytes, entry.offset, entry.offset + entry.bytes);
  uLong crc = ::crc32(0, nullptr, 0);
  while (content.left() > 0) {
    const std::string_view part = content.take(std::min<uint64_t>(content.left(), 64 << 10), "content");
    crc = ::crc32(crc, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
  }
  if (crc != entry.crc)
    corrupt(bytes.path(), entry.offset,
            formatted("the entry {} is damaged: its checksum is another than the directory's", shown(entry.name)));
}

std::string read_entry(const Bytes& bytes, const ZipEntry& entry, uint64_t limit) {
  if (entry.bytes > limit)
    corrupt(bytes.path(), entry.offset,
            formatted("the entry {} has {} bytes, at most {} are sensible", shown(entry.name), entry.bytes, limit));
  check_crc(bytes, entry);
  std::string text(entry.bytes, '\0');
  bytes.read(text.data(), text.size(), entry.offset);
  return text;
}

}  // namespace gannet::files
