// The loop of element-wise rules without a SIMD library, in blocks that a compiler vectorises.
// Included by target-plain.h inside the namespace of a target.

template <class T>
struct Scalar;

struct NoCopy {};  // type of `out` if there is no low-precision copy

inline constexpr uint64_t kBlock = 256;  // elements; a block's gradients and copies fit in L1

template <class Rule, class Number, class Grad, class Out, size_t... kState>
void run_typed(const Rule& shared_rule, const gannet_update_args& args, uint64_t begin, uint64_t end,
               std::index_sequence<kState...>) {
  using V = Scalar<Number>;
  const Rule rule = shared_rule;
  const auto scale = static_cast<Number>(args.grad_scale);
  [[maybe_unused]] Number* state[sizeof...(kState) > 0 ? sizeof...(kState) : 1] = {static_cast<Number*>(args.states[kState])...};
  for (uint64_t first = begin; first < end; first += kBlock) {
    const uint64_t count = end - first < kBlock ? end - first : kBlock;
    Number gradient[kBlock];
    const Grad* grad = static_cast<const Grad*>(args.grad) + first;
    for (uint64_t i = 0; i < count; ++i) gradient[i] = static_cast<Number>(grad[i]) * scale;
    Number* __restrict__ param = static_cast<Number*>(args.param) + first;
    Number values[kBlock];  // copies, so that no store aliases them
    [[maybe_unused]] Number held[sizeof...(kState) > 0 ? sizeof...(kState) : 1][kBlock];
    std::memcpy(values, param, count * sizeof(Number));
    (std::memcpy(held[kState], state[kState] + first, count * sizeof(Number)), ...);
    for (uint64_t i = 0; i < count; ++i) {
      V p(values[i]);
      [[maybe_unused]] V s[sizeof...(kState) > 0 ? sizeof...(kState) : 1] = {V(held[kState][i])...};
      rule(V(gradient[i]), p, s[kState]...);
      values[i] = p.value;
      ((held[kState][i] = s[kState].value), ...);
    }
    std::memcpy(param, values, count * sizeof(Number));
    (std::memcpy(state[kState] + first, held[kState], count * sizeof(Number)), ...);
    if constexpr (!std::is_same_v<Out, NoCopy>) {
      Out* out = static_cast<Out*>(args.out) + first;
      for (uint64_t i = 0; i < count; ++i) out[i] = Out(values[i]);
    }
  }
}

template <class Rule, class Number, class Grad>
void run_with_grad(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  constexpr std::make_index_sequence<sdk::detail::kStateCount<Rule>> states;
  if constexpr (sizeof(Number) == 4) {
    if (args.out_dtype == GANNET_BFLOAT16) return run_typed<Rule, Number, Grad, sdk::BFloat16>(rule, args, begin, end, states);
    if (args.out_dtype == GANNET_FLOAT16) return run_typed<Rule, Number, Grad, sdk::Float16>(rule, args, begin, end, states);
  }
  run_typed<Rule, Number, Grad, NoCopy>(rule, args, begin, end, states);
}

struct PlainRunner {
  const gannet_update_args& args;
  uint64_t begin, end;
  template <class Rule>
  void operator()(const Rule& rule) const {
    using Number = typename RuleNumber<Rule>::type;
    if constexpr (sizeof(Number) == 4) {
      if (args.grad_dtype == GANNET_BFLOAT16) return run_with_grad<Rule, Number, sdk::BFloat16>(rule, args, begin, end);
      if (args.grad_dtype == GANNET_FLOAT16) return run_with_grad<Rule, Number, sdk::Float16>(rule, args, begin, end);
    }
    run_with_grad<Rule, Number, Number>(rule, args, begin, end);
  }
};

template <class Family>
void run_family(const sdk::Step& step, const gannet_update_args& args, uint64_t begin, uint64_t end) {
  if (args.param_dtype == GANNET_FLOAT64) return Family::template with_rule<double>(step, PlainRunner{args, begin, end});
  Family::template with_rule<float>(step, PlainRunner{args, begin, end});
}
