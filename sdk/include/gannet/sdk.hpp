/// A C++ layer over gannet/abi.h that is compiled into the plugin: typed parameters, the host's
/// services, and the wall that turns exceptions into status codes. It is header-only, needs C++17
/// and does not use LibTorch.
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
/// A plugin's functions may throw any C++ exception; gannet::sdk::Failure chooses the status code.
#pragma once

#include <gannet/abi.h>

#include <array>
#include <gannet/sdk_errors.hpp>
#include <gannet/sdk_host.hpp>
#include <gannet/sdk_optimizer.hpp>
#include <gannet/sdk_params.hpp>
#include <gannet/sdk_scheduler.hpp>

namespace gannet::sdk {

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

/// Set by gannet_add_plugin() for the pinned tier: LibTorch's version, its string ABI and the
/// compiler family; with VENDOR, also the vendor part of LibTorch that is used.
#ifndef GANNET_FINGERPRINT
#define GANNET_FINGERPRINT ""
#endif
#ifndef GANNET_VENDOR
#define GANNET_VENDOR ""
#endif

namespace gannet::sdk::detail {

template <size_t kCount>
struct Table {  // laid out like the plain array of pointers that abi.h requires
  const gannet_descriptor* pointers[kCount + 1];
};
template <size_t kCount>
constexpr Table<kCount> table_of(const gannet_descriptor (&descriptors)[kCount]) {
  Table<kCount> table{};
  for (size_t i = 0; i < kCount; ++i) table.pointers[i] = &descriptors[i];
  return table;
}

}  // namespace gannet::sdk::detail

/// Writes the ELF note and exports the table. Use it once per shared object, at namespace scope:
///   GANNET_PLUGINS("optimizer/adam@cpu optimizer/adamw@cpu", GANNET_TIER_STABLE, descriptor, descriptor)
/// `provides_` names each descriptor as kind/name@device (no @device if that is ""), in lower case.
#define GANNET_PLUGINS(provides_, tier_, ...) GANNET_PLUGINS_THAT_NEED(0, provides_, tier_, __VA_ARGS__)
/// The same for plugins that require features of newer hosts: `features_` consists of bits of
/// gannet_note::required_features.
#define GANNET_PLUGINS_THAT_NEED(features_, provides_, tier_, ...)                                          \
  GANNET_PLUGIN_NOTE(tier_, features_, GANNET_FINGERPRINT, GANNET_VENDOR, provides_);                       \
  static GANNET_TABLE gannet_descriptor gannet_descriptors_[] = {__VA_ARGS__};                              \
  using GannetTable_ = gannet::sdk::detail::Table<sizeof(gannet_descriptors_) / sizeof(gannet_descriptor)>; \
  extern "C" {                                                                                              \
  __attribute__((visibility("default"))) extern const GannetTable_ GANNET_EXPORT_SYMBOL;                    \
  const GannetTable_ GANNET_EXPORT_SYMBOL = gannet::sdk::detail::table_of(gannet_descriptors_);             \
  }
