// The loop of element-wise rules without a SIMD library, in blocks that a compiler vectorises.
// Included by target-plain.h inside the namespace of a target.

#include <gannet/elementwise/scalar-inl.h>

struct NoCopy {};  // type of `out` if there is no low-precision copy

inline constexpr uint64_t kBlock = 256;  // elements that pass through arrays on the stack at a time; they fit in L1

// Updates `count` elements. The pointers are parameters of a function that is not inlined, because
// only there does GCC rely on __restrict__: it then needs no copies, nor checks of what overlaps.
template <class Rule, class Number, class Grad, class Out, class Bits, class... State>
__attribute__((noinline)) void update(const Rule& shared_rule, uint64_t count, Number scale, const Grad* __restrict__ grad,
                                      Number* __restrict__ param, [[maybe_unused]] Out* __restrict__ out,
                                      [[maybe_unused]] const Bits* __restrict__ bits, State* __restrict__... state) {
  using V = Scalar<Number>;
  const Rule rule = shared_rule;
  for (uint64_t i = 0; i < count; ++i) {
    V p(param[i]);
    [&](auto... s) {
      if constexpr (sdk::detail::UsesSeed<Rule>::value)
        rule(V(static_cast<Number>(grad[i]) * scale), p, s..., ScalarRandom<Number>{bits[i]});
      else
        rule(V(static_cast<Number>(grad[i]) * scale), p, s...);
      ((state[i] = s.value), ...);
    }(V(state[i])...);
    param[i] = p.value;
    if constexpr (!std::is_same_v<Out, NoCopy>) out[i] = Out(p.value);
  }
}

template <class Rule, class Number, class Grad, class Out, size_t... kState>
void run_typed(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end,
               [[maybe_unused]] const gannet_segment& part, std::index_sequence<kState...>) {
  using States = sdk::detail::UpdateStates<Rule>;
  using Bits = typename ScalarRandom<Number>::Bits;
  static_assert(sdk::detail::are_states<Rule, States>(), "kUpdateStates names what is not a PER_ELEMENT state of kStates");
  constexpr bool kHalfGrad = std::is_same_v<Grad, sdk::Float16>, kHalfOut = std::is_same_v<Out, sdk::Float16>;
  const auto* grads = static_cast<const Grad*>(args.grad);
  auto* params = static_cast<Number*>(args.param);
  auto* copies = static_cast<Out*>(args.out);
  const auto run = [&](uint64_t first, uint64_t count, const auto* grad, auto* copy, const Bits* bits) {
    update<Rule>(rule, count, static_cast<Number>(args.grad_scale), grad, params + first, copy, bits,
                 static_cast<Number*>(args.states[States::index(kState)]) + first...);
  };
  if constexpr (!kHalfGrad && !kHalfOut && !sdk::detail::UsesSeed<Rule>::value) {
    run(begin, end - begin, grads + begin, copies ? copies + begin : copies, nullptr);
    return;
  }
  // A loop with conversions of fp16 or with random numbers is not vectorised, so they get loops of
  // their own.
  for (uint64_t first = begin; first < end; first += kBlock) {
    const uint64_t count = end - first < kBlock ? end - first : kBlock;
    const Bits* bits = nullptr;
#if GANNET_TARGET_MINOR >= 1
    Bits drawn[sdk::detail::UsesSeed<Rule>::value ? kBlock : 1];
    if constexpr (sdk::detail::UsesSeed<Rule>::value) {
      const sdk::ElementRandom random(args, part);
      for (uint64_t i = 0; i < count; ++i) drawn[i] = static_cast<Bits>(random.bits(first + i) >> (64 - 8 * sizeof(Number)));
      bits = drawn;
    }
#endif
    const auto with_grad = [&](const auto* grad) {
      if constexpr (kHalfOut) {
        run(first, count, grad, static_cast<NoCopy*>(nullptr), bits);
        for (uint64_t i = first; i < first + count; ++i) copies[i] = Out(params[i]);
      } else {
        run(first, count, grad, copies ? copies + first : copies, bits);
      }
    };
    if constexpr (kHalfGrad) {
      Number wide[kBlock];
      for (uint64_t i = 0; i < count; ++i) wide[i] = static_cast<Number>(grads[first + i]);
      with_grad(wide);
    } else {
      with_grad(grads + first);
    }
  }
}

