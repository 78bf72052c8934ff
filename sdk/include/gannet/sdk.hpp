/// The comfort of C++ over gannet/abi.h, compiled into the plugin: typed parameters, the host's services, and the wall that
/// turns exceptions into codes. Header-only; needs C++17 and nothing of LibTorch.
///
///   #include <gannet/sdk.hpp>
///
///   struct Sign : gannet::sdk::OptimizerBase {
///     static constexpr gannet_param_spec kParams[] = {gannet::sdk::learning_rate("1e-3")};
///     using OptimizerBase::OptimizerBase;
///     void update(const gannet_update_args& a) {
///       auto* p = static_cast<float*>(a.param);
///       auto* g = static_cast<const float*>(a.grad);
///       parallel_for(a.numel, 4096, [&](uint64_t begin, uint64_t end) {
///         for (uint64_t i = begin; i < end; ++i) p[i] -= float(a.hyper[0]) * (g[i] > 0 ? 1.f : -1.f);
///       });
///     }
///   };
///   GANNET_PLUGINS("optimizer/sign@cpu", GANNET_TIER_STABLE, gannet::sdk::optimizer<Sign>("Sign", "cpu", "1.0", "sign descent"))
///
/// A C++ exception may be thrown anywhere in the plugin's functions: throw gannet::sdk::Failure to choose the code.
#pragma once

#include <gannet/abi.h>

#include <array>
#include <atomic>
#include <cstring>
#include <gannet/sdk_errors.hpp>
#include <gannet/sdk_params.hpp>
#include <string>
#include <type_traits>
#include <vector>

namespace gannet::sdk {

// ---- The host's services ------------------------------------------------------------------------------------------------

/// What every plugin object of ours holds: the host table.
class HostServices {
 public:
  explicit HostServices(const gannet_host& host) : host_(&host) {}
  const gannet_host& host() const { return *host_; }

  void log(gannet_log_level level, const std::string& message) const { host_->log(host_->context, level, message.c_str()); }
  void warn(const std::string& message) const { log(GANNET_LOG_WARNING, message); }

  /// Among the ranks that share the work on the same parameters.
  uint32_t rank() const { return host_->rank(host_->context, GANNET_GROUP_DATA); }
  uint32_t world_size() const { return host_->world_size(host_->context, GANNET_GROUP_DATA); }
  /// A collective of these ranks, in begin_step and end_step alone; see gannet_host_collective.
  void collective(gannet_host_collective args) const {
    char text[1024] = "";
    gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
    args.struct_size = sizeof(args);
    const int32_t status = host_->collective(host_->context, &args, &error);
    if (status != GANNET_OK) throw Failure(static_cast<gannet_status>(status), text);
  }

  /// body(begin, end) over [0, count) on the host's threads, in chunks that are multiples of `grain`. What the body throws is
  /// thrown again here, as a Failure with its code and its text; of several, the first in time.
  template <class Body>
  void parallel_for(uint64_t count, uint64_t grain, Body&& body) const {
    struct Loop {
      std::remove_reference_t<Body>* body;
      std::atomic<bool> has_failed{false};
      int32_t status = GANNET_OK;  // these two: of the one chunk that set has_failed, read behind the loop's end
      char text[1024] = "";
    } loop{&body};
    auto run = [](void* argument, uint64_t begin, uint64_t end) -> int32_t {
      auto& shared = *static_cast<Loop*>(argument);
      char text[sizeof(Loop::text)] = "";
      gannet_error error{sizeof(gannet_error), 0, sizeof(text), text};
      const int32_t code = guarded(&error, [&] { (*shared.body)(begin, end); });
      if (code == GANNET_OK || shared.has_failed.exchange(true)) return code;
      shared.status = code;
      std::memcpy(shared.text, text, sizeof(text));
      return code;
    };
    const int32_t status = host_->parallel_for(host_->context, 0, count, grain, run, &loop);
    if (loop.status != GANNET_OK) throw Failure(static_cast<gannet_status>(loop.status), loop.text);
    if (status != GANNET_OK) throw Failure(static_cast<gannet_status>(status), "the host's parallel loop could not be run");
  }

