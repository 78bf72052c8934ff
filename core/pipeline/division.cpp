#include "pipeline/division.h"

#include <gannet/error.h>
#include <gannet/log.h>
#include <gannet/mesh.h>

#include <string>
#include <utility>

#include "base/format.h"
#include "base/text.h"
#include "config/precision.h"
#include "estimate/plan.h"
#include "params/store.h"
#include "pipeline/layer_costs.h"
#include "pipeline/layer_facts.h"
#include "pipeline/partition.h"
#include "pipeline/simulate.h"

namespace gannet::pipeline {
namespace {

// The partition method, and where it was set, for messages.
std::pair<std::string, std::string> method_of(const pipe::Options& options, const Dict& section) {
  if (options.partition_method) return {*options.partition_method, "pipe::Options::partition_method"};
  const Value* const partition = section.find("partition");
  if (partition && partition->as_string() != "best") return {partition->as_string(), "pipeline.partition"};
  return {"parameters", "the default partition method"};
}

// Bytes per parameter, including its gradient, master and Adam states, that each rank keeps after
// ZeRO sharding and offload in the memory that also holds the activations.
double bytes_of_parameter(const RankContext& ranks) {
  const config::Settings& settings = ranks.settings();
  const MeshShape& mesh = ranks.mesh->shape();
  const bool is_16_bit = ranks.precision().model.has_value();
  zero::Plan plan;
  plan.ranks = mesh.world_size() / mesh.size(kPipeAxis) / mesh.size(kTensorAxis);
  plan.device_is_host = ranks.computes_on_host();
  plan.placement = {static_cast<int>(settings.zero.stage), zero::tier_of(settings.zero.offload_optimizer),
                    zero::tier_of(settings.zero.offload_param)};
  plan.ranks_per_host = plan.ranks;
  plan.model.param_bytes = is_16_bit ? 2 : 4;
  plan.model.master_bytes = is_16_bit && !settings.bf16.without_masters ? 4 : 0;
  if (settings.bf16.without_masters) plan.model.state_bytes = 4;  // two of bf16
  const at::ScalarType gradients = settings.grad_accum_dtype ? scalar_type(*settings.grad_accum_dtype) : at::kFloat;
  plan.model.grad_bytes = settings.grad_accum_dtype || !is_16_bit ? static_cast<uint32_t>(c10::elementSize(gradients)) : 2;
  return zero::bytes_per_parameter(plan);
}

// Divides by measured time or memory. A part's memory is its parameters plus the activations of as
// many micro-batches as the schedule keeps alive in it.
std::vector<size_t> measured_bounds(const std::vector<Layer>& layers, const pipe::Options& options, const RankContext& ranks,
                                    ChosenSchedule& schedule, const std::string& method, const std::string& where) {
  const size_t parts = schedule.stage_of().size();
  check_layers(layers.size(), parts);
  const std::vector<LayerCost> costs = measured_costs(layers, options, ranks, where);
  const Schedule& order = schedule.of(ranks.settings().accumulation_steps);
  const std::vector<double> alive = simulate(order, even_times(order, {})).peaks;
  const double of_parameter = bytes_of_parameter(ranks);
  const bool by_time = is_by_time(method);
  const auto cost = [&](size_t part, size_t begin, size_t end) {
    double sum = 0;
    for (size_t l = begin; l < end; ++l)
      sum += by_time ? costs[l].seconds
                     : of_parameter * static_cast<double>(costs[l].parameters) +
                           alive[schedule.stage_of()[part]] * costs[l].kept_bytes;
    return sum;
  };
  const std::vector<size_t> bounds = partition_bottleneck(layers.size(), parts, cost);
  if (ranks.is_first()) {
    std::vector<std::string> texts;
    for (size_t part = 0; part < parts; ++part) {
      const double one = cost(part, bounds[part], bounds[part + 1]);
      texts.push_back(by_time ? formatted("{:.2f} ms", 1e3 * one) : size_text(static_cast<uint64_t>(one)));
    }
    log_info(formatted("layers divided by measured {}: {}", lower(method), join(texts, ", ")));
  }
  return bounds;
}

}  // namespace

Division divided(const std::vector<Layer>& layers, const pipe::Options& options, const RankContext& ranks,
                 ChosenSchedule& schedule) {
  Division cut{options.bounds, schedule.stage_of(), ranks.mesh->pipe_stages()};
  const size_t parts = cut.stage_of_part.size();
  if (!cut.bounds.empty()) {
    check_bounds(cut.bounds, layers.size(), parts);
    return cut;
  }
  const auto [method, where] = method_of(options, ranks.settings().pipeline);
  if (is_by_time(method) || is_by_memory(method))
    cut.bounds = measured_bounds(layers, options, ranks, schedule, method, where);
  else
    cut.bounds = partition(facts_of(layers, /*counts=*/is_by_parameters(method)), parts, method, where);
  for (size_t part = 0; part < parts; ++part)
    if (cut.bounds[part] == cut.bounds[part + 1])
      throw Error(ErrorCode::kConfig,
                  formatted("{}: '{}' leaves {} {} without layers", where, method, parts > cut.stages ? "chunk" : "stage", part),
                  "use fewer stages, another method, or pipe::Options::bounds");
  return cut;
}

}  // namespace gannet::pipeline