template <class Rule, class Number, class Grad>
void run_with_grad(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end, const gannet_segment& part) {
  constexpr std::make_index_sequence<sdk::detail::UpdateStates<Rule>::kCount> states;
  if constexpr (sizeof(Number) == 4) {
    if (args.out_dtype == GANNET_BFLOAT16)
      return run_typed<Rule, Number, Grad, sdk::BFloat16>(rule, args, begin, end, part, states);
    if (args.out_dtype == GANNET_FLOAT16)
      return run_typed<Rule, Number, Grad, sdk::Float16>(rule, args, begin, end, part, states);
  }
  run_typed<Rule, Number, Grad, NoCopy>(rule, args, begin, end, part, states);
}

// Adds the terms of elements [begin, end) to `sums`, in the order of loop-inl.h: element i to
// partial sum i % kPartialSums, in double.
inline constexpr uint64_t kPartialSums = 16;

template <class Rule, class Number, class Grad, size_t... kState, size_t... kSum>
void sum_typed(const Rule& shared_rule, const gannet_update_args& args, uint64_t begin, uint64_t end, double* sums,
               std::index_sequence<kState...>, std::index_sequence<kSum...>) {
  using V = Scalar<Number>;
  using States = sdk::detail::TermStates<Rule>;
  static_assert(sdk::detail::are_states<Rule, States>(), "kTermStates names what is not a PER_ELEMENT state of kStates");
  const Rule rule = shared_rule;
  const auto scale = static_cast<Number>(args.grad_scale);
  const auto* param = static_cast<const Number*>(args.param);
  const auto* grad = static_cast<const Grad*>(args.grad);
  [[maybe_unused]] const Number* state[sizeof...(kState) > 0 ? sizeof...(kState) : 1] = {
      static_cast<const Number*>(args.states[States::index(kState)])...};
  double partial[sizeof...(kSum)][kPartialSums];
  (
      (void)[&] {
        for (double& each : partial[kSum]) each = sdk::empty_sum(Rule::kSums[kSum].reduce_op);
      }(),
      ...);
  for (uint64_t first = begin; first < end; first += kBlock) {
    const uint64_t count = end - first < kBlock ? end - first : kBlock;
    Number a[sizeof...(kSum)][kBlock], b[sizeof...(kSum)][kBlock];
    for (uint64_t i = 0; i < count; ++i) {
      Term<V> terms[sizeof...(kSum)];
      rule.terms(V(static_cast<Number>(grad[first + i]) * scale), V(param[first + i]), V(state[kState][first + i])...,
                 terms[kSum]...);
      ((a[kSum][i] = terms[kSum].a.value, b[kSum][i] = terms[kSum].b.value), ...);
    }
    (
        (void)[&] {
          constexpr uint32_t kReduce = Rule::kSums[kSum].reduce_op;
          for (uint64_t i = 0; i < count; i += kPartialSums)
            for (uint64_t k = 0; k < kPartialSums && i + k < count; ++k) {
              const double x = a[kSum][i + k], y = b[kSum][i + k];
              if constexpr (kReduce == GANNET_MAX || kReduce == GANNET_MIN)
                sdk::add_to_sum(partial[kSum][k], x * y, kReduce);
              else if constexpr (sizeof(Number) == 4)
                partial[kSum][k] += x * y;  // exact products: a fused operation gives the same bits
              else
                partial[kSum][k] = __builtin_fma(x, y, partial[kSum][k]);
            }
        }(),
        ...);
  }
  (
      (void)[&] {
        double total = sdk::empty_sum(Rule::kSums[kSum].reduce_op);
        for (const double each : partial[kSum]) sdk::add_to_sum(total, each, Rule::kSums[kSum].reduce_op);
        sdk::add_to_sum(sums[kSum], total, Rule::kSums[kSum].reduce_op);
      }(),
      ...);
}

// Writes the weights for evaluation to args.out, in the master's type.
template <class Rule, class Number, size_t... kState>
void evaluate_typed(const Rule& shared_rule, const gannet_update_args& args, uint64_t begin, uint64_t end,
                    std::index_sequence<kState...>) {
  using V = Scalar<Number>;
  using States = sdk::detail::EvaluateStates<Rule>;
  static_assert(sdk::detail::are_states<Rule, States>(), "kEvaluateStates names what is not a PER_ELEMENT state of kStates");
  const Rule rule = shared_rule;
  const auto* param = static_cast<const Number*>(args.param);
  auto* out = static_cast<Number*>(args.out);
  [[maybe_unused]] const Number* state[sizeof...(kState) > 0 ? sizeof...(kState) : 1] = {
      static_cast<const Number*>(args.states[States::index(kState)])...};
  for (uint64_t i = begin; i < end; ++i) out[i] = rule.evaluate(V(param[i]), V(state[kState][i])...).value;
}

