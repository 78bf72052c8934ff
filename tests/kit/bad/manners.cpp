// Rules that touch what is not theirs, and objects that misbehave.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

#include "rule.h"

namespace {

using namespace bad;

struct WritesGrad : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    Momentum::update(a);
    if (a.numel > 0) grad(a)[a.numel - 1] *= 2;
  }
};
struct WritesHyper : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    *const_cast<volatile double*>(a.hyper) = a.hyper[0];
    Momentum::update(a);
  }
};
struct Overruns : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    Momentum::update(a);
    momentum(a)[a.numel] = 1;
  }
};
struct Underruns : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    Momentum::update(a);
    param(a)[-1] = 1;
  }
};
struct LateState : Momentum {  // of a state that all pieces share
  using Momentum::Momentum;
  std::vector<gannet_state_spec> states() const { return {state("momentum"), state("norm", GANNET_STATE_PER_TENSOR)}; }
  void update(const gannet_update_args& a) {
    Momentum::update(a);
    for (uint64_t s = 0; s < a.segment_count; ++s) static_cast<float*>(a.states[1])[segment(a, s).tensor_index] = 1;
  }
};
struct BusySums : Momentum {
  using Momentum::Momentum;
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum(GANNET_SUM_OF_TENSOR)}; }
  void sums(const gannet_update_args& a, uint32_t, double* sums) {
    for (uint64_t s = 0; s < a.segment_count; ++s) sums[s] += 1;
    if (a.numel > 0) *const_cast<volatile float*>(momentum(a)) = 0;
  }
};
struct KeepsPointer : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    if (a.step == 1 && a.numel > 0) kept_ = momentum(a);
    if (kept_) *const_cast<volatile float*>(kept_) = *kept_;
    Momentum::update(a);
  }
  float* kept_ = nullptr;
};
struct DeafToFailure : Momentum {  // does not look at what the host's loop returns
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    host().parallel_for(host().context, 0, a.numel, 64, [](void*, uint64_t, uint64_t) -> int32_t { return GANNET_OK; }, nullptr);
    Momentum::update(a);
  }
};
struct SilentFailure : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    try {
      parallel_for(a.numel, 64, [](uint64_t, uint64_t) {});
    } catch (const Failure& failure) {
      throw Failure(failure.status(), "");
    }
    Momentum::update(a);
  }
};
struct SilentRefusal : Momentum {
  using Momentum::Momentum;
  bool supports(uint32_t p, uint32_t g, uint32_t out) const {
    if (p == GANNET_FLOAT16) throw Failure(GANNET_UNSUPPORTED, "");
    return Momentum::supports(p, g, out);
  }
};
struct Overclaims : Momentum {  // takes types that update does not
  using Momentum::Momentum;
  bool supports(uint32_t p, uint32_t g, uint32_t out) const { return p == g && out == GANNET_DTYPE_NONE; }
  void update(const gannet_update_args& a) {
    if (a.param_dtype != GANNET_FLOAT32) throw Failure(GANNET_INTERNAL, "only fp32");
    Momentum::update(a);
  }
};
struct Leaks : Momentum {
  Leaks(const gannet_host& host, const Params& params) : Momentum(host, params) { *new std::vector<char>(16) = {1}; }
};
struct LeaksInUpdate : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    std::vector<char>& more = *new std::vector<char>(16);
    more[0] = 1;
    Momentum::update(a);
  }
};
struct Prints : Momentum {
  Prints(const gannet_host& host, const Params& params) : Momentum(host, params) { std::puts("hello"); }
};
struct StartsThread : Momentum {
  StartsThread(const gannet_host& host, const Params& params) : Momentum(host, params) {
    std::thread([] { std::this_thread::sleep_for(std::chrono::milliseconds(300)); }).detach();
  }
};
struct StartsProcess : Momentum {
  StartsProcess(const gannet_host& host, const Params& params) : Momentum(host, params) {
    if (::fork() == 0) ::_exit(0);
  }
};
struct LimitCrashes : Momentum {
  static constexpr gannet_param_spec kParams[] = {at_least(learning_rate("0.01"), 0),
                                                  at_most(at_least(integer("period", "4", "steps"), 0), 8)};
  LimitCrashes(const gannet_host& host, const Params& params) : Momentum(host, params) {
    if (params.integer("period") == 0) std::raise(SIGFPE);
  }
};
struct LimitSilent : Momentum {
  static constexpr gannet_param_spec kParams[] = {at_least(learning_rate("0.01"), 0), text("mode", "\"a\"", "a|b", "which")};
  LimitSilent(const gannet_host& host, const Params& params) : Momentum(host, params) {
    if (params.text("mode") == "b") throw Failure(GANNET_INVALID_ARGUMENT, "");
  }
};
struct Fickle : Momentum {  // another description for every object
  using Momentum::Momentum;
  std::vector<gannet_state_spec> states() const {
    static int asked = 0;
    return {state(++asked % 2 ? "momentum" : "velocity")};
  }
};

#define RULE(type) optimizer<type>(#type, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "optimizer/writesgrad optimizer/writeshyper optimizer/overruns optimizer/underruns optimizer/latestate "
    "optimizer/busysums optimizer/keepspointer optimizer/deaftofailure optimizer/silentfailure optimizer/silentrefusal "
    "optimizer/overclaims optimizer/leaks optimizer/leaksinupdate optimizer/prints optimizer/startsthread "
    "optimizer/startsprocess optimizer/limitcrashes optimizer/limitsilent optimizer/fickle",
    GANNET_TIER_STABLE, RULE(WritesGrad), RULE(WritesHyper), RULE(Overruns), RULE(Underruns), RULE(LateState), RULE(BusySums),
    RULE(KeepsPointer), RULE(DeafToFailure), RULE(SilentFailure), RULE(SilentRefusal), RULE(Overclaims), RULE(Leaks),
    RULE(LeaksInUpdate), RULE(Prints), RULE(StartsThread), RULE(StartsProcess), RULE(LimitCrashes), RULE(LimitSilent),
    RULE(Fickle))
