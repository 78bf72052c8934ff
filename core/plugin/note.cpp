#include "plugin/note.h"

#include <gannet/error.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/format.h"
#include "base/text.h"
#include "plugin/elf_file.h"
#include "plugin/refuse.h"

namespace gannet::plugin {
namespace {

constexpr const char* kForeign = "is a shared object but not a Gannet plugin (it has no " GANNET_NOTE_SECTION ")";

uint64_t align(uint64_t offset, uint64_t to) { return (offset + to - 1) / to * to; }

// Whether a note's content is written for this ABI. The first fields have the same layout in every
// ABI.
bool is_of_this_abi(const std::string& content) {
  uint16_t major = 0;
  if (content.size() < offsetof(gannet_note, abi_major) + sizeof(major)) return false;
  std::memcpy(&major, content.data() + offsetof(gannet_note, abi_major), sizeof(major));
  return major == GANNET_ABI_MAJOR;
}

// The content of the note named "Gannet" in a sequence of ELF notes: the one for this ABI if there
// are several, else the first. Gannet's notes are aligned to 8 bytes; other notes in the same range
// may be aligned to 4.
std::optional<std::string> find_content(const std::string& notes, uint64_t alignment) {
  uint64_t offset = 0;
  std::optional<std::string> first;
  while (offset + 12 <= notes.size()) {
    uint32_t head[3];  // name_bytes, content_bytes, type
    std::memcpy(head, notes.data() + offset, sizeof(head));
    const uint64_t content = align(offset + 12 + head[0], alignment);
    if (content > notes.size() || head[1] > notes.size() - content) return first;
    if (head[2] == GANNET_NOTE_TYPE && head[0] >= sizeof(GANNET_NOTE_NAME) &&
        notes.compare(offset + 12, sizeof(GANNET_NOTE_NAME), GANNET_NOTE_NAME, sizeof(GANNET_NOTE_NAME)) == 0) {
      std::string found = notes.substr(content, head[1]);
      if (is_of_this_abi(found)) return found;
      if (!first) first = std::move(found);
    }
    offset = align(content + head[1], alignment);
  }
  return first;
}

struct Note {
  gannet_note head{};
  std::string fingerprint, vendor, provides;
};

std::string text_at(const std::string& content, const gannet_note_text& place, const char* what) {
  if (place.offset > content.size() || place.bytes > content.size() - place.offset)
    refuse(formatted("has a " GANNET_NOTE_SECTION " whose {} is outside of it", what));
  const std::string text = content.substr(place.offset, place.bytes);
  return text.substr(0, text.find('\0'));
}

Note read_note(const ElfFile& file) {
  std::optional<std::string> content;
  if (const auto section = file.section(GANNET_NOTE_SECTION)) {
    content = find_content(*section, 8);
    if (!content) refuse("has a damaged " GANNET_NOTE_SECTION);
  } else {
    for (const auto& segment : file.note_segments())
      if (!content) content = find_content(segment, 8);
  }
  if (!content) refuse(kForeign);
  Note note;
  gannet_note& head = note.head;
  const auto refuse_short = [&] { refuse(formatted("has a " GANNET_NOTE_SECTION " of {} bytes, too short", content->size())); };
  // The first bytes have the same layout in every ABI; the magic number and the version in them
  // determine the rest.
  if (content->size() < offsetof(gannet_note, required_features)) refuse_short();
  std::memcpy(&head, content->data(), std::min(content->size(), sizeof(head)));
  if (head.magic != GANNET_MAGIC) refuse("has a " GANNET_NOTE_SECTION " with the wrong magic number");
  if (head.abi_major != GANNET_ABI_MAJOR)
    refuse(formatted("is built for plugin ABI {}.{}, this Gannet has {}.{}: rebuild it with SDK {}", head.abi_major,
                     head.abi_minor, GANNET_ABI_MAJOR, GANNET_ABI_MINOR, GANNET_ABI_MAJOR));
  if (content->size() < GANNET_NOTE_SIZE_2_0 || head.struct_size < GANNET_NOTE_SIZE_2_0) refuse_short();
  if (const uint64_t unknown = head.required_features & ~GANNET_KNOWN_FEATURES)
    refuse(
        formatted("is built for plugin ABI {}.{} and needs features of it (bits {:#x}) that this Gannet, which has {}.{}, lacks",
                  head.abi_major, head.abi_minor, unknown, GANNET_ABI_MAJOR, GANNET_ABI_MINOR));
  note.fingerprint = text_at(*content, head.fingerprint, "fingerprint");
  note.vendor = text_at(*content, head.vendor, "vendor");
  note.provides = text_at(*content, head.provides, "list of what it provides");
  return note;
}

void check_text(const std::vector<std::string>& texts, const std::string& what) {
  for (const auto& text : texts)
    if (printable(text) != text) refuse(formatted("has a control character in {}: '{}'", what, text));
}

// A plugin may export nothing but its table. Symbols with the same name in two plugins could bind
// to one another regardless of dlopen flags, since C++ inline variables are process-wide.
void check_exports(const ElfFile& file) {
  std::vector<std::string> others;
  for (const auto& name : file.exported())
    if (!name.starts_with("gannet_plugins_v")) others.push_back(name);
  if (others.empty()) return;
  const size_t count = others.size();
  others.resize(std::min<size_t>(count, 3));
  refuse(formatted("exports more than " GANNET_EXPORT_NAME ": {}{}", join(others, ", "),
                   count > 3 ? formatted(" and {} more", count - 3) : ""),
         "link it with the SDK's version script, -Wl,--version-script=lib/cmake/gannet/plugin.map, as gannet_add_plugin() does");
}

// A stable plugin works with any LibTorch because it uses none; a plugin that links it breaks with
// the next version.
void check_needs_no_torch(const ElfFile& file) {
  for (const auto& library : file.needed())
    for (const char* family : {"libtorch", "libc10"})
      if (library.starts_with(family))
        refuse(
            formatted("says that it is of the stable tier, which links nothing of LibTorch, and needs the library {}", library));
}

// Extracts from gannet_note::interface_versions the version of a kind's interface that the file was
// built with. A number below 256 is the version for every kind.
uint32_t version_in(uint32_t versions, int byte) { return versions < 256 ? versions : versions >> (8 * byte) & 0xff; }

// A note has the versions of all three interfaces; only those of the kinds that the file provides
// matter.
void check_interfaces(const std::vector<std::string>& provides, uint32_t versions) {
  // The kinds in the order of the bytes of interface_versions, the lowest byte first.
  constexpr const char* kKinds[] = {"accelerator", "comm", "offload"};
  for (int byte = 0; byte < 3; ++byte) {
    const std::string prefix = formatted("{}/", kKinds[byte]);
    const bool provided =
        std::any_of(provides.begin(), provides.end(), [&](const auto& name) { return name.starts_with(prefix); });
    const uint32_t theirs = version_in(versions, byte), ours = version_in(GANNET_INTERFACE_VERSIONS, byte);
    if (provided && theirs != ours)
      refuse(formatted("is built for version {} of the {} interface, this Gannet has {}", theirs, kKinds[byte], ours));
  }
}

}  // namespace

bool is_foreign(const Candidate& candidate) { return candidate.rejected == kForeign; }

std::string fingerprint_difference(const std::string& plugin, const std::string& host, const char* whose) {
  const auto theirs = split(plugin, ','), ours = split(host, ',');
  const auto key_of = [](const std::string& field) { return field.substr(0, field.find('=')); };
  const auto value_in = [&](const std::vector<std::string>& fields, const std::string& key) -> std::string {
    for (const auto& field : fields)
      if (key_of(field) == key && field.size() > key.size()) return field.substr(key.size() + 1);
    return "nothing";
  };
  std::vector<std::string> seen, differences;
  for (const auto* side : {&ours, &theirs})
    for (const auto& field : *side) {
      const std::string key = key_of(field);
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) continue;
      seen.push_back(key);
      if (value_in(theirs, key) != value_in(ours, key))
        differences.push_back(formatted("{} is {}, {} is {}", key, value_in(theirs, key), whose, value_in(ours, key)));
    }
  return join(differences, "; ");
}

