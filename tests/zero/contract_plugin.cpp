// A rule that uses all of the optimizer contract, and refuses to be called in another order than the contract's: begin_step, the
// rounds of sums, update, end_step.
#include <cmath>
#include <cstdlib>
#include <gannet/sdk.hpp>

namespace {

using namespace gannet::sdk;

struct Contract : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-2", "eta"),
      role<GANNET_ROLE_WEIGHT_DECAY>(dynamic_number("decay", "0", "weight decay")),
      integer("align", "0", "range_alignment"),
  };
  Contract(const gannet_host& host, const Params& params)
      : OptimizerBase(host, params), align_(static_cast<uint64_t>(params.integer("align"))) {}

  void prepare(const gannet_optimizer_context& context) {
    require(context.rank == rank() && context.world_size == world_size(), "the context's ranks are the host's");
    for (uint64_t t = 0; t < context.tensor_count; ++t) {
      const auto& one = element(context.tensors, context.tensor_stride, t);
      require(one.index == t && one.name && *one.name && one.numel > 0, "a tensor has its index, a name and elements");
    }
    tensors_ = context.tensor_count;
  }
  std::vector<gannet_state_spec> states() const {
    return {state("momentum"), state("norm", GANNET_STATE_PER_TENSOR), state("seen", GANNET_STATE_PER_TENSOR, GANNET_INT64),
            state("count", GANNET_STATE_SCALAR, GANNET_INT64)};
  }
  // In the first round: the tensor's squares, the group's largest element and the model's number of
  // elements; in the second: the group's sum of |g| / largest.
  std::vector<gannet_sum_spec> wanted_sums() const {
    return {sum(GANNET_SUM_OF_TENSOR), sum(GANNET_SUM_OF_GROUP, GANNET_MAX), sum(GANNET_SUM_OF_MODEL),
            sum(GANNET_SUM_OF_GROUP, GANNET_SUM, 1)};
  }
  uint64_t range_alignment() const { return align_; }

  void begin_step(const gannet_step_args& args) {
    enter(0, kEnd, kBegin);
    require(args.tensor_count == tensors_ && args.state_count == 4 && !args.states[0] && !args.sums, "the step has its tensors");
    ++*static_cast<int64_t*>(args.states[3]);
    double ranks = rank() + 1;
    gannet_host_collective all_reduce{};
    all_reduce.operation = GANNET_HOST_ALL_REDUCE;
    all_reduce.dtype = GANNET_FLOAT64;
    all_reduce.reduce_op = GANNET_SUM;
    all_reduce.send = all_reduce.recv = &ranks;
    all_reduce.count = 1;
    collective(all_reduce);
    require(ranks == world_size() * (world_size() + 1) / 2.0, "the ranks' numbers add up");
  }
  void sums(const gannet_update_args& args, uint32_t round, double* sums) {
    round == 0 ? enter(1, kBegin, kFirst) : enter(2, kFirst, kSecond);
    const auto* grad = static_cast<const float*>(args.grad);
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = segment(args, s);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        const double g = std::fabs(grad[i] * args.grad_scale);
        if (round == 0) {
          sums[4 * s] += g * g;
          sums[4 * s + 1] = std::fmax(sums[4 * s + 1], g);
        } else {
          sums[4 * s + 3] += g / args.sums[4 * s + 1];
        }
      }
      if (round == 0) sums[4 * s + 2] += static_cast<double>(part.numel);
    }
  }
  void update(const gannet_update_args& args) {
    enter(3, kSecond, kUpdate);
    auto* param = static_cast<float*>(args.param);
    auto* momentum = static_cast<float*>(args.states[0]);
    const auto* grad = static_cast<const float*>(args.grad);
    const auto* norm = static_cast<const float*>(args.states[1]);
    const auto count = static_cast<double>(*static_cast<const int64_t*>(args.states[3]));
    require(args.sum_count == 4, "there are four sums");
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = segment(args, s);
      require(part.tensor_index < tensors_ && (align_ == 0 || part.tensor_offset % align_ == 0), "a range is aligned");
      const double* sums = args.sums + 4 * s;
      const double rate = args.hyper[0] / (std::sqrt(sums[0]) + sums[1] + sums[3] / sums[2] + norm[part.tensor_index] / count);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) {
        momentum[i] = 0.9f * momentum[i] + static_cast<float>(grad[i] * args.grad_scale);
        param[i] -= static_cast<float>(rate * momentum[i] + args.hyper[0] * args.hyper[1] * param[i]);
      }
    }
  }
  void end_step(const gannet_step_args& args) {
    enter(4, kUpdate, kEnd);
    for (uint64_t t = 0; t < args.tensor_count; ++t) {
      static_cast<float*>(args.states[1])[t] = static_cast<float>(std::sqrt(args.sums[4 * t]));
      ++static_cast<int64_t*>(args.states[2])[t];
    }
  }

 private:
  enum Phase { kBegin, kFirst, kSecond, kUpdate, kEnd };
  static void require(bool holds, const char* what) {
    if (!holds) throw Failure(GANNET_INTERNAL, std::string("it does not hold that ") + what);
  }
  // A rank may have no piece at all: then it comes from begin_step to end_step.
  void enter(int, Phase from, Phase to) {
    require(phase_ == from || phase_ == to || (to == kEnd && phase_ == kBegin), "calls come in the contract's order");
    require(to != phase_ || (to != kBegin && to != kEnd), "begin_step and end_step are called once");
    phase_ = to;
  }
  Phase phase_ = kEnd;
  uint64_t align_, tensors_ = 0;
};

// A learning rate whose role its author forgot.
struct Rateless : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {dynamic_number("eta", "1e-2", "learning rate")};
  using OptimizerBase::OptimizerBase;
  void update(const gannet_update_args&) {}
};

// It says nothing of ranges: so it gets whole tensors.
struct Silent : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2")};
  using OptimizerBase::OptimizerBase;
  uint64_t capabilities() const { return 0; }
  void update(const gannet_update_args& args) {
    for (uint64_t s = 0; s < args.segment_count; ++s)
      if (segment(args, s).numel != segment(args, s).tensor_numel) throw Failure(GANNET_INTERNAL, "a part of a tensor");
  }
};

// Rank 1 ends within the second step, while the others wait for it in a collective of the plugin's.
struct Leaves : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1e-2")};
  using OptimizerBase::OptimizerBase;
  void begin_step(const gannet_step_args& args) {
    if (args.step == 2 && rank() == 1) std::_Exit(9);
    double one = 1;
    gannet_host_collective all_reduce{};
    all_reduce.operation = GANNET_HOST_ALL_REDUCE;
    all_reduce.dtype = GANNET_FLOAT64;
    all_reduce.reduce_op = GANNET_SUM;
    all_reduce.send = all_reduce.recv = &one;
    all_reduce.count = 1;
    collective(all_reduce);
  }
  void update(const gannet_update_args&) {}
};

}  // namespace

GANNET_PLUGINS("optimizer/contract optimizer/rateless optimizer/silent optimizer/leaves", GANNET_TIER_STABLE,
               optimizer<Contract>("Contract", "", "0.1", "uses all of the contract"),
               optimizer<Rateless>("Rateless", "", "0.1", "a parameter without a role"),
               optimizer<Silent>("Silent", "", "0.1", "no capabilities"),
               optimizer<Leaves>("Leaves", "", "0.1", "loses a rank in a collective"))
