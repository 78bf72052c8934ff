// Reads the zip format: <archive>/data.pkl, <archive>/byteorder, and <archive>/data/<key> for each
// storage. TorchScript archives, which LibTorch's torch::save writes too, also have code/ and
// constants.pkl, which are not read.
#include "files/pt_contents.h"

#include <algorithm>
#include <cstring>

#include "base/first_bytes.h"
#include "base/format.h"
#include "files/zip_directory.h"

namespace gannet::files {
namespace {

constexpr uint64_t kSmallEntry = 4096;

[[noreturn]] void not_ours(const std::string& path, const std::string& what, const std::string& next_step) {
  throw Error(ErrorCode::kUnsupported, formatted("{} {}", path, what), next_step);
}

// Returns the archive's top folder, the parent of the only data.pkl.
std::string archive_of(const ZipDirectory& zip, const std::string& path) {
  constexpr std::string_view kPickle = "/data.pkl";
  std::string archive;
  for (const ZipEntry& entry : zip.entries()) {
    if (!entry.name.ends_with(kPickle) || entry.name.find('/') != entry.name.size() - kPickle.size()) continue;
    if (!archive.empty())
      not_ours(path, formatted("holds two pickles, {} and {}", shown(formatted("{}data.pkl", archive)), shown(entry.name)),
               "torch.save writes one");
    archive = entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
  }
  if (archive.empty())
    not_ours(path, "is a zip archive without a data.pkl: torch.save did not write it", "give a file of torch.save");
  return archive;
}

PtContents read_zip(const Bytes& bytes, uint64_t memory_bytes) {
  const ZipDirectory zip(bytes);
  const std::string archive = archive_of(zip, bytes.path());
  if (const ZipEntry* order = zip.find(formatted("{}byteorder", archive))) {
    const std::string text = read_entry(bytes, *order, kSmallEntry);
    if (text == "big")
      not_ours(bytes.path(), "was written by a big-endian machine", "load it in PyTorch on this machine and save it again");
    if (text != "little") corrupt(bytes.path(), order->offset, formatted("the byte order is {}", shown(text)));
  }
  const ZipEntry& pickle = *zip.find(formatted("{}data.pkl", archive));
  check_crc(bytes, pickle);
  PtContents contents;
  contents.is_zip = true;
  Cursor cursor(bytes, pickle.offset, pickle.offset + pickle.bytes);
  contents.pickle = unpickle(cursor, {.memory_bytes = memory_bytes});
  if (cursor.left() != 0) cursor.corrupt(formatted("{} bytes follow the pickle's end", cursor.left()));
  for (const auto& [key, storage] : contents.pickle.storages) {
    const ZipEntry* entry = zip.find(formatted("{}data/{}", archive, key));
    if (!entry)
      corrupt(bytes.path(), pickle.offset,
              formatted("the pickle speaks of the storage {}, which the archive does not hold", shown(key)));
    require_stored(bytes, *entry);
    if (entry->bytes != static_cast<uint64_t>(storage.bytes()))
      corrupt(bytes.path(), entry->offset,
              formatted("the storage {} has {} bytes, the pickle says {}", shown(key), entry->bytes, storage.bytes()));
    contents.places[key] = {entry->offset, entry->bytes};
  }
  return contents;
}

}  // namespace

PtContents read_contents(const Bytes& bytes, uint64_t memory_bytes) {
  char head[kHeadBytes] = {};
  const uint64_t count = std::min<uint64_t>(sizeof(head), bytes.size());
  bytes.read(head, count, 0);
  require_format({head, count}, bytes.size(), bytes.path(), {Format::kZip, Format::kPickle});
  if (std::memcmp(head, "PK\3\4", 4) == 0) return read_zip(bytes, memory_bytes);
  if (head[0] != '\x80')
    corrupt(bytes.path(), 0, "neither a zip archive nor a pickle begins here: torch.save did not write this");
  return read_legacy(bytes, memory_bytes);
}

}  // namespace gannet::files