 private:
  const gannet_host* host_;
};

// ---- Optimizer ----------------------------------------------------------------------------------------------------------

/// A state the optimizer wants: `state("exp_avg")` is one per element, in the master's dtype, from zero.
constexpr gannet_state_spec state(const char* name, gannet_state_extent extent = GANNET_STATE_PER_ELEMENT,
                                  gannet_dtype dtype = GANNET_DTYPE_NONE, double initial_value = 0) {
  gannet_state_spec spec{};
  spec.struct_size = sizeof(gannet_state_spec);
  spec.dtype = dtype;
  spec.extent = extent;
  spec.name = name;
  spec.initial_value = initial_value;
  return spec;
}

/// A state whose first value is the parameter's: `state_from_parameter("z")`.
constexpr gannet_state_spec state_from_parameter(const char* name, gannet_dtype dtype = GANNET_DTYPE_NONE) {
  gannet_state_spec spec = state(name, GANNET_STATE_PER_ELEMENT, dtype);
  spec.flags = GANNET_STATE_FROM_PARAMETER;
  return spec;
}

/// One value per `block` elements: `state_per_block("exp_avg_scale", 256)`. range_alignment() is a multiple of the block then.
constexpr gannet_state_spec state_per_block(const char* name, uint64_t block, gannet_dtype dtype = GANNET_FLOAT32,
                                            double initial_value = 0) {
  gannet_state_spec spec = state(name, GANNET_STATE_PER_BLOCK, dtype, initial_value);
  spec.block = block;
  return spec;
}

/// A number of whole tensors, of the group or of the model: `sum(GANNET_SUM_OF_TENSOR)`.
constexpr gannet_sum_spec sum(gannet_sum_scope scope, gannet_reduce_op reduce_op = GANNET_SUM, uint32_t round = 0) {
  gannet_sum_spec spec{};
  spec.struct_size = sizeof(gannet_sum_spec);
  spec.scope = scope;
  spec.reduce_op = reduce_op;
  spec.round = round;
  return spec;
}

/// The i-th of an array of structs that comes with its stride.
template <class T>
const T& element(const T* first, uint64_t stride, uint64_t i) {
  return *reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + i * stride);
}
inline const gannet_segment& segment(const gannet_update_args& args, uint64_t i) {
  return element(args.segments, args.segment_stride, i);
}
inline const gannet_tensor& tensor(const gannet_step_args& args, uint64_t i) {
  return element(args.tensors, args.tensor_stride, i);
}

/// Base of an optimizer in C++: an object for each parameter group. A derived class has
///   static constexpr gannet_param_spec kParams[];              what the config may say
///   Derived(const gannet_host&, const Params&)                  or `using OptimizerBase::OptimizerBase`
///   void update(const gannet_update_args&);
/// and may have
///   bool supports(param_dtype, grad_dtype, out_dtype) const;    default: fp32 master and gradient, no copy
///   void prepare(const gannet_optimizer_context&);              which tensors it is for: before the next four are asked
///   uint64_t capabilities() const;                              default: ELEMENTWISE
///   std::vector<gannet_state_spec> states() const;              default: none
///   std::vector<gannet_sum_spec> wanted_sums() const;           default: none
///   uint64_t range_alignment() const;                           default: any
///   void sums(const gannet_update_args&, uint32_t round, double* sums);
///   void begin_step(const gannet_step_args&); void end_step(const gannet_step_args&);
///   void evaluate(const gannet_update_args&);                   the weights to evaluate with, where they are not those trained
///   bool reduces_gradients(uint64_t step) const;                with OWNS_GRAD_REDUCTION
class OptimizerBase : public HostServices {
 public:
  OptimizerBase(const gannet_host& host, const Params&) : HostServices(host) {}
  bool supports(uint32_t param_dtype, uint32_t grad_dtype, uint32_t out_dtype) const {
    return param_dtype == GANNET_FLOAT32 && grad_dtype == GANNET_FLOAT32 && out_dtype == GANNET_DTYPE_NONE;
  }
  void prepare(const gannet_optimizer_context&) {}
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE; }
  std::vector<gannet_state_spec> states() const { return {}; }
  std::vector<gannet_sum_spec> wanted_sums() const { return {}; }
  uint64_t range_alignment() const { return 0; }
  void sums(const gannet_update_args&, uint32_t, double*) {}
  void begin_step(const gannet_step_args&) {}
  void end_step(const gannet_step_args&) {}
  void evaluate(const gannet_update_args&) {}
  bool reduces_gradients(uint64_t) const { return false; }
};

