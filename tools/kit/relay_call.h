// The building blocks of the relay's tables (relay_tables.h): they call the plugin's own function,
// watched and with the error buffer that the options request.
//
//   table.supports = Relay<&gannet_optimizer_api::supports>::call;
#pragma once

#include <gannet/abi.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "base/format.h"
#include "kit/call_memory.h"
#include "kit/process_state.h"
#include "kit/relay.h"
#include "kit/relay_fault.h"
#include "kit/relay_host.h"

namespace gannet::kit {

template <class Api>
inline const Api* real = nullptr;  // the plugin's own table

// The parts of the process state to watch; they depend on the plugin's kind.
ProcessScope relay_scope();

// Watches one call of the plugin.
class CallWatch {
 public:
  CallWatch() {
    if (relay_options().watches_process) before_.emplace(ProcessState::now(relay_scope()));
  }
  ~CallWatch() {
    if (!before_) return;
    if (const std::string change = ProcessState::now(relay_scope()).change_since(*before_); !change.empty()) keep_fault(change);
  }
  CallWatch(const CallWatch&) = delete;

 private:
  std::optional<ProcessState> before_;
};

// A gannet_error with a small message buffer between inaccessible pages.
class ShortError {
 public:
  explicit ShortError(gannet_error* original)
      : original_(original), message_(relay_options().error_capacity, "gannet_error::message", true, 1) {
    given_.struct_size = sizeof(given_);
    given_.capacity = relay_options().error_capacity;
    given_.message = message_.as<char>();
    std::memset(message_.data(), 0x7e, relay_options().error_capacity);
    given_.message[0] = 0;
  }
  gannet_error* given() { return &given_; }
  void give_back(int32_t status) const {
    const void* const end = std::memchr(message_.data(), 0, relay_options().error_capacity);
    if (!end)
      return keep_fault(
          formatted("it wrote a sentence of {} bytes or more without the final 0 into gannet_error::message, "
                    "which has {}",
                    relay_options().error_capacity, relay_options().error_capacity));
    if (given_.message != message_.data() || given_.capacity != relay_options().error_capacity)
      return keep_fault("it changed gannet_error itself: only the characters at `message` are written");
    // Copies the truncated message, for checks that require a message.
    if (status == GANNET_OK || !original_ || original_->capacity == 0) return;
    const char* const text = relay_options().error_capacity > 1 ? message_.as<char>() : "(there was room for no character)";
    std::snprintf(original_->message, original_->capacity, "%s", text);
  }

 private:
  gannet_error* original_;
  gannet_error given_{};
  Buffer message_;
};

template <class Function, class... Arguments>
auto watched(Function function, Arguments... arguments) {
  const CallWatch watch;
  errno = relay_options().appended_bytes > 0 ? ERANGE : 0;  // an earlier call of the program's may have left anything
  return function(arguments...);
}

// Calls function(arguments..., error), with a short error buffer if the options request one.
template <class Function, class... Arguments>
int32_t with_error(gannet_error* error, Function function, Arguments... arguments) {
  if (relay_options().error_capacity == 0) return watched(function, arguments..., error);
  ShortError small(error);
  const int32_t status = watched(function, arguments..., small.given());
  small.give_back(status);
  return status;
}

// The relay of a function that needs no special handling. Deduces the table, the result and the
// arguments from the member's type.
template <auto kMember>
struct Relay;

template <class Api, class Result, class... Arguments, Result (*Api::*kMember)(Arguments...)>
struct Relay<kMember> {
  static Result call(Arguments... arguments) {
    constexpr size_t kLast = sizeof...(Arguments) - 1;
    using All = std::tuple<Arguments...>;
    if constexpr (std::is_same_v<std::tuple_element_t<kLast, All>, gannet_error*>)
      return with_short_error(All(arguments...), std::make_index_sequence<kLast>());
    else
      return watched(real<Api>->*kMember, arguments...);
  }

 private:
  template <class All, size_t... kFirst>
  static Result with_short_error(const All& all, std::index_sequence<kFirst...>) {
    return with_error(std::get<sizeof...(kFirst)>(all), real<Api>->*kMember, std::get<kFirst>(all)...);
  }
};

// Relays a function of the table, if the table has it (GANNET_HAS) and it is not null.
#define GANNET_RELAY(Api, member) \
  if (GANNET_HAS(real<Api>, Api, member) && real<Api>->member) table.member = Relay<&Api::member>::call

inline CallMemory call_memory() { return {relay_options().minor, relay_options().appended_bytes}; }

// A struct that the plugin fills in, in the shape that relay_options() requests. Fields beyond
// those that the plugin knows must stay zero.
template <class T>
class FilledIn {
 public:
  FilledIn(CallMemory& memory, T* original, const char* name) : original_(original), name_(name) {
    std::memcpy(static_cast<void*>(&zero_), original, sizeof(T));
    given_ = memory.copied(&zero_, name);
    bytes_ = given_->struct_size;
    known_ = bytes_in(original, relay_options().minor);
    std::memset(reinterpret_cast<char*>(given_) + known_, 0, bytes_ - known_);
  }
  T* given() { return given_; }
  void give_back() {
    for (size_t i = known_; i < bytes_; ++i)
      if (reinterpret_cast<const char*>(given_)[i] != 0)
        keep_fault(formatted("it wrote after the end of {}, {} bytes after the fields that it can know", name_, i - known_));
    if (given_->struct_size != bytes_)
      keep_fault(formatted("it set {}::struct_size from {} to {}: the size is the caller's", name_, bytes_, given_->struct_size));
    const uint32_t size = original_->struct_size;
    std::memcpy(static_cast<void*>(original_), given_, known_);
    original_->struct_size = size;
  }

 private:
  T* original_;
  const char* name_;
  T zero_{};
  T* given_;
  size_t bytes_, known_;
};

// The params with the stride of a later minor. They stay as long as the objects.
inline const gannet_params* varied_params(const gannet_params* params) {
  if (relay_options().appended_bytes == 0 || params->count == 0) return params;
  static auto& kept = *new std::deque<CallMemory>;
  static auto& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  CallMemory& memory = kept.emplace_back(relay_options().minor, relay_options().appended_bytes);
  gannet_params copy = *params;
  copy.values = memory.list(params->values, params->count, params->stride, "gannet_params::values");
  copy.stride = memory.stride_of<gannet_param_value>();
  return memory.copied(&copy, "gannet_params");
}

// `create` of any kind; its first arguments are the host and the params.
template <auto kMember>
struct CreateRelay;
template <class Api, class... Others, int32_t (*Api::*kMember)(const gannet_host*, const gannet_params*, Others...)>
struct CreateRelay<kMember> {
  static int32_t call(const gannet_host* host, const gannet_params* params, Others... others) {
    return Relay<kMember>::call(varied_host(host), varied_params(params), others...);
  }
};

// A copy of the plugin's table, up to its struct_size, with `create` and `destroy` relayed.
template <class Api>
Api begun(const plugin::Plugin& plugin) {
  real<Api> = static_cast<const Api*>(plugin.descriptor->api);
  Api table{};
  const size_t bytes = std::min<size_t>(real<Api>->struct_size, sizeof(Api));
  std::memcpy(static_cast<void*>(&table), real<Api>, bytes);
  table.struct_size = static_cast<uint32_t>(bytes);
  table.create = CreateRelay<&Api::create>::call;
  table.destroy = Relay<&Api::destroy>::call;
  return table;
}

}  // namespace gannet::kit
