// The sound plugins of this folder, which misread, or misreport, one field of one struct of the ABI. The environment says which:
//
//   GANNET_TEST_MUTATION="complete gannet_update_args.grad_scale once"
//   GANNET_TEST_MUTATION="soundtier gannet_offload_api.read(offset) wrong"       an argument of a function
//   GANNET_TEST_MUTATION="soundtier gannet_offload_api.release() ignored"        the function itself
//
// |         | a field or an argument that is read | one that the plugin fills in      | a function of its table     |
// |---------|-------------------------------------|-----------------------------------|-----------------------------|
// | ignored | zero in its place                   | left as the host gave it          | null                        |
// | once    | the object's first value for ever   | filled in by the first call alone | only its first call acts    |
// | wrong   | one more, or 8 bytes further        | the same                          | another result than it has  |
// | written | its own bytes are written to it     | as wrong                          |                             |
//
// It opens the libraries of the plugins, beside its own, and changes what goes through their tables.
#include <dlfcn.h>

#include <array>
#include <gannet/sdk.hpp>
#include <tuple>

#include "mutation.h"

namespace {

// The arguments of one call, changed.
class Changed {
 public:
  explicit Changed(const void* self) : self_(self) {}

  // `count` structs, `stride` bytes from one to the next.
  template <class T>
  const T* structs(const T* given, uint64_t count, uint64_t stride) {
    if (!given || count == 0) return given;
    if constexpr (std::is_same_v<T, gannet_update_args> || std::is_same_v<T, gannet_step_args> ||
                  std::is_same_v<T, gannet_optimizer_context> || std::is_same_v<T, gannet_rendezvous>)
      given = with_arrays(given, count, stride);
    if (mutation().of != kNameOf<T> || !mutation().function.empty()) return given;
    const Field& field = mutation().field;
    if (given->struct_size < field.offset + field.bytes) return given;
    if (mutation().way == Way::kWritten) {
      write_again(reinterpret_cast<const char*>(given) + field.offset, field.bytes);
      return given;
    }
    char* const copy = copied(given, count * stride);
    for (uint64_t i = 0; i < count; ++i) change(self_, field.name + std::to_string(i), copy + i * stride + field.offset, field);
    return reinterpret_cast<const T*>(copy);
  }
  template <class T>
  const T* one(const T* given) {
    return given ? structs(given, 1, given->struct_size) : nullptr;
  }
  std::deque<std::vector<char>> take_copies() { return std::move(copies_); }

 private:
  char* copied(const void* from, size_t bytes) {
    const auto* const begin = static_cast<const char*>(from);
    return copies_.emplace_back(begin, begin + bytes).data();
  }
  template <class T>
  const T* with_arrays(const T* given, uint64_t count, uint64_t stride) {
    const bool is_outer =
        mutation().of == "gannet_segment" || mutation().of == "gannet_tensor" || mutation().of == "gannet_store";
    if (!is_outer) return given;
    char* const copy = copied(given, count * stride);
    for (uint64_t i = 0; i < count; ++i) {
      T& each = *reinterpret_cast<T*>(copy + i * stride);
      if constexpr (std::is_same_v<T, gannet_update_args>)
        each.segments = structs(each.segments, each.segment_count, each.segment_stride);
      else if constexpr (std::is_same_v<T, gannet_rendezvous>)
        each.store = one(each.store);
      else
        each.tensors = structs(each.tensors, each.tensor_count, each.tensor_stride);
    }
    return reinterpret_cast<const T*>(copy);
  }
  const void* self_;
  std::deque<std::vector<char>> copies_;  // a deque: addresses stay
};

// A struct that the plugin fills in: of its bytes before and after the call.
template <class T>
void change_answer(const void* self, T* answer, const std::vector<char>& before) {
  if constexpr (std::is_same_v<T, gannet_optimizer_description>) {
    const auto array = [&](auto*& elements, uint64_t count, uint64_t stride) {
      using Element = std::remove_cvref_t<decltype(*elements)>;
      if (mutation().of != kNameOf<Element> || count == 0) return;
      const auto* const begin = reinterpret_cast<const char*>(elements);
      char* copy;
      {
        const std::lock_guard lock(kept_mutex);
        copy = kept_by_object[self].copies.emplace_back(begin, begin + count * stride).data();
      }
      const Field& field = mutation().field;
      const bool is_first = is_first_call(self, "describe elements");
      for (uint64_t i = 0; i < count; ++i) {
        char* const at = copy + i * stride + field.offset;
        if (mutation().way == Way::kIgnored || (mutation().way == Way::kOnce && !is_first)) std::memset(at, 0, field.bytes);
        if (mutation().way == Way::kWrong) make_wrong(at, field);
      }
      elements = reinterpret_cast<const Element*>(copy);
    };
    array(answer->states, answer->state_count, answer->state_stride);
    array(answer->sums, answer->sum_count, answer->sum_stride);
  }
  if (mutation().of != kNameOf<T> || !mutation().function.empty()) return;
  const Field& field = mutation().field;
  char* const at = reinterpret_cast<char*>(answer) + field.offset;
  if (before.size() < field.offset + field.bytes) return;
  if (mutation().way == Way::kIgnored || (mutation().way == Way::kOnce && !is_first_call(self, field.name)))
    std::memcpy(at, before.data() + field.offset, field.bytes);
  if (mutation().way == Way::kWrong || mutation().way == Way::kWritten) make_wrong(at, field);
}

template <class Api>
Api original[kCount];

template <auto member>
constexpr const char* kNameOfFunction = "";
#define FIELD(...)
#define ARGUMENT(...)
#define FUNCTION(api_, function_) \
  template <>                     \
  constexpr const char* kNameOfFunction<&api_::function_> = #function_;
#include "abi_fields.inc"
#undef FUNCTION

template <size_t plugin, auto member>
struct Call;
template <size_t plugin, class Api, class Result, class... Arguments, Result (*Api::*member)(Arguments...)>
struct Call<plugin, member> {
  static constexpr bool kIsCreation =
      sizeof...(Arguments) > 0 && std::is_same_v<std::tuple_element_t<0, std::tuple<Arguments..., int>>, const gannet_host*>;

