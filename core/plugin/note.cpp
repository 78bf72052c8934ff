#include "plugin/note.h"

#include <gannet/error.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/format.h"
#include "base/text.h"
#include "plugin/elf_file.h"

namespace gannet::plugin {
namespace {

constexpr const char* kForeign = "is a shared object but not a Gannet plugin (it has no " GANNET_NOTE_SECTION ")";

[[noreturn]] void refuse(const std::string& reason) { throw Error(ErrorCode::kPlugin, reason); }

uint64_t align(uint64_t offset, uint64_t to) { return (offset + to - 1) / to * to; }

// The content of the note named "Gannet" in a run of ELF notes. Ours are aligned to 8, others in the same range may be to 4.
std::optional<std::string> find_content(const std::string& notes, uint64_t alignment) {
  uint64_t offset = 0;
  while (offset + 12 <= notes.size()) {
    uint32_t head[3];  // name_bytes, content_bytes, type
    std::memcpy(head, notes.data() + offset, sizeof(head));
    const uint64_t content = align(offset + 12 + head[0], alignment);
    if (content > notes.size() || head[1] > notes.size() - content) return std::nullopt;
    if (head[2] == GANNET_NOTE_TYPE && head[0] >= sizeof(GANNET_NOTE_NAME) &&
        notes.compare(offset + 12, sizeof(GANNET_NOTE_NAME), GANNET_NOTE_NAME, sizeof(GANNET_NOTE_NAME)) == 0)
      return notes.substr(content, head[1]);
    offset = align(content + head[1], alignment);
  }
  return std::nullopt;
}

gannet_note read_note(const ElfFile& file) {
  std::optional<std::string> content;
  if (const auto section = file.section(GANNET_NOTE_SECTION)) {
    content = find_content(*section, 8);
    if (!content) refuse("has a damaged " GANNET_NOTE_SECTION);
  } else {
    for (const auto& segment : file.note_segments())
      if (!content) content = find_content(segment, 8);
  }
  if (!content) refuse(kForeign);
  gannet_note note{};
  // The head must be there whole: magic and version are in it, and say what else to expect.
  if (content->size() < offsetof(gannet_note, tier))
    refuse("has a " GANNET_NOTE_SECTION " of " + std::to_string(content->size()) + " bytes, too short");
  std::memcpy(&note, content->data(), std::min(content->size(), sizeof(note)));
  if (note.magic != GANNET_MAGIC) refuse("has a " GANNET_NOTE_SECTION " with the wrong magic number");
  if (note.abi_major != GANNET_ABI_MAJOR || note.abi_minor > GANNET_ABI_MINOR)
    refuse(formatted("is built for plugin ABI {}.{}, this Gannet has {}.{}", note.abi_major, note.abi_minor, GANNET_ABI_MAJOR,
                     GANNET_ABI_MINOR));
  if (content->size() < sizeof(note) || note.struct_size < sizeof(note))
    refuse("has a " GANNET_NOTE_SECTION " of " + std::to_string(content->size()) + " bytes, too short");
  return note;
}

void check_text(const std::vector<std::string>& texts, const std::string& what) {
  for (const auto& text : texts)
    if (printable(text) != text) refuse(formatted("has a control character in {}: '{}'", what, text));
}

std::string bounded(const char* text, size_t capacity) { return std::string(text, strnlen(text, capacity)); }

// Symbols of two plugins with the same name would bind to one another, whatever flags dlopen has: inline variables of C++ are
// unique in a process.
void check_exports(const ElfFile& file) {
  std::vector<std::string> others;
  for (const auto& name : file.exported())
    if (name != "gannet_plugins_v1") others.push_back(name);
  if (others.empty()) return;
  const size_t count = others.size();
  others.resize(std::min<size_t>(count, 3));
  refuse(formatted("exports more than gannet_plugins_v1: {}{}", join(others, ", "),
                   count > 3 ? formatted(" and {} more", count - 3) : ""));
}

// A stable plugin works with any LibTorch because it uses none; one that links it breaks with the next version, in some symbol.
void check_needs_no_torch(const ElfFile& file) {
  for (const auto& library : file.needed())
    for (const char* family : {"libtorch", "libc10"})
      if (library.starts_with(family))
        refuse(
            formatted("says that it is of the stable tier, which links nothing of LibTorch, and needs the library {}", library));
}

// The version of a kind's interface that a file was built with: see gannet_note::interface_versions.
uint32_t version_in(uint32_t versions, int byte) { return versions < 256 ? versions : versions >> (8 * byte) & 0xff; }

// A file says all three versions, and only those of the kinds that it provides matter.
void check_interfaces(const std::vector<std::string>& provides, uint32_t versions) {
  // By byte of interface_versions, the lowest first.
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

std::string fingerprint_difference(const std::string& plugin, const std::string& host) {
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
        differences.push_back(formatted("{} is {}, this Gannet's is {}", key, value_in(theirs, key), value_in(ours, key)));
    }
  return join(differences, "; ");
}

std::string provided_name(const gannet_descriptor& descriptor) {
  std::string name = formatted("{}/{}", kind_name(static_cast<gannet_kind>(descriptor.kind)), lower(descriptor.name));
  if (descriptor.device && *descriptor.device) name.append("@").append(lower(descriptor.device));
  return name;
}

Candidate read_candidate(const std::string& file) {
  Candidate candidate;
  candidate.file = file;
  try {
    const ElfFile elf(file);
    const gannet_note note = read_note(elf);
    candidate.tier = static_cast<gannet_tier>(note.tier);
    candidate.provides = split(bounded(note.provides, sizeof(note.provides)), ' ');
    candidate.fingerprint = bounded(note.fingerprint, sizeof(note.fingerprint));
    if (note.tier != GANNET_TIER_STABLE && note.tier != GANNET_TIER_PINNED)
      refuse(formatted("names an unknown tier, {}", note.tier));
    if (candidate.provides.empty()) refuse("says that it provides nothing");
    check_text(candidate.provides, "what it provides");
    check_text({candidate.fingerprint}, "its fingerprint");
    check_interfaces(candidate.provides, note.interface_versions);
    const std::string difference =
        note.tier == GANNET_TIER_PINNED ? fingerprint_difference(candidate.fingerprint, host_fingerprint()) : "";
    if (!difference.empty()) refuse(formatted("is built for another host: {}", difference));
    check_exports(elf);
    if (note.tier == GANNET_TIER_STABLE) check_needs_no_torch(elf);
  } catch (const Error& error) {
    candidate.rejected = printable(error.message());
  } catch (const std::bad_alloc&) {
    candidate.rejected = "cannot be read: out of memory";
  }
  return candidate;
}

}  // namespace gannet::plugin
