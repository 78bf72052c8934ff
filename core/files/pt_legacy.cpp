// Reads the legacy format. It begins with five pickles: the magic number, the protocol version,
// facts about the writing machine, the data and the list of storage keys. Each storage follows: its
// number of elements (8 bytes) and its values.
#include "base/format.h"
#include "files/pt_contents.h"

namespace gannet::files {
namespace {

constexpr std::string_view kMagic("\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 10);  // 0x1950a86a20f9469cfc6c
constexpr int64_t kLegacyVersion = 1001;
constexpr uint64_t kSmallPickle = 64 << 10;  // memory limit for the parts that are a number or a small dict

// The magic has 80 bits, too many for an int64: the unpickler keeps such an integer as a record of
// its bytes.
bool is_magic(const Object& object) {
  return object.kind == Object::Kind::kRecord && object.text == "builtins.int" && object.items.size() == 1 &&
         object.items[0]->text == kMagic;
}

}  // namespace

PtContents read_legacy(const Bytes& bytes, uint64_t memory_bytes) {
  Cursor cursor(bytes, 0, bytes.size());
  const std::string& path = bytes.path();
  if (!is_magic(*unpickle(cursor, {kSmallPickle}).root))
    throw Error(ErrorCode::kUnsupported, formatted("{} is a pickle that torch.save did not write", path),
                "give a file of torch.save");
  const Pickle version = unpickle(cursor, {kSmallPickle});
  if (version.root->kind != Object::Kind::kInt || version.root->integer != kLegacyVersion)
    throw Error(ErrorCode::kUnsupported, formatted("{} has another version than {} of the old format", path, kLegacyVersion),
                "load the file in PyTorch and save it again");
  const Pickle machine = unpickle(cursor, {kSmallPickle});
  const Object* little = machine.root->find("little_endian");
  if (!little || little->kind != Object::Kind::kBool)
    cursor.corrupt("what machine wrote the file should be a dict with 'little_endian'");
  if (!little->boolean)
    throw Error(ErrorCode::kUnsupported, formatted("{} was written by a big-endian machine", path),
                "load it in PyTorch on this machine and save it again");

  PtContents contents;
  contents.pickle = unpickle(cursor, {memory_bytes});
  const Pickle keys = unpickle(cursor, {memory_bytes});
  if (keys.root->kind != Object::Kind::kList)
    cursor.corrupt(std::string("the storages' keys should be a list, found ") + keys.root->kind_name());
  for (const ObjectRef& key : keys.root->items) {
    const auto known = contents.pickle.storages.find(key->text);
    if (key->kind != Object::Kind::kString || known == contents.pickle.storages.end())
      cursor.corrupt(formatted("the storage {} follows, of which the pickle does not speak", shown(key->text)));
    const auto numel = cursor.number<int64_t>("a storage's size");
    if (numel != known->second.numel)
      cursor.corrupt(
          formatted("the storage {} has {} elements, the pickle says {}", shown(key->text), numel, known->second.numel));
    const StoragePlace place{cursor.offset(), static_cast<uint64_t>(known->second.bytes())};
    cursor.skip(place.bytes, "a storage");
    if (!contents.places.emplace(key->text, place).second)
      cursor.corrupt(formatted("the storage {} comes twice", shown(key->text)));
  }
  if (contents.places.size() != contents.pickle.storages.size())
    cursor.corrupt(
        formatted("{} storages are spoken of, and {} follow", contents.pickle.storages.size(), contents.places.size()));
  return contents;
}

}  // namespace gannet::files
