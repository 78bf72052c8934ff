/// The comfort of C++ over gannet/abi.h, compiled into the plugin: typed parameters, the host's services, and the wall that
/// turns exceptions into codes. Header-only; needs C++17 and nothing of LibTorch.
///
///   #include <gannet/sdk.hpp>
///
///   struct Sign : gannet::sdk::OptimizerBase {
///     static constexpr gannet_param_spec kParams[] = {gannet::sdk::dynamic_number("lr", "1e-3", "learning rate")};
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

/// Base of an optimizer in C++. A derived class has
///   static constexpr gannet_param_spec kParams[];              what the config may say
///   Derived(const gannet_host&, const Params&)                  or `using OptimizerBase::OptimizerBase`
///   void update(const gannet_update_args&);
/// and may have
///   std::vector<gannet_state_spec> states() const;             default: none
///   bool supports(param_dtype, grad_dtype, out_dtype) const;   default: fp32 master and gradient, no copy
///   static constexpr uint64_t kCapabilities;                   default: ELEMENTWISE
///   static constexpr uint64_t kSumsPerTensor; void partials(args, sums); void apply(args, sums);   instead of update
class OptimizerBase : public HostServices {
 public:
  static constexpr uint64_t kCapabilities = GANNET_OPTIMIZER_ELEMENTWISE;
  static constexpr uint64_t kSumsPerTensor = 0;

  OptimizerBase(const gannet_host& host, const Params&) : HostServices(host) {}
  std::vector<gannet_state_spec> states() const { return {}; }
  bool supports(uint32_t param_dtype, uint32_t grad_dtype, uint32_t out_dtype) const {
    return param_dtype == GANNET_FLOAT32 && grad_dtype == GANNET_FLOAT32 && out_dtype == GANNET_DTYPE_NONE;
  }
  void partials(const gannet_update_args&, double*) { throw Failure(GANNET_UNSUPPORTED, "this optimizer has no tensor sums"); }
  void apply(const gannet_update_args&, const double*) { throw Failure(GANNET_UNSUPPORTED, "this optimizer has no tensor sums"); }
};

namespace detail {

template <class Derived>
struct OptimizerHolder {
  OptimizerHolder(const gannet_host& host, const Params& params) : optimizer(host, params), specs(optimizer.states()) {}
  Derived optimizer;
  std::vector<gannet_state_spec> specs;
};

template <class Derived>
inline constexpr gannet_optimizer_api kOptimizerApi = [] {
  using Holder = OptimizerHolder<Derived>;
  gannet_optimizer_api api{};
  api.struct_size = sizeof(api);
  api.capabilities = Derived::kCapabilities;
  api.sums_per_tensor = Derived::kSumsPerTensor;
  api.create = [](const gannet_host* host, const gannet_params* params, void** self, gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Holder(*host, Params(*params)); });
  };
  api.destroy = [](void* self) { delete static_cast<Holder*>(self); };
  api.state_specs = [](void* self, gannet_state_specs* specs, gannet_error*) -> int32_t {
    auto& held = static_cast<Holder*>(self)->specs;
    specs->specs = held.data();
    specs->count = held.size();
    specs->stride = sizeof(gannet_state_spec);
    return GANNET_OK;
  };
  api.supports = [](void* self, uint32_t param, uint32_t grad, uint32_t out, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      if (!static_cast<Holder*>(self)->optimizer.supports(param, grad, out))
        throw Failure(GANNET_UNSUPPORTED, "it does not take these types");
    });
  };
  if constexpr ((Derived::kCapabilities & GANNET_OPTIMIZER_NEEDS_TENSOR_SUMS) != 0) {
    api.partials = [](void* self, const gannet_update_args* args, double* sums, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.partials(*args, sums); });
    };
    api.apply = [](void* self, const gannet_update_args* args, const double* sums, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.apply(*args, sums); });
    };
  } else {
    api.update = [](void* self, const gannet_update_args* args, gannet_error* error) -> int32_t {
      return guarded(error, [&] { static_cast<Holder*>(self)->optimizer.update(*args); });
    };
  }
  return api;
}();