namespace detail {

template <class Derived>
struct OptimizerHolder {
  OptimizerHolder(const gannet_host& host, const Params& params) : optimizer(host, params) {}
  Derived optimizer;
  std::vector<gannet_state_spec> states;
  std::vector<gannet_sum_spec> sums;
};

// Whether a class has a function of its own in place of OptimizerBase's.
template <class OfDerived, class OfBase>
inline constexpr bool kIsOwn = !std::is_same_v<OfDerived, OfBase>;

template <class Derived>
inline constexpr gannet_optimizer_api kOptimizerApi = [] {
  using Holder = OptimizerHolder<Derived>;
  gannet_optimizer_api api{};
  api.struct_size = sizeof(api);
  api.create = [](const gannet_host* host, const gannet_params* params, void** self, gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Holder(*host, Params(*params)); });
  };
  api.destroy = [](void* self) { delete static_cast<Holder*>(self); };
  api.describe = [](void* self, const gannet_optimizer_context* context, gannet_optimizer_description* description,
                    gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      auto& held = *static_cast<Holder*>(self);
      held.optimizer.prepare(*context);
      held.states = held.optimizer.states();
      held.sums = held.optimizer.wanted_sums();
      description->capabilities = held.optimizer.capabilities();
      description->states = held.states.data();
      description->state_count = held.states.size();
      description->state_stride = sizeof(gannet_state_spec);
      description->sums = held.sums.data();
      description->sum_count = held.sums.size();
      description->sum_stride = sizeof(gannet_sum_spec);
      description->range_alignment = held.optimizer.range_alignment();
    });
  };
  api.supports = [](void* self, uint32_t param, uint32_t grad, uint32_t out, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      if (!static_cast<Holder*>(self)->optimizer.supports(param, grad, out))
        throw Failure(GANNET_UNSUPPORTED, "it does not take these types");
    });
  };
  api.update = [](void* self, const gannet_update_args* args, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.update(*args); });
  };
  if constexpr (kIsOwn<decltype(&Derived::sums), decltype(&OptimizerBase::sums)>)
    api.sums = [](void* self, const gannet_update_args* args, uint32_t round, double* sums, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.sums(*args, round, sums); });
    };
  if constexpr (kIsOwn<decltype(&Derived::begin_step), decltype(&OptimizerBase::begin_step)>)
    api.begin_step = [](void* self, const gannet_step_args* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.begin_step(*args); });
    };
  if constexpr (kIsOwn<decltype(&Derived::end_step), decltype(&OptimizerBase::end_step)>)
    api.end_step = [](void* self, const gannet_step_args* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.end_step(*args); });
    };
  if constexpr (kIsOwn<decltype(&Derived::evaluate), decltype(&OptimizerBase::evaluate)>)
    api.evaluate = [](void* self, const gannet_update_args* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.evaluate(*args); });
    };
  if constexpr (kIsOwn<decltype(&Derived::reduces_gradients), decltype(&OptimizerBase::reduces_gradients)>)
    api.reduces_gradients = [](void* self, uint64_t step, uint32_t* reduces, gannet_error* error) -> int32_t {
      return guarded(error, [&] { *reduces = static_cast<Holder*>(self)->optimizer.reduces_gradients(step); });
    };
  return api;
}();

}  // namespace detail

// ---- Scheduler ----------------------------------------------------------------------------------------------------------

/// The values that a schedule gives, by role: `ScheduleValues().set(GANNET_ROLE_LEARNING_RATE, 0.1)`.
class ScheduleValues {
 public:
  ScheduleValues& set(gannet_param_role role, double value) {
    roles_ |= uint64_t{1} << role;
    values_[role] = value;
    return *this;
  }
  bool has(gannet_param_role role) const { return (roles_ >> role & 1) != 0; }
  double get(gannet_param_role role) const { return values_[role]; }
  void write_to(gannet_schedule_value& value) const {
    for (uint32_t role = 0; role < GANNET_ROLE_COUNT && role < value.value_count; ++role)
      if (has(static_cast<gannet_param_role>(role))) value.values[role] = values_[role];
    value.roles = roles_;
  }

 private:
  uint64_t roles_ = 0;
  double values_[GANNET_ROLE_COUNT] = {};
};

constexpr uint64_t bit_of(gannet_param_role role) { return uint64_t{1} << role; }

/// What the optimizer's params say for the query's group; `otherwise` where it has no such parameter.
inline double base_value(const gannet_schedule_query& query, gannet_param_role role, double otherwise = 0) {
  const double value = static_cast<uint32_t>(role) < query.base_count ? query.base[role] : otherwise;
  return value == value ? value : otherwise;
}

/// Base of a schedule in C++: Derived(HostServices, Params, uint32_t group_count) and
/// `ScheduleValues value(const gannet_schedule_query&) const`, a pure function. It may hide these two.
class SchedulerBase : public HostServices {
 public:
  explicit SchedulerBase(const HostServices& host) : HostServices(host) {}
  uint64_t roles() const { return bit_of(GANNET_ROLE_LEARNING_RATE); }  // that the optimizer must have
  uint64_t optional_roles() const { return 0; }                         // set where it has them
};

