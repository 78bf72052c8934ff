#include "update/torch_rule.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <torch/optim/optimizer.h>
#include <torch/version.h>

#include <algorithm>
#include <gannet/sdk_errors.hpp>
#include <gannet/sdk_optimizer.hpp>
#include <map>
#include <mutex>

#include "tensor/dtype.h"

namespace gannet {
namespace {

// The number of elements per step(), which makes several temporary tensors of this size: they fit
// in caches. It is a multiple of every vector length, so that a cut does not change any bit.
constexpr uint64_t kStepNumel = 1 << 18;

// The object behind the function table.
class TorchRule {
 public:
  explicit TorchRule(TorchRuleOptions options) : options_(std::move(options)), stepper_(options_.type.make_optimizer()) {
    auto& set = options_.program->param_groups()[options_.group].options();
    for (const auto* state : options_.kept)
      specs_.push_back(sdk::state(state->name, GANNET_STATE_PER_ELEMENT, GANNET_DTYPE_NONE, options_.type.first_value(set)));
  }

  void describe(gannet_optimizer_description& description) const {
    description.capabilities = GANNET_OPTIMIZER_ELEMENTWISE;
    description.states = specs_.data();
    description.state_count = specs_.size();
    description.state_stride = sizeof(gannet_state_spec);
  }

  // Copies the options of the program's param group, with the numeric ones replaced by the values
  // that the ranks have agreed on.
  void begin_step(const gannet_step_args& args) {
    auto set = options_.program->param_groups()[options_.group].options().clone();
    for (size_t i = 0; i < options_.type.numbers.size(); ++i) options_.type.numbers[i].in(*set) = args.hyper[i];
    stepper_->param_groups()[0].set_options(std::move(set));
  }

  void update(const gannet_update_args& args) {
    for (uint64_t begin = 0; begin < args.numel; begin += kStepNumel)
      step(args, static_cast<int64_t>(begin), static_cast<int64_t>(std::min(kStepNumel, args.numel - begin)));
  }

 private:
  void step(const gannet_update_args& args, int64_t begin, int64_t numel) {
    const auto view = [&](const void* data, uint32_t dtype) {
      const at::ScalarType type = to_scalar_type(static_cast<gannet_dtype>(dtype));
      char* const first = static_cast<char*>(const_cast<void*>(data)) + begin * static_cast<int64_t>(c10::elementSize(type));
      return at::from_blob(first, {numel}, at::TensorOptions().dtype(type).device(options_.device));
    };
    at::Tensor param = view(args.param, args.param_dtype);
    param.mutable_grad() = gradient(view(args.grad, args.grad_dtype), param.scalar_type(), args.grad_scale);
    stepper_->param_groups()[0].params() = {param};
    auto& states = stepper_->state();
    states.clear();
    const auto array = [&](size_t s) { return view(args.states[s], args.param_dtype); };
    if (!options_.kept.empty() && !(options_.type.first_step_makes_states && args.step == 1)) {
      auto own = options_.type.make_state();
      for (size_t s = 0; s < options_.kept.size(); ++s) options_.kept[s]->in(*own) = array(s);
      if (options_.type.step) options_.type.step(*own) = static_cast<int64_t>(args.step) - 1;
      states[param.unsafeGetTensorImpl()] = std::move(own);
    }
    stepper_->step();
    // Copies states that step() has made or replaced.
    if (const auto made = states.find(param.unsafeGetTensorImpl()); made != states.end())
      for (size_t s = 0; s < options_.kept.size(); ++s) {
        const at::Tensor &found = options_.kept[s]->in(*made->second), into = array(s);
        if (found.defined() && found.const_data_ptr() != into.const_data_ptr()) into.copy_(found);
      }
    if (args.out) view(args.out, args.out_dtype).copy_(param);
    states.clear();
    stepper_->param_groups()[0].params().clear();
  }

  // Converts before scaling: small values of a scaled fp16 gradient would be lost in fp16.
  static at::Tensor gradient(const at::Tensor& given, at::ScalarType dtype, double scale) {
    const at::Tensor converted = given.to(dtype);
    if (scale == 1.0) return converted;
    return converted.is_same(given) ? given.mul(scale) : converted.mul_(scale);  // `given` is never written
  }

