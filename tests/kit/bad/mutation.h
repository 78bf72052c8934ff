// Which mutation a test asked for (mutated.cpp), and what it does to the bytes of a field.
#pragma once

#include <gannet/abi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

namespace {

struct SoundPlugin {
  const char *library, *name;
};
constexpr SoundPlugin kSound[] = {{"fields", "complete"},       {"fields", "separate"},   {"losses", "scaled"},
                                  {"losses", "frombegin"},      {"results", "averaged"},  {"later", "drawn"},
                                  {"later", "second"},          {"later", "perturbing"},  {"later", "twopasses"},
                                  {"lists", "listed"},          {"lists", "ondevice"},    {"reductions", "averages"},
                                  {"reductions", "localsteps"}, {"schedules", "flat"},    {"schedules", "climbing"},
                                  {"comms", "soundcomm"},       {"comms", "soundmemory"}, {"tiers", "soundtier"}};
constexpr size_t kCount = std::size(kSound);

enum class Way { kNone, kCopied, kIgnored, kOnce, kWrong, kWritten };  // kCopied: the struct is copied, and nothing else
enum class Shape { kBytes, kInteger, kFloating, kPointer };            // of a field: how `wrong` changes it
struct Field {
  const char* name = "";
  size_t offset = 0, bytes = 0;
  Shape shape = Shape::kBytes;
};
template <class T>
constexpr Shape kShapeOf = std::is_pointer_v<T>          ? Shape::kPointer
                           : std::is_floating_point_v<T> ? Shape::kFloating
                           : std::is_integral_v<T>       ? Shape::kInteger
                                                         : Shape::kBytes;

template <class Struct>
constexpr const char* kNameOf = "";
#define STRUCT(name) \
  template <>        \
  constexpr const char* kNameOf<name> = #name;
STRUCT(gannet_state_spec)
STRUCT(gannet_sum_spec)
STRUCT(gannet_tensor)
STRUCT(gannet_optimizer_context)
STRUCT(gannet_optimizer_description)
STRUCT(gannet_step_args)
STRUCT(gannet_segment)
STRUCT(gannet_update_args)
STRUCT(gannet_schedule_query)
STRUCT(gannet_schedule_advance)
STRUCT(gannet_schedule_value)
STRUCT(gannet_schedule_description)
STRUCT(gannet_store)
STRUCT(gannet_rendezvous)
STRUCT(gannet_collective_args)
STRUCT(gannet_comm_counters)
STRUCT(gannet_optimizer_api)
STRUCT(gannet_scheduler_api)
STRUCT(gannet_comm_api)
STRUCT(gannet_offload_api)

// One mutation; the table's text is the environment's.
struct Mutation {
  std::string plugin, of, function;  // of: "gannet_update_args"; function: "read" for read(offset) and read()
  Field field;
  size_t argument = 0;
  Way way = Way::kNone;

  Mutation() {
    const char* const text = std::getenv("GANNET_TEST_MUTATION");
    if (!text) return;
    const std::string all = text;
    const size_t first = all.find(' '), last = all.rfind(' '), dot = all.find('.');
    plugin = all.substr(0, first);
    of = all.substr(first + 1, dot - first - 1);
    const std::string named = all.substr(dot + 1, last - dot - 1), word = all.substr(last + 1);
    bool is_known = false;
#define FIELD(struct_, field_)                                                                                  \
  if (of == #struct_ && named == #field_) {                                                                     \
    field = {#field_, offsetof(struct_, field_), sizeof(struct_::field_), kShapeOf<decltype(struct_::field_)>}; \
    is_known = true;                                                                                            \
  }
#define FUNCTION(api_, function_)                \
  if (of == #api_ && named == #function_ "()") { \
    function = #function_;                       \
    is_known = true;                             \
  }
#define ARGUMENT(api_, function_, index_, argument_)           \
  if (of == #api_ && named == #function_ "(" #argument_ ")") { \
    function = #function_;                                     \
    argument = index_;                                         \
    is_known = true;                                           \
  }
#include "abi_fields.inc"
#undef FIELD
#undef FUNCTION
#undef ARGUMENT
    way = word == "ignored"   ? Way::kIgnored
          : word == "once"    ? Way::kOnce
          : word == "wrong"   ? Way::kWrong
          : word == "written" ? Way::kWritten
                              : Way::kCopied;
    if (is_known) return;
    std::fprintf(stderr, "no such field: %s\n", text);
    std::_Exit(99);
  }
};
const Mutation& mutation() {
  static const Mutation only;
  return only;
}

// Kept for each object: first values, and copies that the plugin may use as long as it lives.
struct Kept {
  std::map<std::string, std::vector<char>> first;
  std::deque<std::vector<char>> copies;
  std::map<std::string, int> calls;
};
std::mutex kept_mutex;
std::map<const void*, Kept> kept_by_object;

// What `text` of this object was first; `value` if this is the first time.
void replace_by_first(const void* self, const std::string& text, void* value, size_t bytes) {
  const std::lock_guard lock(kept_mutex);
  std::vector<char>& first = kept_by_object[self].first[text];
  const auto* const now = static_cast<const char*>(value);
  if (first.empty()) first.assign(now, now + bytes);
  std::memcpy(value, first.data(), bytes);
}
bool is_first_call(const void* self, const std::string& function) {
  const std::lock_guard lock(kept_mutex);
  return kept_by_object[self].calls[function]++ == 0;
}

template <class T>
void add_to(void* at, T amount) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  value = static_cast<T>(value + amount);
  std::memcpy(at, &value, sizeof(value));
}
void make_wrong(void* at, const Field& field) {
  if (field.shape == Shape::kFloating) add_to<double>(at, 1);
  if (field.shape == Shape::kPointer && *static_cast<char**>(at)) add_to<uint64_t>(at, 8);
  if (field.shape != Shape::kInteger) return;
  if (field.bytes == 2) add_to<uint16_t>(at, 1);
  if (field.bytes == 4) add_to<uint32_t>(at, 1);
  if (field.bytes == 8) add_to<uint64_t>(at, 1);
}
// A value that the plugin reads.
void change(const void* self, const std::string& text, void* at, const Field& field) {
  const Way way = mutation().way;
  if (way == Way::kIgnored) std::memset(at, 0, field.bytes);
  if (way == Way::kOnce) replace_by_first(self, text, at, field.bytes);
  if (way == Way::kWrong) make_wrong(at, field);
}
void write_again(const void* at, size_t bytes) {
  auto* const byte = static_cast<volatile char*>(const_cast<void*>(at));
  for (size_t i = 0; i < bytes; ++i) byte[i] = byte[i];
}

template <class T>
constexpr bool kIsStruct = false;
template <class T>
  requires requires(T one) { one.struct_size; }
constexpr bool kIsStruct<T> = true;

}  // namespace
