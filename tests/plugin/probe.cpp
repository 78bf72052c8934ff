// The tests' own plugin: what the loader, the parameter reader and the views of the five kinds are tried on.
#include <cmath>
#include <limits>
#include <stdexcept>

#include "probe_comm.h"

namespace {

using namespace gannet::sdk;

// param -= lr * grad * grad_scale, with a parameter of every type and failures on request.
struct Probe : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {
      learning_rate("1e-3"),
      [] {
        auto spec = role<GANNET_ROLE_BETA1, GANNET_ROLE_BETA2>(dynamic_numbers("betas", 2, "[0.9, 0.999]", "two moments"));
        return below(at_least(spec, 0), 1);
      }(),
      above(number("eps", "1e-8", "added to the denominator"), 0),
      boolean("nesterov", "false", "look ahead"),
      at_least(at_most(integer("window", "10", "steps to look back"), 100), 1),
      text("mode", "\"plain\"", "plain|throw|fail|late_fail|host", "what update does"),
      number("dampening", nullptr, "optional", GANNET_PARAM_NULLABLE),
      numbers("free", 0, "[]", "any number of numbers"),
      at_least(integers("sizes", 2, "[1, 2]", "two sizes"), 1),
      texts("layers", 0, "[]", "first|last|all", "which layers"),
  };
  Probe(const gannet_host& host, const Params& params) : OptimizerBase(host, params), mode(params.text("mode")) {
    if (params.boolean("nesterov") && !params.has("dampening"))
      throw Failure(GANNET_INVALID_ARGUMENT, "nesterov needs dampening: set it to 0");
  }
  std::vector<gannet_state_spec> states() const {
    return {state("exp_avg"), state("trust", GANNET_STATE_PER_TENSOR, GANNET_FLOAT32, 1),
            state("count", GANNET_STATE_SCALAR, GANNET_INT64)};
  }
  void update(const gannet_update_args& args) {
    if (mode == "throw") throw std::runtime_error("the gradient looks at you strangely");
    if (mode == "fail") throw Failure(GANNET_OUT_OF_MEMORY, "no room for the moment");
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    parallel_for(args.numel, 16, [&](uint64_t begin, uint64_t end) {
      if (mode == "late_fail" && end == args.numel) throw Failure(GANNET_IO_ERROR, "the last chunk is not there");
      for (uint64_t i = begin; i < end; ++i) param[i] -= static_cast<float>(args.hyper[0] * grad[i] * args.grad_scale);
    });
  }
  // Everything of the host table that an optimizer may use.
  void begin_step(const gannet_step_args& args) {
    if (mode != "host") return;
    *static_cast<int64_t*>(args.states[2]) += 1;
    warn("probe: " + std::to_string(host().thread_count(host().context)) + " threads");
    void* memory = host().allocate(host().context, 100, 4096);
    if (!memory || reinterpret_cast<uintptr_t>(memory) % 4096 != 0)
      throw Failure(GANNET_INTERNAL, "the host's memory is not aligned");
    host().deallocate(host().context, memory);
    double sum = 1 + rank();
    gannet_host_collective all_reduce{};
    all_reduce.operation = GANNET_HOST_ALL_REDUCE;
    all_reduce.dtype = GANNET_FLOAT64;
    all_reduce.reduce_op = GANNET_SUM;
    all_reduce.send = all_reduce.recv = &sum;
    all_reduce.count = 1;
    collective(all_reduce);
    warn("probe: sum " + std::to_string(sum) + " over " + std::to_string(world_size()));
  }
  std::string mode;
};

// param -= lr * grad / |grad of the whole tensor|: the smallest rule that needs tensor sums.
struct Sums : OptimizerBase {
  static constexpr gannet_param_spec kParams[] = {learning_rate("1")};
  using OptimizerBase::OptimizerBase;

  std::vector<gannet_sum_spec> wanted_sums() const { return {sum(GANNET_SUM_OF_TENSOR), sum(GANNET_SUM_OF_TENSOR)}; }
  void sums(const gannet_update_args& args, uint32_t, double* sums) {
    auto* grad = static_cast<const float*>(args.grad);
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = segment(args, s);
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i) sums[2 * s] += double(grad[i]) * grad[i];
      sums[2 * s + 1] += static_cast<double>(part.numel);
    }
  }
  void update(const gannet_update_args& args) {
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    for (uint64_t s = 0; s < args.segment_count; ++s) {
      const gannet_segment& part = segment(args, s);
      if (args.sums[2 * s + 1] != static_cast<double>(part.tensor_numel))
        throw Failure(GANNET_INTERNAL, "the sums do not cover the tensor");
      for (uint64_t i = part.offset; i < part.offset + part.numel; ++i)
        param[i] -= static_cast<float>(args.hyper[0] * grad[i] / std::sqrt(args.sums[2 * s]));
    }
  }
};

struct Halving : SchedulerBase {
  static constexpr gannet_param_spec kParams[] = {integer("every", nullptr, "steps between halvings", GANNET_PARAM_REQUIRED),
                                                  boolean("spoil", "false", "give a learning rate that is no number")};
  Halving(const HostServices& host, const Params& params, uint32_t)
      : SchedulerBase(host), every(static_cast<uint64_t>(params.integer("every"))), spoil(params.boolean("spoil")) {}
  uint64_t optional_roles() const { return bit_of(GANNET_ROLE_BETA2); }
  ScheduleValues value(const gannet_schedule_query& query) const {
    const double lr = base_value(query, GANNET_ROLE_LEARNING_RATE) * std::pow(0.5, static_cast<double>(query.step / every));
    return ScheduleValues()
        .set(GANNET_ROLE_LEARNING_RATE, spoil ? std::numeric_limits<double>::quiet_NaN() : lr)
        .set(GANNET_ROLE_BETA2, 0.99);
  }
  uint64_t every;
  bool spoil;
};

}  // namespace

GANNET_PLUGINS("optimizer/probe@cpu optimizer/sums scheduler/halving comm/probe", GANNET_TIER_STABLE,
               optimizer<Probe>("Probe", "cpu", "1.2.3", "an optimizer to try things on"),
               optimizer<Sums>("Sums", "", "0.1", "normalised gradient descent"),
               scheduler<Halving>("Halving", "0.2", "halves the learning rate"), gannet_test::comm_descriptor())
