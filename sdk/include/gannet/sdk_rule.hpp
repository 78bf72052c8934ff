/// The inputs of an element-wise rule in a step, and the optimizer that runs the rule. Part of
/// gannet/sdk_elementwise.hpp.
#pragma once

#include <gannet/abi.h>

#include <cmath>
#include <cstddef>
#include <gannet/sdk.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace gannet::rules {

// The number type of a rule: T of Rule<T>, or its member type Number.
template <class Rule>
struct RuleNumber {
  using type = typename Rule::Number;
};
template <template <class> class Rule, class T>
struct RuleNumber<Rule<T>> {
  using type = T;
};

}  // namespace gannet::rules

namespace gannet::sdk {

/// The config's values for a plugin's params, kept as long as the plugin's object exists.
class RuleParams {
 public:
  RuleParams(const gannet_param_spec* specs, size_t count, const Params& params) {
    uint64_t dynamic = 0;
    for (size_t i = 0; i < count; ++i) {
      const std::string_view name = specs[i].name;
      Value value{name, params.has(name), params.given(name), {}, "", kStatic};
      if (specs[i].type == GANNET_PARAM_FLOAT_LIST) value.list = params.numbers(name);
      if (specs[i].type == GANNET_PARAM_FLOAT || specs[i].type == GANNET_PARAM_INT) value.list = {params.number(name)};
      if (specs[i].type == GANNET_PARAM_BOOL) value.list = {params.boolean(name) ? 1.0 : 0.0};
      if (specs[i].type == GANNET_PARAM_STRING) value.text = params.text(name);
      if (specs[i].flags & GANNET_PARAM_DYNAMIC) {
        value.first_hyper = dynamic;
        dynamic += specs[i].type == GANNET_PARAM_FLOAT_LIST ? specs[i].length : 1;
      }
      values_.push_back(std::move(value));
    }
  }

  bool has(std::string_view name) const { return find(name).is_set; }
  bool given(std::string_view name) const { return find(name).is_given; }
  bool flag(std::string_view name) const { return number(name) != 0; }
  const std::string& text(std::string_view name) const { return find(name).text; }
  /// The value in the config; see Step for the current value of a dynamic parameter.
  double number(std::string_view name, size_t i = 0) const { return at(find(name), i); }
  /// The value in the step that `args` describes.
  double number_in(const gannet_update_args& args, std::string_view name, size_t i) const {
    const Value& value = find(name);
    return value.first_hyper == kStatic ? at(value, i) : args.hyper[value.first_hyper + i];
  }

 private:
  static constexpr uint64_t kStatic = ~uint64_t{0};
  struct Value {
    std::string_view name;
    bool is_set, is_given;
    std::vector<double> list;  // one element for a number or a flag
    std::string text;
    uint64_t first_hyper;  // index in gannet_update_args::hyper; kStatic if not dynamic
  };
  static double at(const Value& value, size_t i) { return i < value.list.size() ? value.list[i] : 0; }
  const Value& find(std::string_view name) const {
    for (const Value& value : values_)
      if (value.name == name) return value;
    throw Failure(GANNET_INTERNAL, "the rule asks for '" + std::string(name) + "', which its kParams do not declare");
  }
  std::vector<Value> values_;
};

/// One step's params as doubles, by their names in kParams: `step("lr")`, `step("betas", 1)`,
/// `step.flag("nesterov")`.
class Step {
 public:
  Step(const RuleParams& params, const gannet_update_args& args) : params_(params), args_(args) {}
  double operator()(std::string_view name, size_t i = 0) const { return params_.number_in(args_, name, i); }
  bool flag(std::string_view name) const { return params_.flag(name); }
  const std::string& text(std::string_view name) const { return params_.text(name); }
  bool given(std::string_view name) const { return params_.given(name); }
  const RuleParams& params() const { return params_; }
  /// Number of updates of these elements, including this one: 1 for the first.
  uint64_t count() const { return args_.step; }
  /// The value of a SCALAR state, by its index among the states, as begin_step or end_step left it.
  template <class T>
  T kept(uint64_t state) const {
    return *static_cast<const T*>(args_.states[state]);
  }
  /// 1 - beta^count(), the divisor for a moving average that was initialised to zero.
  double bias_correction(double beta) const { return 1 - std::pow(beta, static_cast<double>(count())); }

