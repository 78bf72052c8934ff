#include "plugin/handshake.h"

#include <gannet/error.h>

#include <algorithm>
#include <set>

#include "base/format.h"
#include "base/text.h"
#include "plugin/note.h"
#include "plugin/refuse.h"
#include "plugin/schema.h"

namespace gannet::plugin {
namespace {

// A required function of a plugin's function table.
struct Entry {
  const char* name;
  bool present;
};
#define GANNET_ENTRY(function) \
  Entry { #function, api.function != nullptr }

void require_entries(std::initializer_list<Entry> entries) {
  for (const auto& entry : entries)
    if (!entry.present) refuse(formatted("its function {} is null", entry.name));
}

void require_zero(uint64_t reserved, const char* where) {
  if (reserved != 0) refuse(formatted("{} has a reserved field that is not zero", where));
}

void require_known(uint64_t bits, uint64_t known, const char* what) {
  if (bits & ~known) refuse(formatted("it has {} that this Gannet does not know (bits {:#x})", what, bits & ~known));
}

void check(const gannet_optimizer_api& api) {
  require_zero(api.reserved, "its function table");
  require_entries(
      {GANNET_ENTRY(create), GANNET_ENTRY(destroy), GANNET_ENTRY(describe), GANNET_ENTRY(supports), GANNET_ENTRY(update)});
}

void check(const gannet_scheduler_api& api) {
  require_zero(api.reserved, "its function table");
  require_entries({GANNET_ENTRY(create), GANNET_ENTRY(destroy), GANNET_ENTRY(describe), GANNET_ENTRY(value)});
}

void check_version(uint32_t version, uint32_t ours) {
  if (version != ours) refuse(formatted("its interface has version {}, this Gannet has {}", version, ours));
}

void check(const gannet_accelerator_api& api) {
  check_version(api.version, GANNET_ACCELERATOR_VERSION);
  require_entries({GANNET_ENTRY(create), GANNET_ENTRY(destroy), GANNET_ENTRY(capabilities), GANNET_ENTRY(device_count),
                   GANNET_ENTRY(device_info), GANNET_ENTRY(set_device), GANNET_ENTRY(synchronize), GANNET_ENTRY(native_stream),
                   GANNET_ENTRY(default_comm), GANNET_ENTRY(plugin_device)});
  // Queues are optional, but a plugin must have all of their functions or none: a missing function
  // would otherwise be found only in the middle of a step.
  if (api.queue_create)
    require_entries({GANNET_ENTRY(queue_destroy), GANNET_ENTRY(queue_copy), GANNET_ENTRY(event_record),
                     GANNET_ENTRY(event_destroy), GANNET_ENTRY(event_query), GANNET_ENTRY(event_wait),
                     GANNET_ENTRY(queue_wait_event), GANNET_ENTRY(queue_wait_stream), GANNET_ENTRY(stream_wait_event),
                     GANNET_ENTRY(pin), GANNET_ENTRY(unpin)});
}

void check(const gannet_comm_api& api) {
  check_version(api.version, GANNET_COMM_VERSION);
  require_entries({GANNET_ENTRY(create), GANNET_ENTRY(destroy), GANNET_ENTRY(group_create), GANNET_ENTRY(group_destroy),
                   GANNET_ENTRY(collective), GANNET_ENTRY(collective_many), GANNET_ENTRY(work_wait), GANNET_ENTRY(work_query),
                   GANNET_ENTRY(work_block), GANNET_ENTRY(work_free), GANNET_ENTRY(abort), GANNET_ENTRY(counters),
                   GANNET_ENTRY(sum_dtype)});
  if (api.allocate || api.deallocate || api.register_buffer || api.unregister_buffer)
    require_entries(
        {GANNET_ENTRY(allocate), GANNET_ENTRY(deallocate), GANNET_ENTRY(register_buffer), GANNET_ENTRY(unregister_buffer)});
}

void check(const gannet_offload_api& api) {
  check_version(api.version, GANNET_OFFLOAD_VERSION);
  require_entries({GANNET_ENTRY(create), GANNET_ENTRY(destroy), GANNET_ENTRY(alignment_bytes), GANNET_ENTRY(allocate),
                   GANNET_ENTRY(release), GANNET_ENTRY(address), GANNET_ENTRY(read), GANNET_ENTRY(write),
                   GANNET_ENTRY(work_wait)});
}
#undef GANNET_ENTRY

template <class Api>
void check_api(const void* pointer, size_t least) {
  const auto& api = *static_cast<const Api*>(pointer);
  if (api.struct_size < least)
    refuse(formatted("its function table has {} bytes, at least {} are needed", api.struct_size, least));
  check(api);
}

void check_api(const gannet_descriptor& descriptor) {
  if (!descriptor.api) refuse("its function table is null");
  switch (descriptor.kind) {
    case GANNET_KIND_ACCELERATOR:
      return check_api<gannet_accelerator_api>(descriptor.api, GANNET_ACCELERATOR_API_SIZE_2_0);
    case GANNET_KIND_OPTIMIZER:
      return check_api<gannet_optimizer_api>(descriptor.api, GANNET_OPTIMIZER_API_SIZE_2_0);
    case GANNET_KIND_SCHEDULER:
      return check_api<gannet_scheduler_api>(descriptor.api, GANNET_SCHEDULER_API_SIZE_2_0);
    case GANNET_KIND_OFFLOAD:
      return check_api<gannet_offload_api>(descriptor.api, GANNET_OFFLOAD_API_SIZE_2_0);
    case GANNET_KIND_COMM:
      return check_api<gannet_comm_api>(descriptor.api, GANNET_COMM_API_SIZE_2_0);
    default:
      refuse(formatted("it has an unknown kind, {}", descriptor.kind));
  }
}

// Checks the fields that determine how to read the others.
void check_head(const gannet_descriptor& descriptor, const Candidate& note) {
  constexpr size_t kLeast = GANNET_DESCRIPTOR_SIZE_2_0;
  if (descriptor.struct_size < kLeast)
    refuse(formatted("has a descriptor of {} bytes, at least {} are needed", descriptor.struct_size, kLeast));
  if (descriptor.magic != GANNET_MAGIC) refuse("has a descriptor with the wrong magic number");
  if (descriptor.abi_major != GANNET_ABI_MAJOR || descriptor.abi_minor != note.abi_minor)
    refuse(formatted("has a descriptor of plugin ABI {}.{}, its note says {}.{}", descriptor.abi_major, descriptor.abi_minor,
                     GANNET_ABI_MAJOR, note.abi_minor));
  if (!descriptor.name || !*descriptor.name) refuse("has a descriptor without a name");
  for (const char* text : {descriptor.name, descriptor.device, descriptor.version})
    if (text && printable(text) != text)
      refuse(formatted("has a descriptor with a control character in its name, device or version: '{}'", text));
  if (std::string_view(descriptor.name).find(' ') != std::string_view::npos)
    refuse(formatted("has a descriptor with a space in its name, '{}': a space separates the names of a note", descriptor.name));
}

constexpr size_t kMostExtensions = 64;

void check_extensions(const gannet_extension* extension) {
  for (size_t count = 0; extension; extension = extension->next) {
    if (++count > kMostExtensions) refuse("its chain of extensions has no end");
    if (extension->struct_size < GANNET_EXTENSION_SIZE_2_0) refuse("one of its extensions has too small a struct_size");
    require_known(extension->flags, GANNET_EXTENSION_REQUIRED, "flags of an extension");
    require_zero(extension->reserved, "one of its extensions");
    if (extension->type == GANNET_EXTENSION_COMMUNICATOR) {
      const auto* communicator = reinterpret_cast<const gannet_communicator_extension*>(extension);
      constexpr size_t kSize = offsetof(gannet_communicator_extension, broadcast) + sizeof(communicator->broadcast);
      if (extension->struct_size < kSize || !communicator->describe || !communicator->broadcast)
        refuse("its extension for communicators lacks a function");
    } else if (extension->flags & GANNET_EXTENSION_REQUIRED)
      refuse(formatted("it cannot do without the extension of type {}, which this Gannet does not know", extension->type));
  }
}

void check_body(const gannet_descriptor& descriptor, const Candidate& note) {
  require_known(descriptor.flags, 0, "flags");
  require_zero(descriptor.reserved, "its descriptor");
  check_extensions(descriptor.extensions);
  check_api(descriptor);
  if (descriptor.tier != static_cast<uint32_t>(note.tier)) refuse("its tier differs from the file's note");
  if (!descriptor.version || !*descriptor.version) refuse("it has no version");
  if (note.tier == GANNET_TIER_PINNED && note.fingerprint != (descriptor.fingerprint ? descriptor.fingerprint : ""))
    refuse("its fingerprint differs from the file's note");
  check_schema(descriptor);
}

}  // namespace

std::vector<const gannet_descriptor*> shake_hands(std::span<const gannet_descriptor* const> table, const Candidate& note) {
  const auto end = std::find(table.begin(), table.end(), nullptr);
  if (end == table.end())
    refuse(formatted("has a table of plugins without an end: none of the {} pointers of " GANNET_EXPORT_NAME " is null",
                     table.size()));
  std::vector<const gannet_descriptor*> descriptors;
  std::set<std::string> provided;
  for (auto entry = table.begin(); entry != end; ++entry) {
    const gannet_descriptor& descriptor = **entry;
    check_head(descriptor, note);
    const std::string name = provided_name(descriptor);
    try {
      check_body(descriptor, note);
    } catch (const Error& error) {
      refuse(formatted("breaks the plugin contract in {}: {}", name, error.message()));
    }
    if (!provided.insert(name).second) refuse(formatted("provides {} twice", name));
    descriptors.push_back(&descriptor);
  }
  if (const std::set<std::string> promised(note.provides.begin(), note.provides.end()); promised != provided)
    throw Error(ErrorCode::kPlugin,
                formatted("provides other plugins than its note says: the note has {}, the table has {}",
                          join(note.provides, " "), join({provided.begin(), provided.end()}, " ")),
                formatted("its GANNET_PLUGINS must begin with \"{}\", the kind, name and device of each descriptor",
                          join({provided.begin(), provided.end()}, " ")));
  return descriptors;
}

}  // namespace gannet::plugin
