// Rules that misuse what ABI 2.1 gives: random numbers, a workspace, squares.
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

#define RULE(type) optimizer<type>(#type, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "optimizer/drawn optimizer/unseeded optimizer/byplace optimizer/sequence optimizer/stalework optimizer/widework "
    "optimizer/widesquare",
    GANNET_TIER_STABLE, RULE(Drawn), RULE(Unseeded), RULE(ByPlace), RULE(Sequence), RULE(StaleWork), RULE(WideWork),
    RULE(WideSquare))
