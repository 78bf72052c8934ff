/// Declares the parameters of a plugin's section of the config, and reads their values. Part of
/// gannet/sdk.hpp.
///
///   static constexpr gannet_param_spec kParams[] = {
///       gannet::sdk::above(gannet::sdk::dynamic_number("lr", "1e-3", "learning rate"), 0),
///       gannet::sdk::dynamic_numbers("betas", 2, "[0.9, 0.999]", "decay rates of the averages")};
///   explicit Rule(const gannet::sdk::Params& params) : betas(params.numbers("betas")) {}
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <gannet/sdk_errors.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace gannet::sdk {

constexpr gannet_param_spec param(gannet_param_type type, const char* name, const char* default_json, const char* doc,
                                  uint32_t flags = 0) {
  gannet_param_spec spec{};
  spec.struct_size = sizeof(gannet_param_spec);
  spec.type = type;
  spec.flags = flags;
  spec.name = name;
  spec.doc = doc;
  spec.default_json = default_json;
  return spec;
}
/// A parameter with a null `default_json` and no REQUIRED flag is optional; see Params::has.
constexpr gannet_param_spec boolean(const char* name, const char* default_json, const char* doc, uint32_t flags = 0) {
  return param(GANNET_PARAM_BOOL, name, default_json, doc, flags);
}
constexpr gannet_param_spec integer(const char* name, const char* default_json, const char* doc, uint32_t flags = 0) {
  return param(GANNET_PARAM_INT, name, default_json, doc, flags);
}
constexpr gannet_param_spec number(const char* name, const char* default_json, const char* doc, uint32_t flags = 0) {
  return param(GANNET_PARAM_FLOAT, name, default_json, doc, flags);
}
/// `choices` are separated by '|'. A default is JSON, with quotes of its own:
/// text("mode", "\"plain\"", "plain|nesterov", "the kind of momentum").
constexpr gannet_param_spec text(const char* name, const char* default_json, const char* choices, const char* doc,
                                 uint32_t flags = 0) {
  auto spec = param(GANNET_PARAM_STRING, name, default_json, doc, flags);
  spec.choices = choices;
  return spec;
}
/// Without choices, any text: the doc is third, as elsewhere.
constexpr gannet_param_spec text(const char* name, const char* default_json, const char* doc) {
  return text(name, default_json, nullptr, doc);
}
/// A `length` of 0 allows any number of elements.
constexpr gannet_param_spec numbers(const char* name, uint32_t length, const char* default_json, const char* doc,
                                    uint32_t flags = 0) {
  auto spec = param(GANNET_PARAM_FLOAT_LIST, name, default_json, doc, flags);
  spec.length = length;
  return spec;
}
constexpr gannet_param_spec integers(const char* name, uint32_t length, const char* default_json, const char* doc,
                                     uint32_t flags = 0) {
  auto spec = param(GANNET_PARAM_INT_LIST, name, default_json, doc, flags);
  spec.length = length;
  return spec;
}
constexpr gannet_param_spec texts(const char* name, uint32_t length, const char* default_json, const char* choices,
                                  const char* doc, uint32_t flags = 0) {
  auto spec = param(GANNET_PARAM_STRING_LIST, name, default_json, doc, flags);
  spec.length = length;
  spec.choices = choices;
  return spec;
}
constexpr gannet_param_spec dynamic_number(const char* name, const char* default_json, const char* doc) {
  return number(name, default_json, doc, GANNET_PARAM_DYNAMIC);
}
constexpr gannet_param_spec dynamic_numbers(const char* name, uint32_t length, const char* default_json, const char* doc) {
  return numbers(name, length, default_json, doc, GANNET_PARAM_DYNAMIC);
}
namespace detail {
template <uint32_t... kRoles>
inline constexpr uint32_t kRoleList[] = {kRoles...};
}
/// Sets the role of a dynamic parameter; schedules find it by role, whatever its name is:
/// role<GANNET_ROLE_LEARNING_RATE>(dynamic_number("lr", ...)). A list has one role per number:
/// role<GANNET_ROLE_BETA1, GANNET_ROLE_BETA2>(dynamic_numbers("betas", 2, ...)).
template <uint32_t... kRoles>
constexpr gannet_param_spec role(gannet_param_spec spec) {
  static_assert(sizeof...(kRoles) > 0);
  spec.roles = detail::kRoleList<kRoles...>;
  return spec;
}
constexpr gannet_param_spec at_least(gannet_param_spec spec, double minimum) {
  spec.flags |= GANNET_PARAM_HAS_MIN;
  spec.min = minimum;
  return spec;
}
constexpr gannet_param_spec above(gannet_param_spec spec, double minimum) {
  spec.flags |= GANNET_PARAM_HAS_MIN | GANNET_PARAM_MIN_EXCLUSIVE;
  spec.min = minimum;
  return spec;
}
constexpr gannet_param_spec at_most(gannet_param_spec spec, double maximum) {
  spec.flags |= GANNET_PARAM_HAS_MAX;
  spec.max = maximum;
  return spec;
}
constexpr gannet_param_spec below(gannet_param_spec spec, double maximum) {
  spec.flags |= GANNET_PARAM_HAS_MAX | GANNET_PARAM_MAX_EXCLUSIVE;
  spec.max = maximum;
  return spec;
}

/// The learning rate must be at least 0, as in torch.optim.
constexpr gannet_param_spec learning_rate(const char* default_json, const char* name = "lr") {
  return role<GANNET_ROLE_LEARNING_RATE>(at_least(dynamic_number(name, default_json, "learning rate"), 0));
}

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

/// The parsed parameters, by name. Asking for a name that was not declared is a bug in the plugin,
/// and throws.
class Params {
 public:
  explicit Params(const gannet_params& params) : params_(&params) {}

  bool has(std::string_view name) const { return find(name).is_set != 0; }
  bool given(std::string_view name) const { return find(name).is_given != 0; }
  bool boolean(std::string_view name) const { return find(name).integer != 0; }
  int64_t integer(std::string_view name) const { return find(name).integer; }
  double number(std::string_view name) const { return find(name).number; }
  std::string text(std::string_view name) const {
    const auto& value = find(name);
    return value.string ? value.string : "";
  }
  std::vector<double> numbers(std::string_view name) const {
    const auto& value = find(name);
    return std::vector<double>(value.list, value.list + value.list_count);
  }
  std::vector<int64_t> integers(std::string_view name) const {
    const auto& value = find(name);
    return std::vector<int64_t>(value.integers, value.integers + value.list_count);
  }
  std::vector<std::string> texts(std::string_view name) const {
    const auto& value = find(name);
    return std::vector<std::string>(value.strings, value.strings + value.list_count);
  }

 private:
  const gannet_param_value& find(std::string_view name) const {
    auto* bytes = reinterpret_cast<const char*>(params_->values);
    for (uint64_t i = 0; i < params_->count; ++i) {
      auto* value = reinterpret_cast<const gannet_param_value*>(bytes + i * params_->stride);
      if (name == value->name) return *value;
    }
    throw Failure(GANNET_INTERNAL, "parameter '" + std::string(name) + "' is not declared by this plugin");
  }

  const gannet_params* params_;
};

/// Throws if the config sets "max_grad_norm", which max_grad_norm() declares. For Params and
/// RuleParams.
template <class AnyParams>
void refuse_max_grad_norm(const AnyParams& params) {
  if (params.has("max_grad_norm"))
    throw Failure(GANNET_INVALID_ARGUMENT,
                  "'max_grad_norm' is not a parameter of the optimizer: set 'gradient_clipping' at the top level of the config");
}

}  // namespace gannet::sdk
