/// The inputs of an element-wise rule in a step, and the optimizer that runs the rule. Part of
/// gannet/sdk_elementwise.hpp.
#pragma once

#include <gannet/abi.h>

#include <cmath>
#include <cstddef>
#include <gannet/sdk.hpp>
#include <gannet/sdk_float16.hpp>
#include <gannet/sdk_random.hpp>
#include <gannet/sdk_rule_traits.hpp>
#include <gannet/sdk_sums.hpp>
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
      Value value{name, params.has(name), params.given(name), {}, "", kStatic, 1};
      if (specs[i].type == GANNET_PARAM_FLOAT_LIST) value.list = params.numbers(name);
      if (specs[i].type == GANNET_PARAM_FLOAT || specs[i].type == GANNET_PARAM_INT) value.list = {params.number(name)};
      if (specs[i].type == GANNET_PARAM_BOOL) value.list = {params.boolean(name) ? 1.0 : 0.0};
      if (specs[i].type == GANNET_PARAM_STRING) value.text = params.text(name);
      if (specs[i].type == GANNET_PARAM_FLOAT_LIST) value.count = specs[i].length == 0 ? kAnyCount : specs[i].length;
      if (specs[i].type == GANNET_PARAM_STRING) value.count = 0;
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
  double number(std::string_view name, size_t i = 0) const { return at(find_number(name, i), i); }
  double number_in(const gannet_update_args& args, std::string_view name, size_t i) const {
    return number_in(args.hyper, name, i);
  }
  /// The value in a step with these dynamic parameters.
  double number_in(const double* hyper, std::string_view name, size_t i) const {
    const Value& value = find_number(name, i);
    return value.first_hyper == kStatic ? at(value, i) : hyper[value.first_hyper + i];
  }

 private:
  static constexpr uint64_t kStatic = ~uint64_t{0}, kAnyCount = ~uint64_t{0};
  struct Value {
    std::string_view name;
    bool is_set, is_given;
    std::vector<double> list;  // one element for a number or a flag
    std::string text;
    uint64_t first_hyper;  // index in gannet_update_args::hyper; kStatic if not dynamic
    uint64_t count;        // numbers that kParams declares; kAnyCount for a list of any length
  };
  static double at(const Value& value, size_t i) { return i < value.list.size() ? value.list[i] : 0; }
  const Value& find(std::string_view name) const {
    for (const Value& value : values_)
      if (value.name == name) return value;
    throw Failure(GANNET_INTERNAL, "the rule asks for '" + std::string(name) + "', which its kParams do not declare");
  }
  const Value& find_number(std::string_view name, size_t i) const {
    const Value& value = find(name);
    if (i < value.count) return value;
    throw Failure(GANNET_INTERNAL,
                  "the rule asks for number " + std::to_string(i) + " of '" + std::string(name) + "', which has " +
                      (value.count == 0 ? "none: text() reads it" : std::to_string(value.count) + " (the first is number 0)"));
  }
  std::vector<Value> values_;
};

/// One step's params as doubles, by their names in kParams: `step("lr")`, `step("betas", 1)`,
/// `step.flag("nesterov")`.
class Step {
 public:
  /// `segment` is the index of the tensor's part in the piece, for rules that look at tensors.
  Step(const RuleParams& params, const gannet_update_args& args, uint64_t segment = kNoSegment)
      : params_(params), args_(args), segment_(segment) {}
  double operator()(std::string_view name, size_t i = 0) const { return params_.number_in(args_.hyper, name, i); }
  bool flag(std::string_view name) const { return params_.flag(name); }
  const std::string& text(std::string_view name) const { return params_.text(name); }
  bool given(std::string_view name) const { return params_.given(name); }
  const RuleParams& params() const { return params_; }
  /// Number of updates of these elements, including this one: 1 for the first. In evaluate(), the
  /// number so far.
  uint64_t count() const { return args_.step; }
  /// The last value that begin_step or end_step set for a SCALAR state or, with `tensor`
  /// (tensor().tensor_index), for a PER_TENSOR state. `state` is the index among the states. T is
  /// the state's type: double for GANNET_FLOAT64, float for the default.
  template <class T>
  T kept(uint64_t state, uint64_t tensor = 0) const {
    return static_cast<const T*>(args_.states[state])[tensor];
  }
  /// 1 - beta^count(), the divisor for a moving average that was initialised to zero.
  double bias_correction(double beta) const { return 1 - std::pow(beta, static_cast<double>(count())); }
  /// The sum with this index in kSums, from the rounds so far; 0 in evaluate(), which has no sums.
  double sum(uint64_t i) const {
    const uint64_t tensor = tensor_index();
    if (args_.sums == nullptr) return 0;
    if (i >= args_.sum_count) throw Failure(GANNET_INTERNAL, "the rule asks for a sum that is not in its kSums");
    return args_.sums[tensor * args_.sum_count + i];
  }
  /// The tensor with these elements: its shape, name and seed. For rules that have kSums,
  /// kUsesSeed or kByTensor.
  const gannet_segment& tensor() const { return segment(args_, tensor_index()); }
#if GANNET_TARGET_MINOR >= 4
  /// The step's loss, for rules with kUsesLoss, and the run's planned number of updates (0: unknown).
  double loss() const { return args_.loss; }
  uint64_t total_steps() const { return args_.total_steps; }
#endif
  const gannet_update_args& args() const { return args_; }