 private:
  const RuleParams& params_;
  const gannet_update_args& args_;
};

/// Whether the loops support these types: fp32 masters with fp32 or 16-bit gradients and an
/// optional 16-bit copy, or fp64 masters with fp64 gradients and no copy.
inline bool elementwise_supports(uint32_t param, uint32_t grad, uint32_t out) {
  const bool half_out = out == GANNET_DTYPE_NONE || out == GANNET_BFLOAT16 || out == GANNET_FLOAT16;
  const bool float_grad = grad == GANNET_FLOAT32 || grad == GANNET_BFLOAT16 || grad == GANNET_FLOAT16;
  return (param == GANNET_FLOAT32 && float_grad && half_out) ||
         (param == GANNET_FLOAT64 && grad == GANNET_FLOAT64 && out == GANNET_DTYPE_NONE);
}

/// Each thread's chunk is a multiple of this many elements (except the last one), so that it covers
/// whole pages of every buffer.
inline constexpr uint64_t kGrain = 16384;

namespace detail {

// Number of states of a rule: the extent of its kStates, or 0 if it has none. (sizeof is used
// because it makes the compiler complete the array type in a template.)
template <class Rule, class = void>
struct StateCount : std::integral_constant<size_t, 0> {};
template <class Rule>
struct StateCount<Rule, std::void_t<decltype(Rule::kStates)>>
    : std::integral_constant<size_t, sizeof(Rule::kStates) / sizeof(Rule::kStates[0])> {};
template <class Rule>
inline constexpr size_t kStateCount = StateCount<Rule>::value;

inline gannet_state_spec to_state(const char* name) { return state(name); }
inline gannet_state_spec to_state(const gannet_state_spec& spec) { return spec; }

template <class Rule>
std::vector<gannet_state_spec> states_of_rule() {
  std::vector<gannet_state_spec> states;
  if constexpr (kStateCount < Rule >> 0)
    for (const auto& each : Rule::kStates) states.push_back(to_state(each));
  return states;
}

// Whether a type has `states(const RuleParams&)`, and `check(const RuleParams&, const HostServices&)`.
template <class Type, class = void>
struct HasStates : std::false_type {};
template <class Type>
struct HasStates<Type, std::void_t<decltype(Type::states(std::declval<const RuleParams&>()))>> : std::true_type {};
template <class Type, class = void>
struct HasCheck : std::false_type {};
template <class Type>
struct HasCheck<Type, std::void_t<decltype(Type::check(std::declval<const RuleParams&>(), std::declval<const HostServices&>()))>>
    : std::true_type {};

/// The optimizer of an element-wise rule. `Family` has kParams and with_rule; `Kernel` has
/// update(), compiled for a device.
template <class Family, class Kernel>
class ElementwiseOptimizer : public OptimizerBase {
 public:
  static constexpr const auto& kParams = Family::kParams;
  ElementwiseOptimizer(const gannet_host& host, const Params& params)
      : OptimizerBase(host, params), params_(kParams, sizeof(kParams) / sizeof(kParams[0]), params) {
    if constexpr (HasCheck<Family>::value) Family::check(params_, *this);
  }
  std::vector<gannet_state_spec> states() const { return Family::states(params_); }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const { return elementwise_supports(param, grad, out); }
  void update(const gannet_update_args& args) { Kernel::update(*this, Step(params_, args), args); }

 protected:
  const RuleParams& params() const { return params_; }

 private:
  RuleParams params_;
};

}  // namespace detail

// ---- Params that many rules have ----------------------------------------------------------------------------------------

/// The decay rates of the two moments, "betas": [beta1, beta2], each in [0, 1).
constexpr gannet_param_spec betas(const char* default_json) {
  return role<GANNET_ROLE_BETA1, GANNET_ROLE_BETA2>(
      below(at_least(dynamic_numbers("betas", 2, default_json, "decay rates of the two moments"), 0), 1));
}
/// Weight decay, momentum and eps must be at least 0, as in torch.optim.
constexpr gannet_param_spec weight_decay(const char* default_json = "0.0", const char* doc = "weight decay") {
  return role<GANNET_ROLE_WEIGHT_DECAY>(at_least(dynamic_number("weight_decay", default_json, doc), 0));
}
constexpr gannet_param_spec momentum(const char* default_json, const char* doc = "momentum factor") {
  return role<GANNET_ROLE_MOMENTUM>(at_least(dynamic_number("momentum", default_json, doc), 0));
}
constexpr gannet_param_spec eps(const char* default_json) {
  return at_least(number("eps", default_json, "added to the denominator"), 0);
}
/// A parameter that DeepSpeed's optimizers declare but expect to be unset; refuse_max_grad_norm
/// names the key that sets clipping.
constexpr gannet_param_spec max_grad_norm() {
  return number("max_grad_norm", nullptr, "refused: gradient_clipping does this", GANNET_PARAM_NULLABLE);
}
inline void refuse_max_grad_norm(const RuleParams& params) {
  if (params.has("max_grad_norm"))
    throw Failure(GANNET_INVALID_ARGUMENT,
                  "'max_grad_norm' is not a parameter of the optimizer: set 'gradient_clipping' at the top level of the config");
}

}  // namespace gannet::sdk
