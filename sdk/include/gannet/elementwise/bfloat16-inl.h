// Updates bf16 parameters that have no fp32 masters, for rules with kRoundsStochastically: computes
// in fp32, and rounds the parameter and the states of each element to bf16 at random, so that
// updates below half a unit in the last place count on average. Included in each target's
// namespace, after its run_elementwise(), so there is no include guard.
#if GANNET_TARGET_MINOR >= 1
template <class Rule>
void run_bfloat16(const Rule& rule, const gannet_update_args& args, uint64_t begin, uint64_t end, const gannet_segment& part) {
  using States = sdk::detail::UpdateStates<Rule>;
  static_assert(!sdk::detail::UsesSeed<Rule>::value && sdk::detail::kSumCount<Rule> == 0 && !sdk::detail::Evaluates<Rule>::value,
                "a rule with kRoundsStochastically has neither kUsesSeed nor kSums nor evaluate()");
  static_assert(sdk::detail::have_master_dtype<Rule>(), "a rule with kRoundsStochastically has states of the parameter's dtype");
  constexpr uint64_t kCount = 256;  // elements converted to fp32 at a time; they fit in L1
  constexpr size_t kStates = States::kCount > 0 ? States::kCount : 1;
  const sdk::ElementRandom random(args, part);
  const uint64_t grad_bytes = args.grad_dtype == GANNET_FLOAT32 ? 4 : 2;
  float param[kCount], state[kStates][kCount];
  void* places[sdk::detail::kStateCount<Rule> > 0 ? sdk::detail::kStateCount<Rule> : 1] = {};
  for (size_t s = 0; s < States::kCount; ++s) places[States::index(s)] = state[s];
  gannet_update_args wide = args;
  wide.param_dtype = GANNET_FLOAT32;
  wide.param = param;
  wide.states = places;
  for (uint64_t first = begin; first < end; first += kCount) {
    const uint64_t count = end - first < kCount ? end - first : kCount;
    auto* const narrow = static_cast<sdk::BFloat16*>(args.param) + first;
    for (uint64_t i = 0; i < count; ++i) param[i] = static_cast<float>(narrow[i]);
    for (size_t s = 0; s < States::kCount; ++s) {
      const auto* from = static_cast<const sdk::BFloat16*>(args.states[States::index(s)]) + first;
      for (uint64_t i = 0; i < count; ++i) state[s][i] = static_cast<float>(from[i]);
    }
    wide.numel = count;
    wide.grad = static_cast<const char*>(args.grad) + first * grad_bytes;
    run_elementwise(rule, wide, 0, count, part);
    uint64_t bits[kCount];
    for (uint64_t i = 0; i < count; ++i) bits[i] = random.bits(first + i);
    for (uint64_t i = 0; i < count; ++i) narrow[i].bits = sdk::stochastic_bfloat16(param[i], bits[i]);
    for (size_t s = 0; s < States::kCount; ++s) {
      auto* const to = static_cast<sdk::BFloat16*>(args.states[States::index(s)]) + first;
      // Each number of an element uses 16 of the 64 bits, which are mixed again after four numbers.
      if ((s + 1) % 4 == 0)
        for (uint64_t i = 0; i < count; ++i) bits[i] = sdk::mixed_bits(bits[i]);
      const uint64_t shift = (s + 1) % 4 * 16;
      for (uint64_t i = 0; i < count; ++i) to[i].bits = sdk::stochastic_bfloat16(state[s][i], bits[i] >> shift);
    }
  }
}
#endif
