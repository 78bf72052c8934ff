#include "interfaces/optimizer.h"

#include <gannet/error.h>

#include "base/format.h"
#include "interfaces/call.h"

namespace gannet {
namespace {

// Far more than an optimizer has: beyond them the list is damaged.
constexpr uint64_t kMostStates = 64, kLargestStride = 4096;

const char* dtype_name(gannet_dtype dtype) {
  switch (dtype) {
    case GANNET_DTYPE_NONE:
      return "none";
    case GANNET_FLOAT32:
      return "fp32";
    case GANNET_FLOAT64:
      return "fp64";
    case GANNET_FLOAT16:
      return "fp16";
    case GANNET_BFLOAT16:
      return "bf16";
    case GANNET_INT8:
      return "int8";
    case GANNET_UINT8:
      return "uint8";
    case GANNET_INT16:
      return "int16";
    case GANNET_INT32:
      return "int32";
    case GANNET_INT64:
      return "int64";
    case GANNET_BOOL:
      return "bool";
  }
  return "unknown";
}

std::vector<Optimizer::State> read_states(const plugin::Plugin& plugin, const gannet_state_specs& specs) {
  const auto bad = [&](const std::string& reason) {
    throw plugin::fault(plugin, formatted("{}: {}", interfaces::who(plugin), reason));
  };
  if (specs.count > kMostStates) bad(formatted("it declares {} states, at most {} are possible", specs.count, kMostStates));
  if (specs.count > 0 && (!specs.specs || specs.stride < sizeof(gannet_state_spec) || specs.stride > kLargestStride))
    bad("its list of states is malformed");
  std::vector<Optimizer::State> states;
  for (uint64_t i = 0; i < specs.count; ++i) {
    const auto& spec = *reinterpret_cast<const gannet_state_spec*>(reinterpret_cast<const char*>(specs.specs) + i * specs.stride);
    if (!spec.name || !*spec.name) bad(formatted("its state number {} has no name", i));
    if (printable(spec.name) != spec.name)
      bad(formatted("its state '{}' has a control character in its name", printable(spec.name)));
    if (spec.dtype > GANNET_BOOL) bad(formatted("its state '{}' has an unknown dtype, {}", spec.name, spec.dtype));
    if (spec.extent < GANNET_STATE_PER_ELEMENT || spec.extent > GANNET_STATE_SCALAR)
      bad(formatted("its state '{}' has an unknown extent, {}", spec.name, spec.extent));
    for (const auto& other : states)
      if (other.name == spec.name) bad(formatted("it declares the state '{}' twice", other.name));
    states.push_back(
        {spec.name, static_cast<gannet_dtype>(spec.dtype), static_cast<gannet_state_extent>(spec.extent), spec.initial_value});
  }
  return states;
}

}  // namespace

Optimizer::Optimizer(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host)
    : plugin_(plugin), params_(std::move(params)), api_(interfaces::api_of<gannet_optimizer_api>(plugin)) {
  interfaces::call(plugin_, api_->create, host.table(), &params_.view(), &self_);
  try {
    gannet_state_specs specs{};
    specs.struct_size = sizeof(specs);
    interfaces::call(plugin_, api_->state_specs, self_, &specs);
    states_ = read_states(plugin_, specs);
  } catch (...) {
    api_->destroy(self_);
    throw;
  }
}

Optimizer::~Optimizer() { api_->destroy(self_); }

bool Optimizer::has(gannet_optimizer_capability capability) const { return (api_->capabilities & capability) != 0; }

uint64_t Optimizer::sums_per_tensor() const { return has(GANNET_OPTIMIZER_NEEDS_TENSOR_SUMS) ? api_->sums_per_tensor : 0; }

void Optimizer::require_support(gannet_dtype param, gannet_dtype grad, gannet_dtype out) const {
  plugin::ErrorBuffer error;
  const int32_t status =
      interfaces::walled(plugin_, api_->supports, self_, static_cast<uint32_t>(param), static_cast<uint32_t>(grad),
                         static_cast<uint32_t>(out), static_cast<gannet_error*>(error));
  if (status == GANNET_OK) return;
  plugin::raise_unless_ok(
      status, error, plugin_,
      formatted("{} does not take a {} parameter with a {} gradient and {}", interfaces::who(plugin_), dtype_name(param),
                dtype_name(grad), out == GANNET_DTYPE_NONE ? "no copy" : formatted("a {} copy", dtype_name(out))));
}

void Optimizer::update(const gannet_update_args& args) {
  if (!api_->update)
    throw Error(ErrorCode::kUnsupported,
                formatted("{} works with tensor sums and has no plain update", interfaces::who(plugin_)));
  interfaces::call(plugin_, api_->update, self_, &args);
}

void Optimizer::partials(const gannet_update_args& args, double* sums) {
  if (!api_->partials)
    throw Error(ErrorCode::kUnsupported, formatted("{} does not work with tensor sums", interfaces::who(plugin_)));
  interfaces::call(plugin_, api_->partials, self_, &args, sums);
}

void Optimizer::apply(const gannet_update_args& args, const double* sums) {
  if (!api_->apply)
    throw Error(ErrorCode::kUnsupported, formatted("{} does not work with tensor sums", interfaces::who(plugin_)));
  interfaces::call(plugin_, api_->apply, self_, &args, sums);
}

}  // namespace gannet
