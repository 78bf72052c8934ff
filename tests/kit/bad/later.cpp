// Rules that misuse what ABI 2.1 and 2.2 give: random numbers, a workspace, squares; perturbed parameters, second gradients.
#include <cmath>
#include <gannet/sdk_random.hpp>

#include "rule.h"

namespace {

using namespace bad;

struct Drawn : Momentum {  // sound
  using Momentum::Momentum;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_USES_SEED; }
  void update(const gannet_update_args& a) {
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      const ElementRandom random(a, part);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) element(a, i, a.hyper[0] * random.uniform(i));
    }
  }
};
struct Unseeded : Momentum {  // claims what it does not use
  using Momentum::Momentum;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_USES_SEED; }
};
struct ByPlace : Drawn {  // the place in the piece is not the place in the tensor
  using Drawn::Drawn;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i)
      element(a, i, a.hyper[0] * static_cast<double>(mixed_bits(a.seed + i) >> 11) * 0x1p-53);
  }
};
struct Sequence : Drawn {  // a generator of its own is in no checkpoint
  using Drawn::Drawn;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel; ++i)
      element(a, i, a.hyper[0] * static_cast<double>(mixed_bits(a.seed + ++count_) >> 11) * 0x1p-53);
  }
  uint64_t count_ = 0;
};

struct Working : Momentum {
  using Momentum::Momentum;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_USES_WORKSPACE; }
  uint64_t workspace_bytes_per_element() const { return sizeof(float); }
};
struct StaleWork : Working {  // takes the workspace for a state
  using Working::Working;
  void update(const gannet_update_args& a) {
    auto* work = static_cast<float*>(a.workspace);
    for (uint64_t i = 0; i < a.numel; ++i) param(a)[i] -= work[i] = 0.5f * work[i] + grad(a)[i] * 1e-3f;
  }
};
struct WideWork : Working {  // one element more than it asked for
  using Working::Working;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i <= a.numel; ++i) static_cast<float*>(a.workspace)[i] = 1;
    Momentum::update(a);
  }
};
struct WideSquare : Momentum {  // one row more than there is
  using Momentum::Momentum;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR; }
  std::vector<gannet_state_spec> states() const { return {state("momentum"), square_state("left", GANNET_STATE_ROW_SQUARE, 64)}; }
  void update(const gannet_update_args& a) {
    Momentum::update(a);
    for (uint64_t s = 0; s < a.segment_count; ++s) {
      const gannet_segment& part = segment(a, s);
      const uint64_t matrices = part.numel / (part.matrix_rows * part.columns);
      if (auto* left = square<float>(a, s, 1)) left[matrices * part.matrix_rows * part.matrix_rows] = 1;
    }
  }
};

struct Perturbing : Momentum {  // sound: along the gradient, by its norm over the model
  using Momentum::Momentum;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_PERTURBS; }
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum_to_perturb(GANNET_SUM_OF_MODEL)}; }
  void sums(const gannet_update_args& a, uint32_t, double* sums) {
    for (uint64_t s = 0; s < a.segment_count; ++s)
      for (uint64_t i = segment(a, s).offset; i < segment(a, s).offset + segment(a, s).numel; ++i)
        sums[s] += double(grad(a)[i]) * grad(a)[i];
  }
  static void move(const gannet_update_args& a, uint64_t i, double squares) {
    static_cast<float*>(a.out)[i] = param(a)[i] + static_cast<float>(0.05 * grad(a)[i] / (std::sqrt(squares) + 1e-12));
  }
  void perturb(const gannet_update_args& a) {
    for (uint64_t i = 0; a.segment_count > 0 && i < a.numel; ++i) move(a, i, a.sums[0]);
  }
};
struct OwnNorm : Perturbing {  // the norm of the piece: that of one rank, of one page
  using Perturbing::Perturbing;
  void perturb(const gannet_update_args& a) {
    double squares = 0;
    for (uint64_t i = 0; i < a.numel; ++i) squares += double(grad(a)[i]) * grad(a)[i];
    for (uint64_t i = 0; i < a.numel; ++i) move(a, i, squares);
  }
};
struct MovesParameter : Perturbing {  // in place: it cannot be undone
  using Perturbing::Perturbing;
  void perturb(const gannet_update_args& a) {
    Perturbing::perturb(a);
    for (uint64_t i = 0; a.segment_count > 0 && i < a.numel; ++i) param(a)[i] = static_cast<float*>(a.out)[i];
  }
};
struct HalfMoved : Perturbing {  // all but the last element
  using Perturbing::Perturbing;
  void perturb(const gannet_update_args& a) {
    for (uint64_t i = 0; a.segment_count > 0 && i + 1 < a.numel; ++i) move(a, i, a.sums[0]);
  }
};
struct WideMove : Perturbing {  // and one more
  using Perturbing::Perturbing;
  void perturb(const gannet_update_args& a) {
    Perturbing::perturb(a);
    static_cast<float*>(a.out)[a.numel] = 0;
  }
};

