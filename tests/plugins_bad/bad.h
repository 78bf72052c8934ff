// A plugin without fault, in parts: each bad one replaces a single part.
#pragma once

#include <gannet/sdk.hpp>

namespace bad {

using namespace gannet::sdk;

struct Good : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-3")};
  using OptimizerBase::OptimizerBase;
  void update(const gannet_update_args&) {}
};

// With a capability that it does not implement.
template <uint64_t kCapability>
constexpr gannet_optimizer_api kClaims = [] {
  auto api = detail::kOptimizerApi<Good>;
  api.describe = [](void*, const gannet_optimizer_context*, gannet_optimizer_description* found, gannet_error*) -> int32_t {
    found->capabilities = GANNET_OPTIMIZER_ELEMENTWISE | kCapability;
    return GANNET_OK;
  };
  return api;
}();

constexpr gannet_descriptor good_descriptor() { return optimizer<Good>("Bad", "cpu", "1.0", "an optimizer with a fault"); }

// As GANNET_PLUGIN_NOTE writes it, except that the texts have a fixed size, so that a note is a
// value.
struct Note {
  uint32_t name_bytes = 8, content_bytes = sizeof(gannet_note) + 512, type = GANNET_NOTE_TYPE;
  char name[8] = GANNET_NOTE_NAME;
  uint32_t padding_to_8 = 0;
  gannet_note content{};
  char texts[512] = {};
};

constexpr Note make_note(gannet_tier tier, const char* fingerprint, const char* provides) {
  Note note;
  note.content.struct_size = sizeof(gannet_note);
  note.content.abi_major = GANNET_ABI_MAJOR;
  note.content.abi_minor = GANNET_TARGET_MINOR;
  note.content.magic = GANNET_MAGIC;
  note.content.tier = tier;
  note.content.interface_versions = GANNET_INTERFACE_VERSIONS;
  uint32_t at = 0;
  const auto put = [&](const char* text) {
    const uint32_t begin = at;
    for (; *text; ++text) note.texts[at++] = *text;
    return gannet_note_text{static_cast<uint32_t>(sizeof(gannet_note)) + begin, at - begin};
  };
  note.content.fingerprint = put(fingerprint);
  note.content.vendor = put("");
  note.content.provides = put(provides);
  return note;
}
constexpr Note good_note() { return make_note(GANNET_TIER_STABLE, "", "optimizer/bad@cpu"); }

}  // namespace bad

#define BAD_NOTE(value) \
  __attribute__((section(GANNET_NOTE_SECTION), used, aligned(8))) static constexpr bad::Note gannet_note_ = value
#define BAD_TABLE(value)                                                                                      \
  static constexpr gannet_descriptor gannet_descriptors_[] = {value};                                         \
  extern "C" {                                                                                                \
  __attribute__((visibility("default"))) extern const gannet::sdk::detail::Table<1> gannet_plugins_v2;        \
  const gannet::sdk::detail::Table<1> gannet_plugins_v2 = gannet::sdk::detail::table_of(gannet_descriptors_); \
  }
