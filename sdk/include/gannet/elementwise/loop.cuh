// The loop of element-wise rules on GPUs, the counterpart of loop-inl.h for CPUs: reads and
// unscales the gradient, applies the rule, and writes the parameter, the states and the
// low-precision copy, in one pass over memory.
//
//   return run_elementwise(rule, args);        // queues the kernel on args.stream; returns the status of the launch
//
// Plugins are compiled without contraction and with IEEE division and square root, so that values are
// rounded exactly where the rule says, and equal those of a CPU with fused multiply-add.
#pragma once

#include <gannet/abi.h>
#include <gannet/elementwise/scalar.h>

#include <cstdint>
#include <gannet/elementwise/gpu_kernel.cuh>
#include <gannet/sdk_rule.hpp>
#include <type_traits>
#include <utility>

namespace gannet::rules::gpu {

#include <gannet/elementwise/scalar-inl.h>

struct NoCopy {};  // type of `out` if there is no low-precision copy

// The arrays of a piece, and the states that the rule's operator takes.
template <class Rule, class Grad, class Out>
struct Pointers {
  using Number = typename RuleNumber<Rule>::type;
  using States = sdk::detail::UpdateStates<Rule>;
  static_assert(sdk::detail::are_states<Rule, States>(), "kUpdateStates names what is not a PER_ELEMENT state of kStates");
  static constexpr size_t kStates = States::kCount;
  Number* param;
  const Grad* grad;
  Out* out;
  Number* state[kStates > 0 ? kStates : 1];
};

// A pack of kWidth numbers that are read or written together, in accesses of at most 16 bytes.
template <class T, int kWidth>
struct alignas(sizeof(T) * kWidth < 16 ? sizeof(T) * kWidth : 16) Pack {
  T at[kWidth];
};
template <int kWidth, class T>
GANNET_DEVICE Pack<T, kWidth> load(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
template <int kWidth, class T>
GANNET_DEVICE void store(const Pack<T, kWidth>& pack, T* to) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

// Updates elements [i, i + kWidth). All loads come first, so that they are in flight together.
template <int kWidth, class Rule, class Grad, class Out, size_t... kState>
GANNET_DEVICE void update_pack(const Rule& rule, typename RuleNumber<Rule>::type scale, const Pointers<Rule, Grad, Out>& at,
                               uint64_t i, std::index_sequence<kState...>) {
  using Number = typename RuleNumber<Rule>::type;
  using V = Scalar<Number>;
  const auto grad = load<kWidth>(at.grad + i);
  auto param = load<kWidth>(at.param + i);
  Pack<Number, kWidth> state[sizeof...(kState) > 0 ? sizeof...(kState) : 1];
  ((state[kState] = load<kWidth>(at.state[kState] + i)), ...);
#pragma unroll
  for (int k = 0; k < kWidth; ++k) {
    V p(param.at[k]);
    V s[sizeof...(kState) > 0 ? sizeof...(kState) : 1] = {V(state[kState].at[k])...};
    rule(V(widen(grad.at[k]) * scale), p, s[kState]...);
    param.at[k] = p.value;
    ((state[kState].at[k] = s[kState].value), ...);
  }
  store(param, at.param + i);
  (store(state[kState], at.state[kState] + i), ...);
  if constexpr (!std::is_same_v<Out, NoCopy>) {
    Pack<Out, kWidth> out;
#pragma unroll
    for (int k = 0; k < kWidth; ++k) narrow(param.at[k], out.at[k]);
    store(out, at.out + i);
  }
}

constexpr unsigned kBlockThreads = 256;

template <int kWidth, class Rule, class Grad, class Out>
__global__ void __launch_bounds__(kBlockThreads) elementwise_kernel(const Rule rule, const typename RuleNumber<Rule>::type scale,
                                                                    const Pointers<Rule, Grad, Out> at, const uint64_t numel) {
  constexpr std::make_index_sequence<Pointers<Rule, Grad, Out>::kStates> every_state;
  const uint64_t thread = block_index() * uint64_t{block_size()} + thread_index();
  const uint64_t threads = uint64_t{block_count()} * block_size();
  const uint64_t packs = numel / kWidth;
  for (uint64_t pack = thread; pack < packs; pack += threads) update_pack<kWidth>(rule, scale, at, pack * kWidth, every_state);
  if (packs * kWidth + thread < numel)
    update_pack<1>(rule, scale, at, packs * kWidth + thread, every_state);  // fewer than kWidth are left
}

// Enough blocks to fill the device a few times over; beyond that, each thread loops over packs.
inline cudaError_t count_blocks(uint64_t packs, unsigned& blocks) {
  int device = 0, processors = 0;
  if (const cudaError_t failed = cudaGetDevice(&device)) return failed;
  if (const cudaError_t failed = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) return failed;
  const uint64_t wanted = (packs + kBlockThreads - 1) / kBlockThreads, most = static_cast<uint64_t>(processors) * 32;
  blocks = static_cast<unsigned>(wanted < most ? wanted : most);
  return cudaSuccess;
}

template <class Rule, class Grad, class Out>
cudaError_t run_typed(const Rule& rule, const gannet_update_args& args) {
  using Number = typename RuleNumber<Rule>::type;
  Pointers<Rule, Grad, Out> at{
      static_cast<Number*>(args.param), static_cast<const Grad*>(args.grad), static_cast<Out*>(args.out), {}};
  for (size_t s = 0; s < at.kStates; ++s)
    at.state[s] = static_cast<Number*>(args.states[sdk::detail::UpdateStates<Rule>::index(s)]);
  // The engine's flat buffers are aligned; a caller's pointer into the middle of a buffer may not
  // be.
  auto misaligned = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 != 0; };
  bool scalar = misaligned(at.param) || misaligned(at.grad) || misaligned(at.out);
  for (const Number* state : at.state) scalar = scalar || misaligned(state);

  const uint64_t width = scalar ? 1 : 4;
  unsigned blocks = 0;
  if (const cudaError_t failed = count_blocks((args.numel + width - 1) / width, blocks)) return failed;
  const auto scale = static_cast<Number>(args.grad_scale);
  const auto stream = static_cast<cudaStream_t>(args.stream);
  if (scalar)
    elementwise_kernel<1><<<blocks, kBlockThreads, 0, stream>>>(rule, scale, at, args.numel);
  else
    elementwise_kernel<4><<<blocks, kBlockThreads, 0, stream>>>(rule, scale, at, args.numel);
  return cudaGetLastError();
}

// Calls run_typed with the types that args name (elementwise_supports in sdk_rule.hpp lists them).
template <class Rule, class Grad>
cudaError_t run_with_grad(const Rule& rule, const gannet_update_args& args) {
  if (args.out_dtype == GANNET_BFLOAT16) return run_typed<Rule, Grad, BFloat16>(rule, args);
  if (args.out_dtype == GANNET_FLOAT16) return run_typed<Rule, Grad, Half>(rule, args);
  return run_typed<Rule, Grad, NoCopy>(rule, args);
}

template <class Rule>
cudaError_t run_elementwise(const Rule& rule, const gannet_update_args& args) {
  if constexpr (std::is_same_v<typename RuleNumber<Rule>::type, double>) {
    return run_typed<Rule, double, NoCopy>(rule, args);
  } else {
    if (args.grad_dtype == GANNET_BFLOAT16) return run_with_grad<Rule, BFloat16>(rule, args);
    if (args.grad_dtype == GANNET_FLOAT16) return run_with_grad<Rule, Half>(rule, args);
    return run_with_grad<Rule, float>(rule, args);
  }
}

// Writes the weights for evaluation to `out`, in the master's type. Simple, with one element per
// thread, since it runs only once per evaluation.
template <class Rule, size_t... kState>
__global__ void __launch_bounds__(kBlockThreads)
    evaluate_kernel(const Rule rule, const Pointers<Rule, typename RuleNumber<Rule>::type, typename RuleNumber<Rule>::type> at,
                    const uint64_t numel, std::index_sequence<kState...>) {
  using V = Scalar<typename RuleNumber<Rule>::type>;
  const uint64_t threads = uint64_t{block_count()} * block_size();
  for (uint64_t i = block_index() * uint64_t{block_size()} + thread_index(); i < numel; i += threads)
    at.out[i] = rule.evaluate(V(at.param[i]), V(at.state[kState][i])...).value;
}
template <class Rule>
cudaError_t evaluate_elementwise(const Rule& rule, const gannet_update_args& args) {
  using Number = typename RuleNumber<Rule>::type;
  using States = sdk::detail::EvaluateStates<Rule>;
  static_assert(States::kCount <= sdk::detail::UpdateStates<Rule>::kCount, "evaluate() takes more states than the operator");
  static_assert(sdk::detail::are_states<Rule, States>(), "kEvaluateStates names what is not a PER_ELEMENT state of kStates");
  Pointers<Rule, Number, Number> at{static_cast<Number*>(args.param), nullptr, static_cast<Number*>(args.out), {}};
  for (size_t s = 0; s < States::kCount; ++s) at.state[s] = static_cast<Number*>(args.states[States::index(s)]);
  unsigned blocks = 0;
  if (const cudaError_t failed = count_blocks(args.numel, blocks)) return failed;
  evaluate_kernel<<<blocks, kBlockThreads, 0, static_cast<cudaStream_t>(args.stream)>>>(
      rule, at, args.numel, std::make_index_sequence<States::kCount>());
  return cudaGetLastError();
}

// Launches the rule that a family selects, and returns the launch's status.
template <class Family>
struct Launcher {
  sdk::detail::RulePass pass;
  const gannet_update_args& args;
  cudaError_t& status;
  template <class Rule>
  void operator()(const Rule& rule) const {
    sdk::detail::check_family<Family, Rule>();
    if constexpr (sdk::detail::Evaluates<Rule>::value)
      if (pass == sdk::detail::RulePass::kEvaluate) return void(status = evaluate_elementwise(rule, args));
    if (pass == sdk::detail::RulePass::kEvaluate)  // a rule of the family that evaluates with the trained weights
      status = cudaMemcpyAsync(args.out, args.param, args.numel * sizeof(typename RuleNumber<Rule>::type),
                               cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(args.stream));
    else
      status = run_elementwise(rule, args);
  }
};

template <class Family>
cudaError_t run_family(sdk::detail::RulePass pass, const sdk::Step& step, const gannet_update_args& args) {
  static_assert(
      !sdk::detail::kLooksAtTensors<Family>,
      "rules with kSums, kUsesSeed, kByTensor or kRoundsStochastically have a loop for CPUs only: list 'cpu' alone in DEVICES");
  cudaError_t status = cudaSuccess;
  const Launcher<Family> launch{pass, args, status};
  if (args.param_dtype == GANNET_FLOAT64)
    Family::template with_rule<double>(step, launch);
  else
    Family::template with_rule<float>(step, launch);
  return status;
}

}  // namespace gannet::rules::gpu