  static constexpr bool kIsDestruction = [] {
    if constexpr (std::is_same_v<decltype(member), decltype(&Api::destroy)>)
      return member == &Api::destroy;
    else
      return false;
  }();

  static Result call(Arguments... arguments) {
    std::tuple<Arguments...> given{arguments...};
    const void* self = nullptr;  // no object yet in create()
    if constexpr (!kIsCreation) self = std::get<0>(given);
    const bool is_mine = mutation().plugin == kSound[plugin].name && mutation().way != Way::kNone;
    if (!is_mine) return std::apply(original<Api>[plugin].*member, given);

    const bool is_function = mutation().of == kNameOf<Api> && mutation().function == kNameOfFunction<member>;
    const bool is_itself = is_function && mutation().argument == 0;
    if (is_itself && mutation().way == Way::kOnce && !is_first_call(self, mutation().function)) {
      if constexpr (std::is_void_v<Result>)
        return;
      else
        return Result{};
    }
    Changed changed(self);
    std::vector<char> before;
    each_argument(given, [&](auto index, auto& argument) {
      using Argument = std::remove_reference_t<decltype(argument)>;
      if (is_function && mutation().argument == index && index > 0)
        change(self, mutation().function, &argument, {"", 0, sizeof(argument), kShapeOf<Argument>});
      if constexpr (std::is_pointer_v<Argument>) {
        using Struct = std::remove_pointer_t<Argument>;
        if constexpr (std::is_const_v<Struct> && kIsStruct<std::remove_const_t<Struct>> &&
                      !std::is_same_v<Struct, const gannet_params>) {
          if constexpr (is_list(index))
            argument = changed.structs(argument, std::get<index + 1>(given), std::get<index + 2>(given));
          else
            argument = changed.one(argument);
        } else if constexpr (kIsStruct<Struct> && !std::is_same_v<Struct, gannet_error>) {
          const auto* const bytes = reinterpret_cast<const char*>(argument);
          before.assign(bytes, bytes + argument->struct_size);
        }
      }
    });
    const auto answered = [&] {
      each_argument(given, [&](auto, auto& argument) {
        using Argument = std::remove_reference_t<decltype(argument)>;
        if constexpr (std::is_pointer_v<Argument>) {
          using Struct = std::remove_pointer_t<Argument>;
          if constexpr (!std::is_const_v<Struct> && kIsStruct<Struct> && !std::is_same_v<Struct, gannet_error>)
            change_answer(self, argument, before);
          if constexpr (kIsCreation && std::is_same_v<Argument, void**>) keep_copies(*argument, changed);
        }
      });
      if constexpr (kIsDestruction) forget(self);
    };
    if constexpr (std::is_void_v<Result>) {
      std::apply(original<Api>[plugin].*member, given);
      answered();
    } else {
      Result result = std::apply(original<Api>[plugin].*member, given);
      answered();
      if (is_itself && mutation().way == Way::kWrong) make_wrong(&result, {"", 0, sizeof(result), kShapeOf<Result>});
      return result;
    }
  }