struct PerturbsWhole8 : Perturbing {  // forgets what does not fill a lane
  using Perturbing::Perturbing;
  void perturb(const gannet_update_args& given) {
    gannet_update_args a = given;
    a.numel = a.numel / 8 * 8;
    Perturbing::perturb(a);
  }
};
struct PerturbsUnscaled : Perturbing {  // by the gradient as it is stored
  using Perturbing::Perturbing;
  void perturb(const gannet_update_args& a) {
    for (uint64_t i = 0; a.segment_count > 0 && i < a.numel; ++i)
      static_cast<float*>(a.out)[i] = param(a)[i] + 1e-3f * grad(a)[i];
  }
};
struct TwoPasses : Perturbing {  // sound: another sum for the update
  using Perturbing::Perturbing;
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum_to_perturb(GANNET_SUM_OF_MODEL), sum(GANNET_SUM_OF_MODEL)}; }
  void sums(const gannet_update_args& a, uint32_t, double* sums) {
    const bool perturbs = a.pass == GANNET_PASS_PERTURB;
    for (uint64_t s = 0; s < a.segment_count; ++s)
      for (uint64_t i = segment(a, s).offset; i < segment(a, s).offset + segment(a, s).numel; ++i)
        sums[2 * s + (perturbs ? 0 : 1)] += perturbs ? double(grad(a)[i]) * grad(a)[i] : std::fabs(double(param(a)[i]));
  }
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; a.segment_count > 0 && i < a.numel; ++i) element(a, i, a.hyper[0] / (1 + a.sums[1]));
  }
};

struct Second : Momentum {  // sound: every third step
  using Momentum::Momentum;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_SECOND_GRADIENT; }
  bool wants_second_gradient(uint64_t step) const { return step % 3 == 0; }
  void update(const gannet_update_args& a) {
    const auto* second = static_cast<const float*>(a.second_grad);
    for (uint64_t i = 0; i < a.numel; ++i) element(a, i, second ? a.hyper[0] / (1 + second[i] * second[i]) : a.hyper[0]);
  }
};
struct Heedless : Second {  // asks, and does not look
  using Second::Second;
  void update(const gannet_update_args& a) { Momentum::update(a); }
};
struct Counting : Second {  // by its own count of questions
  using Second::Second;
  bool wants_second_gradient(uint64_t) const { return ++asked_ % 3 == 0; }
  mutable uint64_t asked_ = 0;
};
struct WritesSecond : Second {  // squares it in place
  using Second::Second;
  void update(const gannet_update_args& a) {
    Second::update(a);
    auto* second = static_cast<float*>(const_cast<void*>(a.second_grad));
    for (uint64_t i = 0; second && i < a.numel; ++i) second[i] *= second[i];
  }
};

#define RULE(type) optimizer<type>(#type, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "optimizer/drawn optimizer/unseeded optimizer/byplace optimizer/sequence optimizer/stalework optimizer/widework "
    "optimizer/widesquare optimizer/perturbing optimizer/ownnorm optimizer/movesparameter optimizer/halfmoved optimizer/widemove "
    "optimizer/perturbswhole8 optimizer/perturbsunscaled optimizer/twopasses optimizer/second optimizer/heedless "
    "optimizer/counting optimizer/writessecond",
    GANNET_TIER_STABLE, RULE(Drawn), RULE(Unseeded), RULE(ByPlace), RULE(Sequence), RULE(StaleWork), RULE(WideWork),
    RULE(WideSquare), RULE(Perturbing), RULE(OwnNorm), RULE(MovesParameter), RULE(HalfMoved), RULE(WideMove),
    RULE(PerturbsWhole8), RULE(PerturbsUnscaled), RULE(TwoPasses), RULE(Second), RULE(Heedless), RULE(Counting),
    RULE(WritesSecond))