std::string provided_name(const gannet_descriptor& descriptor) {
  std::string name = formatted("{}/{}", kind_name(static_cast<gannet_kind>(descriptor.kind)), lower(descriptor.name));
  if (descriptor.device && *descriptor.device) name.append("@").append(lower(descriptor.device));
  return name;
}

namespace {

// The candidate's vendor part is "cuda=13.0" or "rocm=6.4".
void check_vendor(Candidate& candidate) {
  const std::string ours = vendor_of_libtorch();
  const auto name_of = [](const std::string& vendor) { return vendor.substr(0, vendor.find('=')); };
  candidate.is_for_other_vendor = !ours.empty() && name_of(candidate.vendor) != name_of(ours);
  if (candidate.is_for_other_vendor)
    refuse(formatted("is built for another LibTorch: for {}, and the one in this process is for {}", candidate.vendor, ours),
           "use a Gannet and a LibTorch that were built for these devices (docs/gpu.md)");
  const std::string difference = fingerprint_difference(candidate.vendor, ours, "this LibTorch's");
  if (!difference.empty()) refuse(formatted("is built for another LibTorch: {}", difference));
}

}  // namespace

Candidate read_candidate(const std::string& file, Fingerprint wanted) {
  Candidate candidate;
  candidate.file = file;
  try {
    const ElfFile elf(file);
    const Note note = read_note(elf);
    const uint32_t tier = note.head.tier;
    candidate.tier = static_cast<gannet_tier>(tier);
    candidate.abi_minor = note.head.abi_minor;
    candidate.required_features = note.head.required_features;
    candidate.provides = split(note.provides, ' ');
    candidate.fingerprint = note.fingerprint;
    candidate.vendor = note.vendor;
    if (tier != GANNET_TIER_STABLE && tier != GANNET_TIER_PINNED) refuse(formatted("names an unknown tier, {}", tier));
    if (candidate.provides.empty()) refuse("says that it provides nothing");
    check_text(candidate.provides, "what it provides");
    for (std::string& name : candidate.provides) name = lower(name);  // names are compared without case
    check_text({candidate.fingerprint, candidate.vendor}, "its fingerprint");
    check_interfaces(candidate.provides, note.head.interface_versions);
    const bool compares = wanted == Fingerprint::kOfThisHost;
    if (tier == GANNET_TIER_PINNED && compares) {
      const std::string difference = fingerprint_difference(candidate.fingerprint, host_fingerprint(), "this Gannet's");
      if (!difference.empty()) refuse(formatted("is built for another host: {}", difference));
    }
    if (!candidate.vendor.empty() && compares) check_vendor(candidate);
    check_exports(elf);
    if (tier == GANNET_TIER_STABLE) check_needs_no_torch(elf);
  } catch (const Error& error) {
    candidate.rejected = printable(error.message());
    candidate.remedy = error.next_step();
  } catch (const std::bad_alloc&) {
    candidate.rejected = "cannot be read: out of memory";
  }
  return candidate;
}

}  // namespace gannet::plugin