template <class Derived>
inline constexpr gannet_scheduler_api kSchedulerApi = [] {
  gannet_scheduler_api api{};
  api.struct_size = sizeof(api);
  api.create = [](const gannet_host* host, const gannet_params* params, uint32_t group_count, void** self,
                  gannet_error* error) -> int32_t {
    return guarded(error, [&] { *self = new Derived(HostServices(*host), Params(*params), group_count); });
  };
  api.destroy = [](void* self) { delete static_cast<Derived*>(self); };
  api.value = [](void* self, const gannet_schedule_query* query, gannet_schedule_value* value, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      const gannet_schedule_value computed = static_cast<const Derived*>(self)->value(*query);
      value->fields = computed.fields;
      value->lr = computed.lr;
      value->beta1 = computed.beta1;
      value->beta2 = computed.beta2;
    });
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
  descriptor.abi_minor = GANNET_ABI_MINOR;
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

/// A schedule: Derived(HostServices, Params, uint32_t group_count) and
/// `gannet_schedule_value value(const gannet_schedule_query&) const`, a pure function.
template <class Derived>
constexpr gannet_descriptor scheduler(const char* name, const char* version, const char* doc) {
  return describe(GANNET_KIND_SCHEDULER, GANNET_TIER_STABLE, name, "", version, "", doc, Derived::kParams,
                  sizeof(Derived::kParams) / sizeof(gannet_param_spec), &detail::kSchedulerApi<Derived>);
}

}  // namespace gannet::sdk

/// Set by gannet_add_plugin() for the pinned tier: LibTorch's version, string ABI, compiler family, CUDA.
#ifndef GANNET_FINGERPRINT
#define GANNET_FINGERPRINT ""
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

constexpr gannet_elf_note make_note(gannet_tier tier, const char* fingerprint, const char* provides) {
  gannet_elf_note note{8, sizeof(gannet_note), GANNET_NOTE_TYPE, GANNET_NOTE_NAME, 0, {}};
  note.content.struct_size = sizeof(gannet_note);
  note.content.abi_major = GANNET_ABI_MAJOR;
  note.content.abi_minor = GANNET_ABI_MINOR;
  note.content.magic = GANNET_MAGIC;
  note.content.tier = tier;
  note.content.interface_versions = GANNET_INTERFACE_VERSIONS;
  // A text that does not fit is an index out of range in a constant expression: the plugin does not compile.
  for (size_t i = 0; tier == GANNET_TIER_PINNED && fingerprint[i]; ++i) note.content.fingerprint[i] = fingerprint[i];
  for (size_t i = 0; provides[i]; ++i) note.content.provides[i] = provides[i];
  return note;
}

}  // namespace gannet::sdk::detail

/// Writes the ELF note and exports the table. Once per shared object, at namespace scope:
///   GANNET_PLUGINS("optimizer/adam@cpu optimizer/adamw@cpu", GANNET_TIER_STABLE, descriptor, descriptor)
/// `provides_` names each descriptor as kind/name@device (no @device where it is ""), lower case.
#define GANNET_PLUGINS(provides_, tier_, ...)                                                                     \
  __attribute__((section(GANNET_NOTE_SECTION), used, aligned(8))) static constexpr gannet_elf_note gannet_note_ = \
      gannet::sdk::detail::make_note(tier_, GANNET_FINGERPRINT, provides_);                                       \
  static constexpr gannet_descriptor gannet_descriptors_[] = {__VA_ARGS__};                                       \
  using GannetTable_ = gannet::sdk::detail::Table<sizeof(gannet_descriptors_) / sizeof(gannet_descriptor)>;       \
  extern "C" {                                                                                                    \
  __attribute__((visibility("default"))) extern const GannetTable_ gannet_plugins_v1;                             \
  const GannetTable_ gannet_plugins_v1 = gannet::sdk::detail::table_of(gannet_descriptors_);                      \
  }