  const TorchRuleOptions options_;
  std::unique_ptr<torch::optim::Optimizer> stepper_;
  std::vector<gannet_state_spec> specs_;
};

// Reports LibTorch's errors without their C++ stack.
template <class Body>
int32_t guarded(gannet_error* error, const Body& body) noexcept {
  return sdk::guarded(error, [&] {
    try {
      body();
    } catch (const c10::Error& failure) {
      const std::string text = failure.what_without_backtrace();
      const bool is_memory = dynamic_cast<const c10::OutOfMemoryError*>(&failure) != nullptr ||
                             text.find("DefaultCPUAllocator") != std::string::npos;
      throw sdk::Failure(is_memory ? GANNET_OUT_OF_MEMORY : GANNET_INTERNAL, text);
    }
  });
}

bool is_floating(uint32_t dtype) {
  return dtype == GANNET_FLOAT32 || dtype == GANNET_FLOAT64 || dtype == GANNET_FLOAT16 || dtype == GANNET_BFLOAT16;
}

constexpr gannet_optimizer_api kApi = [] {
  gannet_optimizer_api api{};
  api.struct_size = sizeof(api);
  api.destroy = [](void* self) { delete static_cast<TorchRule*>(self); };
  api.describe = [](void* self, const gannet_optimizer_context*, gannet_optimizer_description* description,
                    gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<TorchRule*>(self)->describe(*description); });
  };
  api.supports = [](void*, uint32_t param, uint32_t grad, uint32_t out, gannet_error* error) -> int32_t {
    return guarded(error, [&] {
      if (!is_floating(param) || !is_floating(grad) || (out != GANNET_DTYPE_NONE && !is_floating(out)))
        throw sdk::Failure(GANNET_UNSUPPORTED, "it takes floating-point types");
      if ((param == GANNET_BFLOAT16 || param == GANNET_FLOAT16) && out == GANNET_DTYPE_NONE)
        throw sdk::Failure(GANNET_UNSUPPORTED, "it would round small updates of 16-bit parameters away");
    });
  };
  api.begin_step = [](void* self, const gannet_step_args* args, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<TorchRule*>(self)->begin_step(*args); });
  };
  api.update = [](void* self, const gannet_update_args* args, gannet_error* error) -> int32_t {
    return guarded(error, [&] { static_cast<TorchRule*>(self)->update(*args); });
  };
  return api;
}();

// Holds what a plugin's file would declare about itself. Lives as long as the process, as plugins
// do.
struct RuleDescription {
  std::vector<gannet_param_spec> params;
  gannet_descriptor descriptor{};
  plugin::Plugin plugin;
};

const plugin::Plugin& plugin_of(const TorchType& type) {
  static auto& mutex = *new std::mutex;
  static auto& all = *new std::map<const TorchType*, RuleDescription>;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = all.try_emplace(&type);
  RuleDescription& one = found->second;
  if (!is_new) return one.plugin;
  for (const auto& number : type.numbers) {
    gannet_param_spec spec = sdk::param(GANNET_PARAM_FLOAT, number.name, nullptr, "of the program's object",
                                        GANNET_PARAM_DYNAMIC | GANNET_PARAM_REQUIRED);
    spec.roles = &number.role;
    spec = sdk::at_least(spec, 0);  // LibTorch's constructors reject other values as well
    if (number.role == GANNET_ROLE_BETA1 || number.role == GANNET_ROLE_BETA2) spec = sdk::below(spec, 1);
    one.params.push_back(spec);
  }
  one.descriptor.struct_size = sizeof(gannet_descriptor);
  one.descriptor.abi_major = GANNET_ABI_MAJOR;
  one.descriptor.abi_minor = GANNET_TARGET_MINOR;
  one.descriptor.magic = GANNET_MAGIC;
  one.descriptor.kind = GANNET_KIND_OPTIMIZER;
  one.descriptor.tier = GANNET_TIER_PINNED;
  one.descriptor.name = type.name;
  one.descriptor.device = "";
  one.descriptor.version = TORCH_VERSION;
  one.descriptor.fingerprint = "";
  one.descriptor.doc = "LibTorch's, made by the program";
  one.descriptor.params = one.params.data();
  one.descriptor.param_count = one.params.size();
  one.descriptor.param_stride = sizeof(gannet_param_spec);
  one.descriptor.api = &kApi;
  one.plugin = {&one.descriptor, "the program's own", ""};
  return one.plugin;
}

}  // namespace

std::unique_ptr<Optimizer> make_torch_rule(TorchRuleOptions options) {
  const plugin::Plugin& plugin = plugin_of(options.type);
  auto& set = options.program->param_groups()[options.group].options();
  Dict numbers;
  for (const auto& number : options.type.numbers) numbers[number.name] = number.in(set);
  auto rule = std::make_unique<TorchRule>(std::move(options));
  auto params = plugin::parse_params(plugin, numbers, [](const std::string&) { return "the program's own optimizer"; });
  return std::make_unique<Optimizer>(plugin, std::move(params), rule.release());
}

}  // namespace gannet
