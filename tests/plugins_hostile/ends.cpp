// An optimizer that does, in its third update, what a host must survive or name; without that it is gradient descent.
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cfenv>
#include <csignal>
#include <cstdlib>
#include <gannet/sdk.hpp>
#include <limits>
#include <string>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace {

using namespace gannet::sdk;

struct Ends : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {
      at_least(learning_rate("0.01"), 0),
      text("how", "\"not\"",
           "not|exit|exit_3|_exit|_exit_3|exit_in_loop|segv|abort|pthread_exit|raise|throw|round|flush|flush_in_loop|nan|"
           "collective|"
           "alone|describe|workspace|fork|scalar",
           "what it does"),
      at_least(integer("at", "3", "in which update"), 1),
  };
  Ends(const gannet_host& host, const Params& params)
      : OptimizerBase(host, params), how(params.text("how")), at(static_cast<uint64_t>(params.integer("at"))) {}

  uint64_t capabilities() const {
    return GANNET_OPTIMIZER_ELEMENTWISE | (how == "workspace" ? uint64_t{GANNET_OPTIMIZER_USES_WORKSPACE} : 0);
  }
  std::vector<gannet_state_spec> states() const {
    if (how == "describe" && rank() == 1) return {state("momentum"), state("other")};
    if (how == "scalar") return {state("momentum"), state("count", GANNET_STATE_SCALAR, GANNET_FLOAT64)};
    return {state("momentum")};
  }
  uint64_t workspace_bytes() const { return how == "workspace" ? uint64_t{1} << 50 : 0; }
  void begin_step(const gannet_step_args& args) {
    if (how == "alone" && args.step == at && rank() == 0) sum_over_ranks();
  }
  void end_step(const gannet_step_args& args) {
    if (how == "scalar" && args.step == at) *static_cast<double*>(args.states[1]) = rank();
  }
  void update(const gannet_update_args& args) {
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    const auto rate = static_cast<float>(args.hyper[0] * args.grad_scale);
    if (args.step == at) misbehave();
    parallel_for(args.numel, 1, [&](uint64_t begin, uint64_t end) {
      if (args.step == at && how == "exit_in_loop" && end == args.numel) std::exit(0);
      if (args.step == at && how == "flush_in_loop") flush();
      for (uint64_t i = begin; i < end; ++i) param[i] -= rate * grad[i];
    });
    if (args.step == at && how == "nan" && args.numel > 0) param[0] = std::numeric_limits<float>::quiet_NaN();
  }

  void misbehave() {
    if (how == "exit") std::exit(0);
    if (how == "exit_3") std::exit(3);
    if (how == "_exit") ::_exit(0);
    if (how == "_exit_3") ::_exit(3);
    if (how == "segv") *static_cast<volatile int*>(nullptr) = 1;
    if (how == "abort") std::abort();
    if (how == "pthread_exit") ::pthread_exit(nullptr);
    if (how == "raise") std::raise(SIGUSR1);
    if (how == "throw") throw Failure(GANNET_INTERNAL, "the third step is one too many");
    if (how == "round") std::fesetround(FE_UPWARD);
    if (how == "flush") flush();
    if (how == "collective") sum_over_ranks();
    if (how == "fork") {
      if (const pid_t child = ::fork(); child == 0) std::exit(0);
    }
  }
  static void flush() {
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
  }
  void sum_over_ranks() {
    double sum = 1;
    gannet_host_collective all_reduce{};
    all_reduce.operation = GANNET_HOST_ALL_REDUCE;
    all_reduce.dtype = GANNET_FLOAT64;
    all_reduce.reduce_op = GANNET_SUM;
    all_reduce.send = all_reduce.recv = &sum;
    all_reduce.count = 1;
    collective(all_reduce);
  }
  std::string how;
  uint64_t at;
};

}  // namespace

GANNET_PLUGINS("optimizer/ends", GANNET_TIER_STABLE, optimizer<Ends>("Ends", "", "1.2", "ends the program, among other things"))