  static constexpr uint64_t kNoSegment = ~uint64_t{0};

 private:
  uint64_t tensor_index() const {
    if (segment_ != kNoSegment) return segment_;
    throw Failure(GANNET_INTERNAL,
                  "the rule asks for its tensor or a sum, but declares neither kSums nor kUsesSeed nor kByTensor");
  }
  const RuleParams& params_;
  const gannet_update_args& args_;
  uint64_t segment_;
};

/// A step of the whole group, in a rule's begin_step and end_step: its params, sums, and the states
/// that are kept once per group (SCALAR) or per tensor.
class GroupStep {
 public:
  GroupStep(const HostServices& host, const RuleParams& params, const gannet_step_args& args)
      : host_(host), params_(params), args_(args) {}
  double operator()(std::string_view name, size_t i = 0) const { return params_.number_in(args_.hyper, name, i); }
  const RuleParams& params() const { return params_; }
  uint64_t count() const { return args_.step; }
  double bias_correction(double beta) const { return 1 - std::pow(beta, static_cast<double>(count())); }
  uint64_t tensors() const { return args_.tensor_count; }
  /// The sum with this index in kSums; 0 in begin_step. Sums of the group and of the model are the
  /// same for every tensor.
  double sum(uint64_t i, uint64_t tensor = 0) const {
    return args_.sums == nullptr || args_.tensor_count == 0 ? 0 : args_.sums[tensor * args_.sum_count + i];
  }
  /// The value of a SCALAR state or, for `tensor`, of a PER_TENSOR state. `state` is its index.
  template <class T>
  T& kept(uint64_t state, uint64_t tensor = 0) const {
    return static_cast<T*>(args_.states[state])[tensor];
  }
#if GANNET_TARGET_MINOR >= 4
  double loss() const { return args_.loss; }
  uint64_t total_steps() const { return args_.total_steps; }
#endif
  /// The log, the ranks, collectives and metrics.
  const HostServices& host() const { return host_; }
  const gannet_step_args& args() const { return args_; }

 private:
  const HostServices& host_;
  const RuleParams& params_;
  const gannet_step_args& args_;
};

/// Whether the loops support these types: fp32 masters with fp32 or 16-bit gradients and an
/// optional 16-bit copy, or fp64 masters with fp64 gradients and no copy.
inline bool elementwise_supports(uint32_t param, uint32_t grad, uint32_t out) {
  const bool half_out = out == GANNET_DTYPE_NONE || out == GANNET_BFLOAT16 || out == GANNET_FLOAT16;
  const bool float_grad = grad == GANNET_FLOAT32 || grad == GANNET_BFLOAT16 || grad == GANNET_FLOAT16;
  return (param == GANNET_FLOAT32 && float_grad && half_out) ||
         (param == GANNET_FLOAT64 && grad == GANNET_FLOAT64 && out == GANNET_DTYPE_NONE);
}

namespace detail {

/// The kinds of passes over a piece.
enum class RulePass { kUpdate, kSums, kEvaluate };
/// A pass of a rule over elements [begin, end), compiled for a CPU; sums are added to `sums`.
using RuleFunction = void (*)(RulePass, const Step&, const gannet_update_args&, uint64_t begin, uint64_t end, double* sums);

/// A CPU's passes over a piece, on the host's threads. `Kernel::run` is the RuleFunction for this CPU.
template <class Family, class Kernel>
struct HostKernel {
  static void update(const HostServices& host, const Step& step, const gannet_update_args& args) {
    pass(host, step.params(), args, RulePass::kUpdate);
  }
  static void evaluate(const HostServices& host, const Step& step, const gannet_update_args& args) {
    pass(host, step.params(), args, RulePass::kEvaluate);
  }
  static void share(const RuleParams& params, const gannet_update_args& args, uint64_t segment, uint64_t begin, uint64_t end,
                    double* share) {
    Kernel::run(RulePass::kSums, Step(params, args, segment), args, begin, end, share);
  }

