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
      dynamic_number("lr", "1e-3", "learning rate"),
      [] {
        auto spec = dynamic_numbers("betas", 2, "[0.9, 0.999]", "two moments");
        return below(at_least(spec, 0), 1);
      }(),
      above(number("eps", "1e-8", "added to the denominator"), 0),
      boolean("nesterov", "false", "look ahead"),
      at_least(at_most(integer("window", "10", "steps to look back"), 100), 1),
      text("mode", "\"plain\"", "plain|throw|fail|late_fail|host", "what update does"),
      number("dampening", nullptr, "optional", GANNET_PARAM_NULLABLE),
      numbers("free", 0, "[]", "any number of numbers"),
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
    if (mode == "host") use_host();
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    parallel_for(args.numel, 16, [&](uint64_t begin, uint64_t end) {
      if (mode == "late_fail" && end == args.numel) throw Failure(GANNET_IO_ERROR, "the last chunk is not there");
      for (uint64_t i = begin; i < end; ++i) param[i] -= static_cast<float>(args.hyper[0] * grad[i] * args.grad_scale);
    });
  }
  // Everything of the host table that an update may use.
  void use_host() {
    warn("probe: " + std::to_string(host().thread_count(host().context)) + " threads");
    void* memory = host().allocate(host().context, 100, 4096);
    if (!memory || reinterpret_cast<uintptr_t>(memory) % 4096 != 0)
      throw Failure(GANNET_INTERNAL, "the host's memory is not aligned");
    host().deallocate(host().context, memory);
    std::string text(256, 0);
    gannet_error error{sizeof(gannet_error), 0, text.size(), text.data()};
    double sum = 1 + host().rank(host().context);
    if (const int32_t status = host().all_reduce(host().context, &sum, 1, GANNET_FLOAT64, GANNET_SUM, &error))
      throw Failure(static_cast<gannet_status>(status), text.c_str());
    warn("probe: sum " + std::to_string(sum) + " over " + std::to_string(host().world_size(host().context)));
  }
  std::string mode;
};

// param -= lr * grad / |grad of the whole tensor|: the smallest rule that needs tensor sums.
struct Sums : OptimizerBase {
  static constexpr uint64_t kCapabilities = GANNET_OPTIMIZER_NEEDS_TENSOR_SUMS;
  static constexpr uint64_t kSumsPerTensor = 2;
  static constexpr gannet_param_spec kParams[] = {dynamic_number("lr", "1", "learning rate")};
  using OptimizerBase::OptimizerBase;

  template <class Body>
  static void for_segments(const gannet_update_args& args, Body&& body) {
    for (uint64_t i = 0; i < args.segment_count; ++i)
      body(i, *reinterpret_cast<const gannet_segment*>(reinterpret_cast<const char*>(args.segments) + i * args.segment_stride));
  }
  void partials(const gannet_update_args& args, double* sums) {
    auto* grad = static_cast<const float*>(args.grad);
    for_segments(args, [&](uint64_t index, const gannet_segment& segment) {
      for (uint64_t i = segment.offset; i < segment.offset + segment.numel; ++i) sums[2 * index] += double(grad[i]) * grad[i];
      sums[2 * index + 1] += static_cast<double>(segment.numel);
    });
  }
  void apply(const gannet_update_args& args, const double* sums) {
    auto* param = static_cast<float*>(args.param);
    auto* grad = static_cast<const float*>(args.grad);
    for_segments(args, [&](uint64_t index, const gannet_segment& segment) {
      if (sums[2 * index + 1] != static_cast<double>(segment.tensor_numel))
        throw Failure(GANNET_INTERNAL, "the sums do not cover the tensor");
      for (uint64_t i = segment.offset; i < segment.offset + segment.numel; ++i)
        param[i] -= static_cast<float>(args.hyper[0] * grad[i] / std::sqrt(sums[2 * index]));
    });
  }
};

struct Halving {
  static constexpr gannet_param_spec kParams[] = {integer("every", nullptr, "steps between halvings", GANNET_PARAM_REQUIRED),
                                                  boolean("spoil", "false", "give a learning rate that is no number")};
  Halving(HostServices, const Params& params, uint32_t)
      : every(static_cast<uint64_t>(params.integer("every"))), spoil(params.boolean("spoil")) {}
  gannet_schedule_value value(const gannet_schedule_query& query) const {
    gannet_schedule_value value{};
    value.fields = GANNET_SCHEDULE_LR | GANNET_SCHEDULE_BETA2;
    value.lr =
        spoil ? std::numeric_limits<double>::quiet_NaN() : query.base_lr * std::pow(0.5, static_cast<double>(query.step / every));
    value.beta2 = 0.99;
    return value;
  }
  uint64_t every;
  bool spoil;
};

}  // namespace

GANNET_PLUGINS("optimizer/probe@cpu optimizer/sums scheduler/halving comm/probe", GANNET_TIER_STABLE,
               optimizer<Probe>("Probe", "cpu", "1.2.3", "an optimizer to try things on"),
               optimizer<Sums>("Sums", "", "0.1", "normalised gradient descent"),
               scheduler<Halving>("Halving", "0.2", "halves the learning rate"), gannet_test::comm_descriptor())
