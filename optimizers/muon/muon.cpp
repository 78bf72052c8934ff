// Muon on the CPU: for matrices, the momentum orthogonalized by Newton-Schulz in fp32; for the
// other tensors of the group, Adam.
#include <algorithm>

#include "optimizers/muon/base.h"
#include "optimizers/muon/host_arithmetic.h"
#include "optimizers/muon/kernel.h"
#include "optimizers/muon/newton_schulz.h"

namespace gannet::rules {
namespace {

class Muon : public MuonBase {
 public:
  Muon(const gannet_host& host, const sdk::Params& params) : MuonBase(host, params), orthogonalize_(*this) {}

  void update(const gannet_update_args& args) {
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      if (is_adams(part))
        update_by_adam(args, part);
      else
        update_by_muon(args, part);
    }
  }

 private:
  void update_by_adam(const gannet_update_args& args, const gannet_segment& part) const {
    const AdamStep step = adam_step_of(args);
    parallel_for(part.numel, sdk::kGrain,
                 [&](uint64_t begin, uint64_t end) { adam_cpu(step, args, part.offset + begin, part.offset + end); });
  }

  void update_by_muon(const gannet_update_args& all, const gannet_segment& part) {
    const Matrices matrices = matrices_of(part.shape, part.dimensions);
    const uint64_t numel = matrices.rows * matrices.columns;
    const MuonStep step = muon_step_of(all, matrices);
    const bool is_wide = all.param_dtype == GANNET_FLOAT64;
    const uint64_t param_bytes = is_wide ? 8 : 4, grad_bytes = is_wide ? 8 : all.grad_dtype == GANNET_FLOAT32 ? 4 : 2;
    float* x = direction_.floats(numel);
    double* wide = is_wide ? wide_.doubles(numel) : nullptr;
    void* direction = is_wide ? static_cast<void*>(wide) : x;
    for (uint64_t m = 0; m < matrices.count; ++m) {
      const uint64_t first = part.offset + m * numel;
      void* momentum = static_cast<char*>(all.states[0]) + first * param_bytes;
      gannet_update_args args = all;
      args.numel = numel;
      args.param = direction;
      args.grad = static_cast<const char*>(all.grad) + first * grad_bytes;
      args.out = nullptr;
      args.out_dtype = GANNET_DTYPE_NONE;
      args.states = &momentum;
      parallel_for(numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) { muon_direction_cpu(step, args, begin, end); });
      if (is_wide)
        parallel_for(numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
          for (uint64_t i = begin; i < end; ++i) x[i] = static_cast<float>(wide[i]);
        });
      normalize(x, numel);
      const float* u = orthogonalize_(x, matrices.rows, matrices.columns, {config().ns_steps, config().gram});
      if (is_wide)
        parallel_for(numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) {
          for (uint64_t i = begin; i < end; ++i) wide[i] = double{u[i]};
        });
      args.param = static_cast<char*>(all.param) + first * param_bytes;
      args.grad = is_wide ? static_cast<const void*>(wide) : u;
      args.grad_dtype = all.param_dtype;
      args.grad_scale = 1;
      args.out = all.out ? static_cast<char*>(all.out) + first * 2 : nullptr;
      args.out_dtype = all.out_dtype;
      parallel_for(numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) { muon_apply_cpu(step, args, begin, end); });
    }
  }

  // The sums of squares of the blocks are added in the order of the blocks.
  void normalize(float* x, uint64_t numel) {
    squares_.resize((numel + sdk::kGrain - 1) / sdk::kGrain);
    parallel_for(squares_.size(), 1, [&](uint64_t begin, uint64_t end) {
      for (uint64_t b = begin; b < end; ++b)
        squares_[b] = squares_cpu(x + b * sdk::kGrain, std::min(sdk::kGrain, numel - b * sdk::kGrain));
    });
    double total = 0;
    for (const double square : squares_) total += square;
    const float factor = muon_normalizing_factor(std::sqrt(total));
    parallel_for(numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) { scale_cpu(x + begin, end - begin, factor); });
  }

  NewtonSchulz<HostArithmetic> orthogonalize_;
  Scratch direction_, wide_;     // for one matrix, [rows, columns]: its direction, and the same in fp64 for fp64 masters
  std::vector<double> squares_;  // sums of squares of the direction's blocks
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/muon@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Muon>(
                   "Muon", "cpu", "1.0.0", "Muon for matrices: orthogonalized momentum; Adam for vectors, embeddings and heads"))