 private:
  static constexpr uint64_t kStretch = 4 * kGrain;
  static void pass(const HostServices& host, const RuleParams& params, const gannet_update_args& args, RulePass which) {
    host.parallel_for(args.numel, kGrain, [&](uint64_t begin, uint64_t end) {
      if constexpr (!kLooksAtTensors<Family>) {
        Kernel::run(which, Step(params, args), args, begin, end, nullptr);
      } else {
        // From the last elements to the first, because those that sums() read last are still in the
        // caches. Within a stretch elements are processed in ascending order, as the prefetches expect.
        for (uint64_t s = args.segment_count; s-- > 0;) {
          const gannet_segment& part = segment(args, s);
          const uint64_t first = begin > part.offset ? begin : part.offset;
          const uint64_t last = end < part.offset + part.numel ? end : part.offset + part.numel;
          for (uint64_t to = last, from; first < to; to = from) {
            from = to - first > kStretch ? to - kStretch : first;
            Kernel::run(which, Step(params, args, s), args, from, to, nullptr);
          }
        }
      }
    });
  }
};

/// The optimizer of an element-wise rule. `Family` has kParams and with_rule; `Kernel` has
/// update(), compiled for a device. The functions that few rules have are in the classes below, so
/// that the plugin's table has them only for those rules.
template <class Family, class Kernel>
class ElementwiseBase : public OptimizerBase {
 public:
  static constexpr const auto& kParams = Family::kParams;
  ElementwiseBase(const gannet_host& host, const Params& params)
      : OptimizerBase(host, params), params_(kParams, sizeof(kParams) / sizeof(kParams[0]), params) {
    if constexpr (HasCheck<Family>::value) Family::check(params_, *this);
  }
  uint64_t capabilities() const {
    uint64_t capabilities = GANNET_OPTIMIZER_ELEMENTWISE;
#if GANNET_TARGET_MINOR >= 1
    if constexpr (UsesSeed<Family>::value || RoundsStochastically<Family>::value) capabilities |= GANNET_OPTIMIZER_USES_SEED;
#else
    static_assert(!UsesSeed<Family>::value && !RoundsStochastically<Family>::value,
                  "kUsesSeed and kRoundsStochastically need ABI 2.1, and GANNET_TARGET_MINOR is 0");
#endif
#if GANNET_TARGET_MINOR >= 4
    if constexpr (UsesLoss<Family>::value) capabilities |= GANNET_OPTIMIZER_USES_LOSS;
#else
    static_assert(!UsesLoss<Family>::value, "kUsesLoss needs ABI 2.4, and GANNET_TARGET_MINOR is lower");
#endif
    return capabilities;
  }
  std::vector<gannet_state_spec> states() const { return Family::states(params_); }
  std::vector<gannet_sum_spec> wanted_sums() const { return sums_of_rule<Family>(); }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const {
    if constexpr (RoundsStochastically<Family>::value)
      return param == GANNET_BFLOAT16 && (grad == GANNET_BFLOAT16 || grad == GANNET_FLOAT32) && out == GANNET_DTYPE_NONE;
    else
      return elementwise_supports(param, grad, out);
  }
  void update(const gannet_update_args& args) { Kernel::update(*this, Step(params_, args), args); }

 protected:
  const RuleParams& params() const { return params_; }

 private:
  RuleParams params_;
};
template <class Base, class Kernel>
struct WithSums : Base {
  using Base::Base;
  void sums(const gannet_update_args& args, uint32_t round, double* sums) {
    parallel_(*this, args, wanted_, round, sums, [&](uint64_t s, uint64_t begin, uint64_t end, double* share) {
      Kernel::share(this->params(), args, s, begin, end, share);
    });
  }

 private:
  const std::vector<gannet_sum_spec> wanted_ = this->wanted_sums();
  ParallelSums parallel_;
};
template <class Base, class Kernel>
struct WithEvaluate : Base {
  using Base::Base;
  void evaluate(const gannet_update_args& args) { Kernel::evaluate(*this, Step(this->params(), args), args); }
};
template <class Base, class Family>
struct WithBeginStep : Base {
  using Base::Base;
  void begin_step(const gannet_step_args& args) { Family::begin_step(GroupStep(*this, this->params(), args)); }
};
template <class Base, class Family>
struct WithEndStep : Base {
  using Base::Base;
  void end_step(const gannet_step_args& args) { Family::end_step(GroupStep(*this, this->params(), args)); }
};
template <class Family, class Kernel>
struct ElementwiseParts {
  template <bool kHas, class With, class Without>
  using If = std::conditional_t<kHas, With, Without>;
  using Base = ElementwiseBase<Family, Kernel>;
  using Summing = If<kSumCount<Family> != 0, WithSums<Base, Kernel>, Base>;
  using Evaluating = If<Evaluates<Family>::value, WithEvaluate<Summing, Kernel>, Summing>;
  using Beginning = If<HasBeginStep<Family>::value, WithBeginStep<Evaluating, Family>, Evaluating>;
  using Optimizer = If<HasEndStep<Family>::value, WithEndStep<Beginning, Family>, Beginning>;
};
template <class Family, class Kernel>
using ElementwiseOptimizer = typename ElementwiseParts<Family, Kernel>::Optimizer;

}  // namespace detail

}  // namespace gannet::sdk
