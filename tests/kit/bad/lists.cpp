// Rules that misuse what ABI 2.3 gives: several pieces in one call, and the step's numbers where the pieces are.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "rule.h"

namespace {

using namespace bad;

struct Listed : Momentum {  // sound: by the root of each tensor's squares, with a workspace
  using Momentum::Momentum;
  uint64_t capabilities() const {
    return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_TAKES_LISTS | GANNET_OPTIMIZER_USES_WORKSPACE;
  }
  std::vector<gannet_sum_spec> wanted_sums() const { return {sum(GANNET_SUM_OF_TENSOR)}; }
  uint64_t workspace_bytes_per_element() const { return sizeof(float); }
  void sums(const gannet_update_args& a, uint32_t, double* sums) {
    for (uint64_t s = 0; s < a.segment_count; ++s)
      for (uint64_t i = segment(a, s).offset; i < segment(a, s).offset + segment(a, s).numel; ++i)
        sums[s] += double(grad(a)[i]) * grad(a)[i] * a.grad_scale * a.grad_scale;
  }
  void update(const gannet_update_args& a) { update_with(a, static_cast<float*>(a.workspace), a.step, a.sums); }
  // First the step of every element, then the elements: `work` has [numel].
  void update_with(const gannet_update_args& a, float* work, uint64_t step, const double* sums) {
    for (uint64_t s = 0; s < a.segment_count; ++s)
      for (uint64_t i = segment(a, s).offset; i < segment(a, s).offset + segment(a, s).numel; ++i)
        work[i] = static_cast<float>(a.hyper[0] / (1 + std::sqrt(sums[s])) / static_cast<double>(step));
    for (uint64_t s = 0; s < a.segment_count; ++s)
      for (uint64_t i = segment(a, s).offset; i < segment(a, s).offset + segment(a, s).numel; ++i) element(a, i, work[i]);
  }
};
struct DropsLast : Listed {  // all but the last piece
  using Listed::Listed;
  void update_many(const Pieces& pieces) {
    for (uint64_t k = 0; k + 1 < std::max<uint64_t>(pieces.size(), 2); ++k) update(pieces[k]);
  }
};
struct FirstStep : Listed {  // a piece may have joined later
  using Listed::Listed;
  void update_many(const Pieces& pieces) {
    for (const auto& a : pieces) update_with(a, static_cast<float*>(a.workspace), pieces[0].step, a.sums);
  }
};
struct FirstWork : Listed {  // the first piece's part of the workspace for all of them
  using Listed::Listed;
  void update_many(const Pieces& pieces) {
    for (const auto& a : pieces) update_with(a, static_cast<float*>(pieces[0].workspace), a.step, a.sums);
  }
};
struct ByOrder : Listed {  // a step that grows along the list
  using Listed::Listed;
  void update_many(const Pieces& pieces) {
    for (uint64_t k = 0; k < pieces.size(); ++k)
      update_with(pieces[k], static_cast<float*>(pieces[k].workspace), pieces[k].step + k, pieces[k].sums);
  }
};
struct OneSum : Listed {  // everything into the first piece's sums
  using Listed::Listed;
  void sums_many(const Pieces& pieces, uint32_t round, double* const* sums) {
    for (const auto& a : pieces) {
      std::vector<double> own(a.segment_count);
      Listed::sums(a, round, own.data());
      for (uint64_t s = 0; s < std::min(a.segment_count, pieces[0].segment_count); ++s) sums[0][s] += own[s];
    }
  }
};

struct OnDevice : Momentum {  // sound
  using Momentum::Momentum;
  uint64_t capabilities() const { return GANNET_OPTIMIZER_ELEMENTWISE | GANNET_OPTIMIZER_TAKES_DEVICE_NUMBERS; }
  void update(const gannet_update_args& a) {
    if (!StepNumbers(a).is_skipped()) update_with(a, StepNumbers(a).hyper(0));
  }
  static void update_with(const gannet_update_args& a, double rate) {
    const StepNumbers numbers(a);
    for (uint64_t i = 0; i < a.numel; ++i) {
      momentum(a)[i] = 0.9f * momentum(a)[i] + static_cast<float>(grad(a)[i] * numbers.grad_scale());
      param(a)[i] -= static_cast<float>(rate / numbers.step()) * momentum(a)[i];
    }
  }
};
struct NeverSkips : OnDevice {  // updates regardless of the first number
  using OnDevice::OnDevice;
  void update(const gannet_update_args& a) { update_with(a, StepNumbers(a).hyper(0)); }
};
struct SkipsHalf : OnDevice {  // the momentum of a skipped step moves
  using OnDevice::OnDevice;
  void update(const gannet_update_args& a) { update_with(a, StepNumbers(a).is_skipped() ? 0 : StepNumbers(a).hyper(0)); }
};
struct Remembers : OnDevice {  // begin_step's rate, which no replayed launch would see
  using OnDevice::OnDevice;
  void begin_step(const gannet_step_args& a) { rate_ = a.hyper[0]; }
  void update(const gannet_update_args& a) {
    if (!StepNumbers(a).is_skipped()) update_with(a, rate_);
  }
  double rate_ = 0;
};
struct ReadsCall : OnDevice {  // the factor of the call, which is NaN
  using OnDevice::OnDevice;
  void update(const gannet_update_args& a) {
    for (uint64_t i = 0; i < a.numel && !StepNumbers(a).is_skipped(); ++i) element(a, i, StepNumbers(a).hyper(0));
  }
};
struct WritesNumbers : OnDevice {  // takes the skip back when it has seen it
  using OnDevice::OnDevice;
  void update(const gannet_update_args& a) {
    OnDevice::update(a);
    const_cast<double*>(a.device_numbers)[GANNET_NUMBER_SKIP] = 0;
  }
};

#define RULE(type) optimizer<type>(#type, "", "1.0", "breaks one thing")

}  // namespace

GANNET_PLUGINS(
    "optimizer/listed optimizer/dropslast optimizer/firststep optimizer/firstwork optimizer/byorder optimizer/onesum "
    "optimizer/ondevice optimizer/neverskips optimizer/skipshalf optimizer/remembers optimizer/readscall optimizer/writesnumbers",
    GANNET_TIER_STABLE, RULE(Listed), RULE(DropsLast), RULE(FirstStep), RULE(FirstWork), RULE(ByOrder), RULE(OneSum),
    RULE(OnDevice), RULE(NeverSkips), RULE(SkipsHalf), RULE(Remembers), RULE(ReadsCall), RULE(WritesNumbers))