namespace detail {

template <class Derived>
inline constexpr gannet_scheduler_api kSchedulerApi = [] {
  gannet_scheduler_api api{};
  api.struct_size = sizeof(api);
  api.create = [](const gannet_host* host, const gannet_params* params, uint32_t group_count, void** self,
                  gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Derived(HostServices(*host), Params(*params), group_count); });
  };
  api.destroy = [](void* self) { delete static_cast<Derived*>(self); };
  api.describe = [](void* self, gannet_schedule_description* description, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      description->roles = static_cast<const Derived*>(self)->roles();
      description->optional_roles = static_cast<const Derived*>(self)->optional_roles();
    });
  };
  api.value = [](void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<const Derived*>(self)->value(*query).write_to(*value); });
  };
  return api;
}();

}  // namespace detail

// ---- Descriptors --------------------------------------------------------------------------------------------------------

/// Fills a descriptor; `fingerprint` is GANNET_FINGERPRINT for the pinned tier and "" otherwise.
constexpr gannet_descriptor describe(gannet_kind kind, gannet_tier tier, const char* name, const char* device,
                                     const char* version, const char* fingerprint, const char* doc,
                                     const gannet_param_spec* params, uint64_t param_count, const void* api) {
  gannet_descriptor descriptor{};
  descriptor.struct_size = sizeof(descriptor);
  descriptor.abi_major = GANNET_ABI_MAJOR;
  descriptor.abi_minor = GANNET_TARGET_MINOR;
  descriptor.magic = GANNET_MAGIC;
  descriptor.kind = kind;
  descriptor.tier = tier;
  descriptor.name = name;
  descriptor.device = device;
  descriptor.version = version;
  descriptor.fingerprint = fingerprint;
  descriptor.doc = doc;
  descriptor.params = params;
  descriptor.param_count = param_count;
  descriptor.param_stride = sizeof(gannet_param_spec);
  descriptor.api = api;
  return descriptor;
}

template <class Derived>
constexpr gannet_descriptor optimizer(const char* name, const char* device, const char* version, const char* doc) {
  return describe(GANNET_KIND_OPTIMIZER, GANNET_TIER_STABLE, name, device, version, "", doc, Derived::kParams,
                  sizeof(Derived::kParams) / sizeof(gannet_param_spec), &detail::kOptimizerApi<Derived>);
}

template <class Derived>
constexpr gannet_descriptor scheduler(const char* name, const char* version, const char* doc) {
  return describe(GANNET_KIND_SCHEDULER, GANNET_TIER_STABLE, name, "", version, "", doc, Derived::kParams,
                  sizeof(Derived::kParams) / sizeof(gannet_param_spec), &detail::kSchedulerApi<Derived>);
}

}  // namespace gannet::sdk

/// Set by gannet_add_plugin() for the pinned tier: LibTorch's version, string ABI and compiler family; and, with VENDOR, which
/// vendor's half of it is used.
#ifndef GANNET_FINGERPRINT
#define GANNET_FINGERPRINT ""
#endif
#ifndef GANNET_VENDOR
#define GANNET_VENDOR ""
#endif

namespace gannet::sdk::detail {

template <size_t kCount>
struct Table {  // laid out as the plain array of pointers that abi.h promises
  const gannet_descriptor* pointers[kCount + 1];
};
template <size_t kCount>
constexpr Table<kCount> table_of(const gannet_descriptor (&descriptors)[kCount]) {
  Table<kCount> table{};
  for (size_t i = 0; i < kCount; ++i) table.pointers[i] = &descriptors[i];
  return table;
}

}  // namespace gannet::sdk::detail

/// Writes the ELF note and exports the table. Once per shared object, at namespace scope:
///   GANNET_PLUGINS("optimizer/adam@cpu optimizer/adamw@cpu", GANNET_TIER_STABLE, descriptor, descriptor)
/// `provides_` names each descriptor as kind/name@device (no @device where it is ""), lower case.
#define GANNET_PLUGINS(provides_, tier_, ...) GANNET_PLUGINS_THAT_NEED(0, provides_, tier_, __VA_ARGS__)
/// The same of plugins that cannot do without some features of newer hosts, bits of gannet_note::required_features.
#define GANNET_PLUGINS_THAT_NEED(features_, provides_, tier_, ...)                                          \
  GANNET_PLUGIN_NOTE(tier_, features_, GANNET_FINGERPRINT, GANNET_VENDOR, provides_);                       \
  static constexpr gannet_descriptor gannet_descriptors_[] = {__VA_ARGS__};                                 \
  using GannetTable_ = gannet::sdk::detail::Table<sizeof(gannet_descriptors_) / sizeof(gannet_descriptor)>; \
  extern "C" {                                                                                              \
  __attribute__((visibility("default"))) extern const GannetTable_ GANNET_EXPORT_SYMBOL;                    \
  const GannetTable_ GANNET_EXPORT_SYMBOL = gannet::sdk::detail::table_of(gannet_descriptors_);             \
  }