 private:
  template <class F>
  static void each_argument(std::tuple<Arguments...>& given, F&& f) {
    [&]<size_t... i>(std::index_sequence<i...>) {
      (f(std::integral_constant<size_t, i>(), std::get<i>(given)), ...);
    }(std::index_sequence_for<Arguments...>());
  }
  // Arrays of structs are followed by their count and stride.
  static constexpr bool is_list(size_t index) {
    constexpr bool kIsNumber[] = {std::is_same_v<Arguments, uint64_t>..., false, false};
    return kIsNumber[index + 1] && kIsNumber[index + 2];
  }
  static void keep_copies(const void* object, Changed& changed) {
    const std::lock_guard lock(kept_mutex);
    if (object) kept_by_object[object].copies = changed.take_copies();
  }
  static void forget(const void* object) {
    const std::lock_guard lock(kept_mutex);
    kept_by_object.erase(object);
  }
};

template <size_t plugin, class Api>
void wrap(Api& table) {
  original<Api>[plugin] = table;
  const bool is_mine = mutation().plugin == kSound[plugin].name && mutation().of == kNameOf<Api>;
#define FUNCTION(api_, function_)                                                                                    \
  if constexpr (std::is_same_v<Api, api_>) {                                                                         \
    if (table.function_) table.function_ = Call<plugin, &api_::function_>::call;                                     \
    if (is_mine && mutation().function == #function_ && mutation().argument == 0 && mutation().way == Way::kIgnored) \
      table.function_ = nullptr;                                                                                     \
  }
#include "abi_fields.inc"
#undef FUNCTION
}

template <class Api>
Api tables[kCount];
std::array<gannet_descriptor, kCount> descriptors;

template <size_t plugin, class Api>
void take(const gannet_descriptor& sound) {
  Api& table = tables<Api>[plugin];
  std::memcpy(&table, sound.api, sizeof(table));
  wrap<plugin>(table);
  descriptors[plugin] = sound;
  descriptors[plugin].api = &table;
}

template <size_t plugin>
void open_sound(const std::string& folder) {
  const std::string file = folder + "gannet_bad_" + kSound[plugin].library + ".so";
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto* const given = library ? static_cast<const gannet_descriptor* const*>(::dlsym(library, GANNET_EXPORT_NAME)) : nullptr;
  for (size_t i = 0; given && given[i]; ++i) {
    if (::strcasecmp(given[i]->name, kSound[plugin].name) != 0) continue;
    if (given[i]->kind == GANNET_KIND_OPTIMIZER) return take<plugin, gannet_optimizer_api>(*given[i]);
    if (given[i]->kind == GANNET_KIND_SCHEDULER) return take<plugin, gannet_scheduler_api>(*given[i]);
    if (given[i]->kind == GANNET_KIND_COMM) return take<plugin, gannet_comm_api>(*given[i]);
    return take<plugin, gannet_offload_api>(*given[i]);
  }
  std::fprintf(stderr, "%s has no plugin %s: %s\n", file.c_str(), kSound[plugin].name, library ? "" : ::dlerror());
  std::_Exit(98);
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern const gannet_descriptor* GANNET_EXPORT_SYMBOL[kCount + 1];
const gannet_descriptor* GANNET_EXPORT_SYMBOL[kCount + 1];
}

namespace {
__attribute__((constructor)) void open_all() {
  Dl_info own{};
  ::dladdr(reinterpret_cast<const void*>(&open_all), &own);
  const std::string file = own.dli_fname, folder = file.substr(0, file.rfind('/') + 1);
  [&]<size_t... i>(std::index_sequence<i...>) {
    (open_sound<i>(folder), ...);
    ((GANNET_EXPORT_SYMBOL[i] = &descriptors[i]), ...);
  }(std::make_index_sequence<kCount>());
}
}  // namespace

GANNET_PLUGIN_NOTE(
    GANNET_TIER_STABLE, 0, "", "",
    "optimizer/complete optimizer/separate optimizer/scaled optimizer/frombegin optimizer/averaged optimizer/drawn "
    "optimizer/second "
    "optimizer/perturbing optimizer/twopasses optimizer/listed optimizer/ondevice optimizer/averages optimizer/localsteps "
    "scheduler/flat scheduler/climbing comm/soundcomm@cpu comm/soundmemory@cpu offload/soundtier");
