// Rules that compute what they should not.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "rule.h"

namespace {

using namespace bad;

struct Sound : Momentum {
  using Momentum::Momentum;
};
struct Averaged : Momentum {  // sound: its weights for evaluation are not the trained ones
  using Momentum::Momentum;
  void evaluate(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i)
      static_cast<float*>(a.out)[i] = param(a)[i] - static_cast<float>(a.hyper[0]) * momentum(a)[i];
  }
};
struct EvaluatesNothing : Averaged {
  using Averaged::Averaged;
  void evaluate(const gannet_update_args&) {}
};
struct EvaluatesWhole8 : Averaged {  // forgets what does not fill a lane
  using Averaged::Averaged;
  void evaluate(const gannet_update_args& given) {
    gannet_update_args a = given;
    a.numel = a.numel / 8 * 8;
    Averaged::evaluate(a);
  }
};
struct EvaluatesByCount : Averaged {  // of the object's own updates
  using Averaged::Averaged;
  void begin_step(const gannet_step_args&) { ++count_; }
  void evaluate(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) static_cast<float*>(a.out)[i] = param(a)[i] * static_cast<float>(1 + 1e-3 * count_);
  }
  int count_ = 0;
};
struct EvaluatesLate : Averaged {  // divides by 0 before the first update
  using Averaged::Averaged;
  void evaluate(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i)
      static_cast<float*>(a.out)[i] = param(a)[i] - momentum(a)[i] / static_cast<float>(a.step);
  }
};
struct RareCount : Momentum {  // every 500th of its own updates is a large one
  using Momentum::Momentum;
  void begin_step(const gannet_step_args&) { ++count_; }
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, a.hyper[0] * (count_ % 500 == 0 ? 10 : 1));
  }
  int count_ = 0;
};
struct StaleErrno : Momentum {  // takes what an earlier call left for a failure of its own
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    if (errno != ERANGE) Momentum::update(a);
  }
};
struct Position : Momentum {  // the rate depends on the place in the range
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, a.hyper[0] * (1 + 1e-3 * static_cast<double>(i % 8)));
  }
};
struct Tail : Momentum {  // what does not fill a lane is forgotten
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel / 8 * 8; ++i) element(a, i, a.hyper[0]);
  }
};
struct Unrepeatable : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    static uint64_t calls = 0;
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, a.hyper[0] * (1 + 1e-6 * static_cast<double>(++calls % 1001)));
  }
};
struct Diverges : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) param(a)[i] *= -2;
  }
};
struct OwnCount : Momentum {  // what it counts itself is in no checkpoint
  using Momentum::Momentum;
  void begin_step(const gannet_step_args&) { ++count_; }
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, a.hyper[0] / (1 + 1e-2 * count_));
  }
  int count_ = 0;
};
struct GroupCount : Momentum {  // the group's number of updates is not the tensor's
  using Momentum::Momentum;
  void begin_step(const gannet_step_args& a) { step_ = a.step; }
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, a.hyper[0] / (1 + 1e-2 * static_cast<double>(step_)));
  }
  uint64_t step_ = 0;
};
struct GroupRate : Momentum {  // the rate of the group whose step began last
  using Momentum::Momentum;
  void begin_step(const gannet_step_args& a) { rate = a.hyper[0]; }
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, rate);
  }
  static thread_local double rate;
};
thread_local double GroupRate::rate = 0;
struct Gathers : Momentum {  // frees in destroy what it gathers
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    Momentum::update(a);
    steps_.push_back(a.step);
  }
  std::vector<uint64_t> steps_;
};
struct FixedRate : Momentum {
  FixedRate(const gannet_host& host, const Params& params) : Momentum(host, params), rate_(params.number("lr")) {}
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, rate_);
  }
  double rate_;
};
struct Truncates : Momentum {
  using Momentum::Momentum;
  bool supports(uint32_t p, uint32_t g, uint32_t out) const {
    return p == GANNET_FLOAT32 && g == GANNET_FLOAT32 && (out == GANNET_DTYPE_NONE || out == GANNET_BFLOAT16);
  }
  void update(const gannet_update_args& a) {
    Momentum::update(a);
    for (uint64_t i = 0; a.out && i < a.numel; ++i) {
      uint32_t bits;
      std::memcpy(&bits, param(a) + i, 4);
      static_cast<uint16_t*>(a.out)[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
};
struct RangeNorm : Momentum {  // needs whole tensors, and takes the norm of the range
  using Momentum::Momentum;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR; }
  void update(const gannet_update_args& a) {
    double squares = 1e-6;
    for (uint64_t i = 0; i < a.numel; ++i) squares += double(grad(a)[i]) * grad(a)[i];
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, a.hyper[0] / std::sqrt(squares));
  }
};
struct RankState : Momentum {
  using Momentum::Momentum;
  std::vector<gannet_state_spec> states() const { return {state("momentum"), state("count", GANNET_STATE_SCALAR, GANNET_INT64)}; }
  void end_step(const gannet_step_args& a) { *static_cast<int64_t*>(a.states[1]) += rank(); }
};
struct Shared : Momentum {  // a scratch of all objects
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    static volatile double scratch;
    scratch = a.numel > 0 ? grad(a)[0] : 0;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    const double bias = scratch == (a.numel > 0 ? grad(a)[0] : 0) ? 1 : 2;
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, a.hyper[0] * bias);
  }
};
struct NanAborts : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i)
      if (!(std::fabs(grad(a)[i]) < 1e30f)) std::abort();
    Momentum::update(a);
  }
};
struct Exits : Momentum {  // with an exit code that says all were well
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    if (a.step == 45) ::_exit(0);
    Momentum::update(a);
  }
};
struct Hangs : Momentum {
  using Momentum::Momentum;
  void update(const gannet_update_args& a) {
    if (a.step == 150) std::this_thread::sleep_for(std::chrono::hours(1));
    Momentum::update(a);
  }
};

#define RULE(type) optimizer<type>(#type, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "optimizer/sound optimizer/averaged optimizer/evaluatesnothing optimizer/evaluateswhole8 "
    "optimizer/evaluatesbycount optimizer/evaluateslate optimizer/rarecount optimizer/staleerrno optimizer/position "
    "optimizer/tail optimizer/unrepeatable optimizer/diverges "
    "optimizer/owncount "
    "optimizer/groupcount optimizer/fixedrate optimizer/truncates optimizer/rangenorm optimizer/rankstate "
    "optimizer/shared optimizer/nanaborts optimizer/exits optimizer/hangs optimizer/grouprate optimizer/gathers",
    GANNET_TIER_STABLE, RULE(Sound), RULE(Averaged), RULE(EvaluatesNothing), RULE(EvaluatesWhole8), RULE(EvaluatesByCount),
    RULE(EvaluatesLate), RULE(RareCount), RULE(StaleErrno), RULE(Position), RULE(Tail), RULE(Unrepeatable), RULE(Diverges),
    RULE(OwnCount), RULE(GroupCount), RULE(FixedRate), RULE(Truncates), RULE(RangeNorm), RULE(RankState), RULE(Shared),
    RULE(NanAborts), RULE(Exits), RULE(Hangs), RULE(GroupRate), RULE(Gathers))
