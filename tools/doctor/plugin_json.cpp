#include "doctor/plugin_json.h"

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "doctor/plugin_info.h"
#include "interfaces/optimizer.h"
#include "plugin/schema.h"

namespace gannet::doctor {
namespace {

using plugin::Plugin;

Value text_or_null(const char* text) { return text ? Value(printable(text)) : Value(); }

const char* dtype_name(uint32_t dtype) {
  constexpr const char* kNames[] = {"master", "fp32", "fp64", "fp16", "bf16", "int8", "uint8", "int16", "int32", "int64", "bool"};
  return dtype <= GANNET_BOOL ? kNames[dtype] : "unknown";
}

Value json_of(const gannet_param_spec& spec) {
  List roles;
  for (uint32_t i = 0; spec.roles && i < std::max(spec.length, 1u); ++i) roles.push_back(plugin::role_name(spec.roles[i]));
  return Dict{{"name", spec.name},
              {"type", plugin::type_text(spec)},
              {"range", plugin::range_text(spec)},
              {"default", text_or_null(spec.default_json)},
              {"doc", text_or_null(spec.doc)},
              {"required", (spec.flags & GANNET_PARAM_REQUIRED) != 0},
              {"nullable", (spec.flags & GANNET_PARAM_NULLABLE) != 0},
              {"dynamic", (spec.flags & GANNET_PARAM_DYNAMIC) != 0},
              {"deprecated", (spec.flags & GANNET_PARAM_DEPRECATED) != 0},
              {"roles", std::move(roles)}};
}

// The master types that the optimizer accepts with gradients of the same type: "fp32", "fp64".
List masters_of(const Optimizer& optimizer) {
  List masters;
  for (const gannet_dtype dtype : {GANNET_FLOAT32, GANNET_FLOAT64, GANNET_BFLOAT16, GANNET_FLOAT16}) {
    try {
      optimizer.require_support(dtype, dtype, GANNET_DTYPE_NONE);
      masters.push_back(dtype_name(dtype));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
    }
  }
  return masters;
}

Value description_of(const Plugin& plugin) {
  constexpr const char* kExtents[] = {"",      "element",    "tensor",        "group",      "row",          "column",
                                      "block", "row square", "column square", "row factor", "column factor"};
  constexpr const char* kScopes[] = {"", "tensor", "group", "model", "row", "column"};
  try {
    const Host host;
    Optimizer optimizer(plugin, plugin::parse_params(plugin, {}, {}), host);
    optimizer.describe({});
    List states, sums;
    for (const auto& state : optimizer.states())
      states.push_back(
          Dict{{"name", printable(state.name)},
               {"dtype", state.dtype == GANNET_DTYPE_NONE && state.extent != GANNET_STATE_PER_ELEMENT ? dtype_name(GANNET_FLOAT32)
                                                                                                      : dtype_name(state.dtype)},
               {"per", kExtents[state.extent]},
               {"block", static_cast<int64_t>(state.block)},
               {"from_parameter", state.has(GANNET_STATE_FROM_PARAMETER)}});
    for (const auto& sum : optimizer.sums())
      sums.push_back(Dict{{"of", kScopes[sum.scope]}, {"round", static_cast<int64_t>(sum.round)}});
    return Dict{{"whole_tensors", optimizer.needs_whole_tensors()},
                {"evaluation_weights", optimizer.has_evaluation_weights()},
                {"reduces_gradients", optimizer.has(GANNET_OPTIMIZER_OWNS_GRAD_REDUCTION)},
                {"range_alignment", static_cast<int64_t>(optimizer.range_alignment())},
                {"states", std::move(states)},
                {"sums", std::move(sums)},
                {"masters", masters_of(optimizer)}};
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Value plugin_json(const Plugin& plugin) {
  const gannet_descriptor& descriptor = *plugin.descriptor;
  List params;
  for (const auto* spec : plugin::specs_of(descriptor)) params.push_back(json_of(*spec));
  Dict all{{"kind", plugin::kind_name(plugin.kind())},
           {"name", plugin.name()},
           {"version", plugin.version()},
           {"doc", text_or_null(descriptor.doc)},
           {"device", plugin.device()},
           {"tier", tier_name(descriptor.tier)},
           {"abi", formatted("{}.{}", descriptor.abi_major, descriptor.abi_minor)},
           {"file", printable(plugin.file)},
           {"hash", plugin.hash},
           {"params", std::move(params)}};
  if (plugin.kind() == GANNET_KIND_OPTIMIZER) all["description"] = description_of(plugin);
  return all;
}

}  // namespace gannet::doctor