template <class Rule>
void run_elementwise(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end, const gannet_segment& part) {
  using Number = typename RuleNumber<Rule>::type;
  if constexpr (sizeof(Number) == 4) {
    if (args.grad_dtype == GANNET_BFLOAT16) return run_with_grad<Rule, Number, sdk::BFloat16>(rule, args, begin, end, part);
    if (args.grad_dtype == GANNET_FLOAT16) return run_with_grad<Rule, Number, sdk::Float16>(rule, args, begin, end, part);
  }
  run_with_grad<Rule, Number, Number>(rule, args, begin, end, part);
}

#include <gannet/elementwise/bfloat16-inl.h>

template <class Family>
struct PlainRunner {
  sdk::detail::RulePass pass;
  const gannet_update_args& args;
  uint64_t begin, end;
  double* sums;
  const gannet_segment& part;
  template <class Rule>
  void operator()(const Rule& rule) const {
    using Number = typename RuleNumber<Rule>::type;
    sdk::detail::check_family<Family, Rule>();
    if constexpr (sdk::detail::check_functions<Rule, Scalar<Number>, ScalarRandom<Number>, Term<Scalar<Number>>>()) run(rule);
  }

 private:
  template <class Rule>
  void run(const Rule& rule) const {
    using Number = typename RuleNumber<Rule>::type;
    if constexpr (sdk::detail::kSumCount<Rule> != 0)
      if (pass == sdk::detail::RulePass::kSums) return sum(rule);
    if constexpr (sdk::detail::Evaluates<Rule>::value)
      if (pass == sdk::detail::RulePass::kEvaluate)
        return evaluate_typed<Rule, Number>(rule, args, begin, end,
                                            std::make_index_sequence<sdk::detail::EvaluateStates<Rule>::kCount>());
#if GANNET_TARGET_MINOR >= 1
    if constexpr (sdk::detail::RoundsStochastically<Rule>::value) {
      if constexpr (sizeof(Number) == 4) run_bfloat16(rule, args, begin, end, part);
      return;
    }
#endif
    if (pass == sdk::detail::RulePass::kEvaluate)  // a rule of the family that evaluates with the trained weights
      std::memcpy(static_cast<Number*>(args.out) + begin, static_cast<const Number*>(args.param) + begin,
                  (end - begin) * sizeof(Number));
    if (pass == sdk::detail::RulePass::kUpdate) run_elementwise(rule, args, begin, end, part);
  }

  template <class Rule>
  void sum(const Rule& rule) const {
    using Number = typename RuleNumber<Rule>::type;
    constexpr std::make_index_sequence<sdk::detail::TermStates<Rule>::kCount> states;
    constexpr std::make_index_sequence<sdk::detail::kSumCount<Rule>> every_sum;
    if constexpr (sizeof(Number) == 4) {
      if (args.grad_dtype == GANNET_BFLOAT16)
        return sum_typed<Rule, Number, sdk::BFloat16>(rule, args, begin, end, sums, states, every_sum);
      if (args.grad_dtype == GANNET_FLOAT16)
        return sum_typed<Rule, Number, sdk::Float16>(rule, args, begin, end, sums, states, every_sum);
    }
    sum_typed<Rule, Number, Number>(rule, args, begin, end, sums, states, every_sum);
  }
};

template <class Family>
void run_family(sdk::detail::RulePass pass, const sdk::Step& step, const gannet_update_args& args, uint64_t begin, uint64_t end,
                double* sums) {
  static constexpr gannet_segment kNone{};
  const gannet_segment& part = sdk::detail::kLooksAtTensors<Family> ? step.tensor() : kNone;
  const PlainRunner<Family> run{pass, args, begin, end, sums, part};
  if (args.param_dtype == GANNET_FLOAT64) return Family::template with_rule<double>(step, run);
  Family::template with_rule<float>(step, run);
}
