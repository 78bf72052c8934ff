// Muon on the CPU: momentum, orthogonalized by Newton-Schulz in fp32, for matrices; Adam for the other tensors of the group.
#include "optimizers/muon/muon.h"

#include <algorithm>

#include "optimizers/muon/kernel.h"
#include "optimizers/muon/newton_schulz.h"

namespace gannet::rules {
namespace {

class Muon : public sdk::OptimizerBase {
 public:
  static constexpr auto& kParams = MuonConfig::kParams;

  Muon(const gannet_host& host, const sdk::Params& params)
      : OptimizerBase(host, params), config_(params), orthogonalize_(*this) {}

  void prepare(const gannet_optimizer_context& context) {
    is_adam_.clear();
    bool any_adam = false;
    for (uint64_t t = 0; t < context.tensor_count; ++t) {
      const gannet_tensor& tensor = sdk::element(context.tensors, context.tensor_stride, t);
      is_adam_.push_back(config_.is_adam(tensor));
      if (is_adam_.back() && is_prepared_ && !has_second_moment_)
        throw sdk::Failure(GANNET_UNSUPPORTED,
                           std::string("parameter '") + tensor.name +
                               "' is Adam's, but the group that it joins began with matrices of Muon alone and keeps no second "
                               "moment: put it into a group of its own, or in the group from the start");
      any_adam = any_adam || is_adam_.back();
    }
    // The second moment is Adam's alone, but a state is of every element of the group.
    if (!is_prepared_) has_second_moment_ = any_adam || is_adam_.empty();
    is_prepared_ = true;
  }
  uint64_t capabilities() const { return GANNET_OPTIMIZER_NEEDS_WHOLE_TENSOR; }
  std::vector<gannet_state_spec> states() const {
    if (!has_second_moment_) return {sdk::state("exp_avg")};
    return {sdk::state("exp_avg"), sdk::state("exp_avg_sq")};
  }
  bool supports(uint32_t param, uint32_t grad, uint32_t out) const { return sdk::elementwise_supports(param, grad, out); }

  void update(const gannet_update_args& args) {
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = sdk::segment(args, s);
      if (is_adam_.at(part.tensor_index)) {
        update_by_adam(args, part);
        continue;
      }
      if (part.numel != part.tensor_numel)
        throw sdk::Failure(GANNET_INTERNAL, std::string("the host gave a part of '") + part.name + "', but Muon needs it whole");
      update_by_muon(args, part);
    }
  }

 private:
  // DeepSpeed's auxiliary Adam is AdamW with the bias corrected; in the order of roundings of the optimizer AdamW here.
  void update_by_adam(const gannet_update_args& args, const gannet_segment& part) const {
    AdamStep step{};
    step.lr = args.hyper[0] * config_.adam_per_lr;
    step.weight_decay = args.hyper[2];
    step.beta1 = args.hyper[3];
    step.beta2 = args.hyper[4];
    step.eps = config_.eps;
    step.step = args.step;
    step.decoupled = step.bias_correction = true;
    parallel_for(part.numel, sdk::kGrain,
                 [&](uint64_t begin, uint64_t end) { adam_cpu(step, args, part.offset + begin, part.offset + end); });
  }

  void update_by_muon(const gannet_update_args& all, const gannet_segment& part) {
    const Matrices matrices = matrices_of(part.shape, part.dimensions);
    const uint64_t numel = matrices.rows * matrices.columns;
    const MuonStep step{all.hyper[0] * config_.muon_per_lr, all.hyper[1], all.hyper[2], matrices.scale, config_.nesterov};
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
      const float* u = orthogonalize_(x, matrices.rows, matrices.columns, {config_.ns_steps, config_.gram});
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

  // x / (|x| + 1e-7), so that no singular value is above 1. The squares are added by blocks, in their order.
  void normalize(float* x, uint64_t numel) {
    squares_.resize((numel + sdk::kGrain - 1) / sdk::kGrain);
    parallel_for(squares_.size(), 1, [&](uint64_t begin, uint64_t end) {
      for (uint64_t b = begin; b < end; ++b)
        squares_[b] = squares_cpu(x + b * sdk::kGrain, std::min(sdk::kGrain, numel - b * sdk::kGrain));
    });
    double total = 0;
    for (const double square : squares_) total += square;
    const auto factor = static_cast<float>(1 / (std::sqrt(total) + 1e-7));
    parallel_for(numel, sdk::kGrain, [&](uint64_t begin, uint64_t end) { scale_cpu(x + begin, end - begin, factor); });
  }

  MuonConfig config_;
  NewtonSchulz orthogonalize_;
  std::vector<bool> is_adam_;  // [tensors]
  bool is_prepared_ = false, has_second_moment_ = true;
  Scratch direction_, wide_;     // [rows, columns] of a matrix: its direction, and the same of fp64 masters
  std::vector<double> squares_;  // of the direction's blocks
};

}  // namespace
}  // namespace gannet::rules

GANNET_PLUGINS("optimizer/muon@cpu", GANNET_TIER_STABLE,
               gannet::sdk::optimizer<gannet::rules::Muon>(
                   "Muon", "cpu", "1.0.0", "Muon for matrices: orthogonalized momentum; Adam for vectors, embeddings and heads"))
