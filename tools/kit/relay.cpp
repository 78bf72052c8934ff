#include "kit/relay.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/format.h"
#include "kit/call_memory.h"
#include "kit/check.h"
#include "kit/place.h"
#include "kit/process_state.h"
#include "kit/relay_fault.h"
#include "kit/relay_host.h"

namespace gannet::kit {
namespace {

RelayOptions options;
ProcessScope scope = ProcessScope::kAll;
std::mutex& fault_mutex = *new std::mutex;
std::string &fault = *new std::string, &fault_place = *new std::string;

template <class Api>
const Api* real = nullptr;  // the plugin's own table

// Watches one call of the plugin.
class CallWatch {
 public:
  CallWatch() {
    if (options.watches_process) before_.emplace(ProcessState::now(scope));
  }
  ~CallWatch() {
    if (!before_) return;
    if (const std::string change = ProcessState::now(scope).change_since(*before_); !change.empty()) keep_fault(change);
  }
  CallWatch(const CallWatch&) = delete;

 private:
  std::optional<ProcessState> before_;
};

// A gannet_error with room for few characters, between inaccessible pages.
class ShortError {
 public:
  explicit ShortError(gannet_error* original)
      : original_(original), message_(options.error_capacity, "gannet_error::message", true, 1) {
    given_.struct_size = sizeof(given_);
    given_.capacity = options.error_capacity;
    given_.message = message_.as<char>();
    std::memset(message_.data(), 0x7e, options.error_capacity);
    given_.message[0] = 0;
  }
  gannet_error* given() { return &given_; }
  void give_back(int32_t status) const {
    const void* const end = std::memchr(message_.data(), 0, options.error_capacity);
    if (!end)
      return keep_fault(
          formatted("it wrote a sentence of {} bytes or more without the final 0 into gannet_error::message, "
                    "which has {}",
                    options.error_capacity, options.error_capacity));
    if (given_.message != message_.data() || given_.capacity != options.error_capacity)
      return keep_fault("it changed gannet_error itself: only the characters at `message` are written");
    // The sentence is cut; for the checks that look for one, this one is.
    if (status == GANNET_OK || !original_ || original_->capacity == 0) return;
    const char* const text = options.error_capacity > 1 ? message_.as<char>() : "(there was room for no character)";
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
  return function(arguments...);
}

// Calls function(arguments..., error), with a short error if the options ask for it.
template <class Function, class... Arguments>
int32_t with_error(gannet_error* error, Function function, Arguments... arguments) {
  if (options.error_capacity == 0) return watched(function, arguments..., error);
  ShortError small(error);
  const int32_t status = watched(function, arguments..., small.given());
  small.give_back(status);
  return status;
}

// The relay of a function that needs nothing else: its type has the table, the result and the
// arguments.
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

// The functions of a table that GANNET_HAS and that are there.
#define GANNET_RELAY(Api, member) \
  if (GANNET_HAS(real<Api>, Api, member) && real<Api>->member) table.member = Relay<&Api::member>::call

uint32_t group_label(uint32_t group) { return options.relabels ? group + 6 : group; }
uint64_t id_label(uint64_t id) { return options.relabels ? id * 1000003 + 17 : id; }

CallMemory call_memory() { return {options.minor, options.appended_bytes}; }

const gannet_tensor* tensors_in(CallMemory& memory, const gannet_tensor* first, uint64_t count, uint64_t stride) {
  gannet_tensor* const copies = memory.list(first, count, stride, "gannet_tensor");
  for (uint64_t i = 0; copies && i < count; ++i) memory.at(copies, i).id = id_label(memory.at(copies, i).id);
  return copies;
}

void reshape(CallMemory& memory, gannet_update_args& args) {
  args.group = group_label(args.group);
  gannet_segment* const segments = memory.list(args.segments, args.segment_count, args.segment_stride, "gannet_segment");
  for (uint64_t i = 0; segments && i < args.segment_count; ++i) {
    gannet_segment& segment = memory.at(segments, i);
    segment.tensor_id = id_label(segment.tensor_id);
    segment.shape = memory.values(segment.shape, segment.dimensions, "gannet_segment::shape");
    segment.name = memory.text(segment.name, "gannet_segment::name");
  }
  args.segments = segments;
  args.segment_stride = memory.stride_of<gannet_segment>();
  args.hyper = memory.values(args.hyper, args.hyper_count, "the hyperparameters");
  if (args.squares)
    args.squares = memory.values(args.squares, args.segment_count * args.state_count, "gannet_update_args::squares");
  args.states = memory.values(args.states, args.state_count, "gannet_update_args::states");
  args.sums = memory.values(args.sums, args.segment_count * args.sum_count, "the sums that it is given");
  args.lines = memory.values(args.lines, args.sum_count, "gannet_update_args::lines");
  args.device_numbers = memory.values(args.device_numbers, args.device_number_count, "the device numbers");
}

template <auto kMember>
struct PieceRelay;
template <class... Others, int32_t (*gannet_optimizer_api::*kMember)(void*, const gannet_update_args*, Others...)>
struct PieceRelay<kMember> {
  static int32_t call(void* self, const gannet_update_args* args, Others... others) {
    if (!options.reshapes()) return Relay<kMember>::call(self, args, others...);
    CallMemory memory = call_memory();
    gannet_update_args copy = *args;
    reshape(memory, copy);
    const gannet_update_args* const given = memory.copied(&copy, "gannet_update_args");
    memory.protect();
    return Relay<kMember>::call(self, given, others...);
  }
};

template <auto kMember>
struct ListRelay;
template <class... Others,
          int32_t (*gannet_optimizer_api::*kMember)(void*, const gannet_update_args*, uint64_t, uint64_t, Others...)>
struct ListRelay<kMember> {
  static int32_t call(void* self, const gannet_update_args* args, uint64_t count, uint64_t stride, Others... others) {
    if (!options.reshapes()) return Relay<kMember>::call(self, args, count, stride, others...);
    CallMemory memory = call_memory();
    std::vector<gannet_update_args> copies;
    for (uint64_t i = 0; i < count; ++i) {
      copies.push_back(*reinterpret_cast<const gannet_update_args*>(reinterpret_cast<const char*>(args) + i * stride));
      reshape(memory, copies.back());
    }
    const gannet_update_args* const given = memory.list(copies.data(), count, sizeof(copies[0]), "gannet_update_args");
    memory.protect();
    return Relay<kMember>::call(self, given, count, memory.stride_of<gannet_update_args>(), others...);
  }
};

template <auto kMember>
int32_t step_relay(void* self, const gannet_step_args* args, gannet_error* error) {
  if (!options.reshapes()) return Relay<kMember>::call(self, args, error);
  CallMemory memory = call_memory();
  gannet_step_args copy = *args;
  copy.group = group_label(copy.group);
  copy.hyper = memory.values(copy.hyper, copy.hyper_count, "the hyperparameters");
  copy.tensors = tensors_in(memory, copy.tensors, copy.tensor_count, copy.tensor_stride);
  copy.tensor_stride = memory.stride_of<gannet_tensor>();
  copy.states = memory.values(copy.states, copy.state_count, "gannet_step_args::states");
  copy.sums = memory.values(copy.sums, copy.tensor_count * copy.sum_count, "the sums that it is given");
  copy.lines = memory.values(copy.lines, copy.sum_count, "gannet_step_args::lines");
  const gannet_step_args* const given = memory.copied(&copy, "gannet_step_args");
  memory.protect();
  return Relay<kMember>::call(self, given, error);
}

// A struct that the plugin fills in, in the shape of the options. Fields behind what the plugin knows
// must stay zero.
template <class T>
class FilledIn {
 public:
  FilledIn(CallMemory& memory, T* original, const char* name) : original_(original), name_(name) {
    std::memcpy(static_cast<void*>(&zero_), original, sizeof(T));
    given_ = memory.copied(&zero_, name);
    bytes_ = given_->struct_size;
    known_ = bytes_in(original, options.minor);
    std::memset(reinterpret_cast<char*>(given_) + known_, 0, bytes_ - known_);
  }
  T* given() { return given_; }
  void give_back() {
    for (size_t i = known_; i < bytes_; ++i)
      if (reinterpret_cast<const char*>(given_)[i] != 0)
        keep_fault(formatted("it wrote behind the end of {}, {} bytes after the fields that it can know", name_, i - known_));
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

int32_t describe_optimizer(void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                           gannet_error* error) {
  using Through = Relay<&gannet_optimizer_api::describe>;
  if (!options.reshapes()) return Through::call(self, context, description, error);
  CallMemory memory = call_memory(), writable = call_memory();
  gannet_optimizer_context copy = *context;
  copy.group = group_label(copy.group);
  if (options.relabels) copy.group_count += 9;
  copy.tensors = tensors_in(memory, copy.tensors, copy.tensor_count, copy.tensor_stride);
  copy.tensor_stride = memory.stride_of<gannet_tensor>();
  const gannet_optimizer_context* const given = memory.copied(&copy, "gannet_optimizer_context");
  FilledIn filled(writable, description, "gannet_optimizer_description");
  memory.protect();
  const int32_t status = Through::call(self, given, filled.given(), error);
  filled.give_back();
  return status;
}

int32_t describe_schedule(void* self, gannet_schedule_description* description, gannet_error* error) {
  using Through = Relay<&gannet_scheduler_api::describe>;
  if (!options.reshapes()) return Through::call(self, description, error);
  CallMemory writable = call_memory();
  FilledIn filled(writable, description, "gannet_schedule_description");
  const int32_t status = Through::call(self, filled.given(), error);
  filled.give_back();
  return status;
}

int32_t schedule_value(void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error) {
  using Through = Relay<&gannet_scheduler_api::value>;
  if (!options.reshapes()) return Through::call(self, query, value, error);
  CallMemory memory = call_memory(), writable = call_memory();
  gannet_schedule_query copy = *query;
  if (options.total_steps) copy.total_steps = *options.total_steps;
  // A later minor may have more roles than this one.
  std::vector<double> base(copy.base, copy.base + copy.base_count);
  std::vector<double> values(value->values, value->values + value->value_count);
  if (options.appended_bytes > 0) base.push_back(0.125), values.push_back(0.25);
  copy.base = memory.values(base.data(), base.size(), "gannet_schedule_query::base");
  copy.base_count = static_cast<uint32_t>(base.size());
  copy.state = memory.values(copy.state, copy.state_count, "gannet_schedule_query::state");
  const gannet_schedule_query* const given = memory.copied(&copy, "gannet_schedule_query");
  gannet_schedule_value written = *value;
  written.values = writable.values(values.data(), values.size(), "gannet_schedule_value::values");
  written.value_count = static_cast<uint32_t>(values.size());
  FilledIn filled(writable, &written, "gannet_schedule_value");
  memory.protect();
  const int32_t status = Through::call(self, given, filled.given(), error);
  filled.give_back();
  if (written.values && written.value_count == values.size()) {
    std::memcpy(value->values, written.values, value->value_count * sizeof(double));
    if (options.appended_bytes > 0 && written.values[values.size() - 1] != 0.25)
      keep_fault("it wrote the value of a role that it cannot know");
  } else {
    keep_fault("it changed gannet_schedule_value::values or value_count: only the numbers and `roles` are written");
  }
  value->roles = written.roles;
  return status;
}

int32_t advance_schedule(void* self, const gannet_schedule_advance* args, gannet_error* error) {
  using Through = Relay<&gannet_scheduler_api::advance>;
  if (!options.reshapes()) return Through::call(self, args, error);
  CallMemory memory = call_memory(), writable = call_memory();
  gannet_schedule_advance copy = *args;
  copy.state = writable.values(args->state, args->state_count, "gannet_schedule_advance::state");
  const gannet_schedule_advance* const given = memory.copied(&copy, "gannet_schedule_advance");
  memory.protect();
  const int32_t status = Through::call(self, given, error);
  if (args->state_count > 0) std::memcpy(args->state, copy.state, args->state_count * sizeof(double));
  return status;
}

// The sizes of a Comm's groups, which the lists of counts have.
std::mutex& group_mutex = *new std::mutex;
std::map<void*, uint32_t>& group_sizes = *new std::map<void*, uint32_t>;

void reshape(CallMemory& memory, gannet_collective_args& args, void* group) {
  const std::lock_guard lock(group_mutex);
  const uint64_t size = group_sizes[group];
  args.send_counts = memory.values(args.send_counts, size, "gannet_collective_args::send_counts");
  args.recv_counts = memory.values(args.recv_counts, size, "gannet_collective_args::recv_counts");
}

int32_t create_group(void* self, const uint32_t* ranks, uint32_t count, const char* name, void* external, void** group,
                     gannet_error* error) {
  const int32_t status = Relay<&gannet_comm_api::group_create>::call(self, ranks, count, name, external, group, error);
  if (status == GANNET_OK) {
    const std::lock_guard lock(group_mutex);
    group_sizes[*group] = count;
  }
  return status;
}

void destroy_group(void* self, void* group) {
  {
    const std::lock_guard lock(group_mutex);
    group_sizes.erase(group);
  }
  Relay<&gannet_comm_api::group_destroy>::call(self, group);
}

int32_t start_collective(void* self, void* group, const gannet_collective_args* args, void** work, gannet_error* error) {
  using Through = Relay<&gannet_comm_api::collective>;
  if (!options.reshapes()) return Through::call(self, group, args, work, error);
  CallMemory memory = call_memory();
  gannet_collective_args copy = *args;
  reshape(memory, copy, group);
  const gannet_collective_args* const given = memory.copied(&copy, "gannet_collective_args");
  memory.protect();
  return Through::call(self, group, given, work, error);
}

int32_t start_collectives(void* self, void* group, const gannet_collective_args* args, uint64_t count, uint64_t stride,
                          void** work, gannet_error* error) {
  using Through = Relay<&gannet_comm_api::collective_many>;
  if (!options.reshapes()) return Through::call(self, group, args, count, stride, work, error);
  CallMemory memory = call_memory();
  std::vector<gannet_collective_args> copies;
  for (uint64_t i = 0; i < count; ++i) {
    copies.push_back(*reinterpret_cast<const gannet_collective_args*>(reinterpret_cast<const char*>(args) + i * stride));
    reshape(memory, copies.back(), group);
  }
  const gannet_collective_args* const given = memory.list(copies.data(), count, sizeof(copies[0]), "gannet_collective_args");
  memory.protect();
  return Through::call(self, group, given, count, memory.stride_of<gannet_collective_args>(), work, error);
}

// `create` of any kind: the host comes first.
template <auto kMember>
struct CreateRelay;
template <class Api, class... Others, int32_t (*Api::*kMember)(const gannet_host*, Others...)>
struct CreateRelay<kMember> {
  static int32_t call(const gannet_host* host, Others... others) { return Relay<kMember>::call(varied_host(host), others...); }
};

// A table that begins as the plugin's own, as far as it is long.
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

const void* optimizer_table(const plugin::Plugin& plugin) {
  using Api = gannet_optimizer_api;
  static Api table = begun<Api>(plugin);
  table.describe = describe_optimizer;
  GANNET_RELAY(Api, supports);
  GANNET_RELAY(Api, reduces_gradients);
  GANNET_RELAY(Api, wants_second_gradient);
  table.update = PieceRelay<&Api::update>::call;
  if (real<Api>->sums) table.sums = PieceRelay<&Api::sums>::call;
  if (real<Api>->begin_step) table.begin_step = step_relay<&Api::begin_step>;
  if (real<Api>->end_step) table.end_step = step_relay<&Api::end_step>;
  if (real<Api>->evaluate) table.evaluate = PieceRelay<&Api::evaluate>::call;
  if (GANNET_HAS(real<Api>, Api, perturb) && real<Api>->perturb) table.perturb = PieceRelay<&Api::perturb>::call;
  if (GANNET_HAS(real<Api>, Api, update_many) && real<Api>->update_many) table.update_many = ListRelay<&Api::update_many>::call;
  if (GANNET_HAS(real<Api>, Api, sums_many) && real<Api>->sums_many) table.sums_many = ListRelay<&Api::sums_many>::call;
  return &table;
}

const void* scheduler_table(const plugin::Plugin& plugin) {
  using Api = gannet_scheduler_api;
  static Api table = begun<Api>(plugin);
  table.describe = describe_schedule;
  table.value = schedule_value;
  if (real<Api>->advance) table.advance = advance_schedule;
  return &table;
}

const void* offload_table(const plugin::Plugin& plugin) {
  using Api = gannet_offload_api;
  static Api table = begun<Api>(plugin);
  GANNET_RELAY(Api, alignment_bytes);
  GANNET_RELAY(Api, allocate);
  GANNET_RELAY(Api, release);
  GANNET_RELAY(Api, address);
  GANNET_RELAY(Api, read);
  GANNET_RELAY(Api, write);
  GANNET_RELAY(Api, work_wait);
  return &table;
}

const void* comm_table(const plugin::Plugin& plugin) {
  using Api = gannet_comm_api;
  static Api table = begun<Api>(plugin);
  table.group_create = create_group;
  table.collective = start_collective;
  table.collective_many = start_collectives;
  table.group_destroy = destroy_group;
  GANNET_RELAY(Api, work_wait);
  GANNET_RELAY(Api, work_query);
  GANNET_RELAY(Api, work_block);
  GANNET_RELAY(Api, work_free);
  GANNET_RELAY(Api, counters);
  GANNET_RELAY(Api, sum_dtype);
  GANNET_RELAY(Api, allocate);
  GANNET_RELAY(Api, deallocate);
  GANNET_RELAY(Api, register_buffer);
  GANNET_RELAY(Api, unregister_buffer);
  return &table;
}

#undef GANNET_RELAY

}  // namespace

void keep_fault(const std::string& what) {
  const std::lock_guard lock(fault_mutex);
  if (!fault.empty()) return;
  fault = what;
  fault_place = text_of(place());
}

void throw_kept_fault() {
  const std::lock_guard lock(fault_mutex);
  if (!fault.empty()) throw CheckFailure(std::exchange(fault, ""), fault_place);
}

const RelayOptions& relay_options() { return options; }

RelayScope::RelayScope(const RelayOptions& wanted) { options = wanted; }
RelayScope::~RelayScope() { options = {}; }

const plugin::Plugin* relayed(const plugin::Plugin* plugin) {
  const auto kind = plugin->kind();
  if (kind == GANNET_KIND_ACCELERATOR) return plugin;  // queues are called from many threads, whose state is their own
  static plugin::Plugin copy;
  static gannet_descriptor descriptor;
  copy = *plugin;
  descriptor = *plugin->descriptor;
  scope = process_scope(kind);
  descriptor.api = kind == GANNET_KIND_OPTIMIZER   ? optimizer_table(*plugin)
                   : kind == GANNET_KIND_SCHEDULER ? scheduler_table(*plugin)
                   : kind == GANNET_KIND_OFFLOAD   ? offload_table(*plugin)
                                                   : comm_table(*plugin);
  copy.descriptor = &descriptor;
  return &copy;
}

}  // namespace gannet::kit
