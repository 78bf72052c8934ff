#include "update/updater.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "interfaces/seeds.h"
#include "params/pieces.h"
#include "update/argument_views.h"
#include "update/group_collectives.h"
#include "update/range_pass.h"

namespace gannet {
namespace {

// Returns the number of updates that each parameter has missed, or kSkipped if it misses this one
// as well. Empty if no parameter ever missed one.
std::vector<int64_t> lags_of(const Range& range, const Reducer& reducer) {
  std::vector<int64_t> lags;
  bool is_needed = false;
  lags.reserve(range.parameters.size());
  for (size_t p = 0; p < range.parameters.size(); ++p) {
    lags.push_back(is_skipped(range, p, reducer) ? kSkipped : range.parameters[p].lag);
    is_needed = is_needed || lags.back() != 0;
  }
  return is_needed ? lags : std::vector<int64_t>();
}

// Corrects the scale for gradients that the group's optimizer averages itself: they were not
// summed.
double scale_for(const Group& group, double grad_scale, const Reducer& reducer) {
  return group.has_unreduced_gradients ? grad_scale * (reducer.unreduced_factor() / reducer.mean_factor()) : grad_scale;
}

}  // namespace

void Updater::update(const UpdateStep& step) {
  Timers::Scope timed(context_.timers, TimedPhase::kUpdate);
  store_.forget_gathered();
  std::vector<Sums> sums;
  for (Group& group : groups_) sums.emplace_back(*group.optimizer);
  step_groups(&Optimizer::begin_step, step, sums);
  add_up(sums, GANNET_PASS_UPDATE, step);
  if (average_.is_on()) average_.begin(step.applied_steps + 1);
  for (auto& range : store_.ranges()) update_range(range, step, sums[range.group], {});
  step_groups(&Optimizer::end_step, step, sums);
}

void Updater::perturb(const UpdateStep& step) {
  Timers::Scope timed(context_.timers, TimedPhase::kUpdate);
  store_.forget_gathered();
  std::vector<Sums> sums;
  for (Group& group : groups_) sums.emplace_back(*group.optimizer, GANNET_PASS_PERTURB);
  add_up(sums, GANNET_PASS_PERTURB, step);
  for (auto& range : store_.ranges())
    if (groups_[range.group].optimizer->perturbs()) update_range(range, step, sums[range.group], {GANNET_PASS_PERTURB});
}

// Computes the sums of a pass over all ranks, round by round.
void Updater::add_up(std::vector<Sums>& sums, gannet_pass pass, const UpdateStep& step) {
  uint32_t rounds = 0;
  for (const Sums& group : sums) rounds = std::max(rounds, group.rounds());
  for (uint32_t round = 0; round < rounds; ++round) {
    for (auto& range : store_.ranges()) update_range(range, step, sums[range.group], {pass, round});
    complete_sums(sums, round, context_, store_);
  }
}

// Moves the masters to the point of the second pass. The kept masters are the input and the
// masters' memory is the output, so no third copy is needed. Gaps between tensors do not change.
void Updater::perturb_piece(Optimizer& optimizer, Range& range, const Piece& piece, gannet_update_args args) {
  const at::Device device = context_.update_device();
  const at::Tensor masters = view_of(args, args.param, args.param_dtype, device);
  std::optional<at::Tensor> copy;
  if (args.out) copy = view_of(args, args.out, args.out_dtype, device);
  perturbation_.keep(range, piece.place, masters);
  at::Tensor before = perturbation_.kept(range, piece.place);
  if (!before.defined() || before.device() != device) before = masters.clone();  // the arrays are paged
  args.out = std::exchange(args.param, before.data_ptr());
  args.out_dtype = args.param_dtype;
  optimizer.perturb(args);
  if (copy) copy->copy_(masters);
}

// Calls begin_step or end_step of every group, with the host's collectives available.
void Updater::step_groups(void (Optimizer::*function)(gannet_step_args), const UpdateStep& step, std::vector<Sums>& sums) {
  GroupCollectives collectives(context_);
  const Host::OpenCollectives open(context_.host, collectives);
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    std::vector<void*> states;
    for (const at::Tensor& state : group.group_states) states.push_back(state.defined() ? state.data_ptr() : nullptr);
    gannet_step_args args{};
    args.group = static_cast<uint32_t>(g);
    args.step = static_cast<uint64_t>(step.applied_steps - group.lag) + 1;
    args.grad_scale = scale_for(group, step.grad_scale, step.reducer);
    args.hyper = group.hyper.data();
    args.hyper_count = group.hyper.size();
    args.states = states.data();
    args.state_count = states.size();
    if (function == &Optimizer::end_step) {
      args.sums = sums[g].data();
      args.lines = sums[g].lines();
    }
    args.sum_count = sums[g].width();
    args.stream = context_.updates_on_host() ? nullptr : context_.current_stream();
    args.seed = seed_of(*group.optimizer, step.applied_steps);
    args.workspace_bytes = group.optimizer->workspace_bytes(0);
    args.workspace = step_workspace_.of(args.workspace_bytes, at::kCPU, group.optimizer->plugin());
    args.loss = loss_of(*group.optimizer, step);
    args.total_steps = static_cast<uint64_t>(context_.settings().total_steps);
    const std::string prefix = groups_.size() == 1 ? "optimizer/" : formatted("optimizer/group{}/", g);
    const Host::OpenMetrics metrics(context_.host, [&](const std::string& name, double value) {
      if (step.show_metric) step.show_metric(prefix + name, value);
    });
    try {
      (group.optimizer.get()->*function)(args);
    } catch (const Error&) {
      collectives.rethrow();
      throw;
    }
  }
}

uint64_t Updater::seed_of(const Optimizer& optimizer, int64_t applied_steps) const {
  return optimizer.uses_seed() ? step_seed(static_cast<uint64_t>(run_seed), applied_steps) : 0;
}

double Updater::loss_of(const Optimizer& optimizer, const UpdateStep& step) {
  return optimizer.has(GANNET_OPTIMIZER_USES_LOSS) ? step.loss : std::numeric_limits<double>::quiet_NaN();
}

// The maximum number of elements of a piece.
int64_t Updater::largest_page(const Range& range) const {
  int64_t begin = 0, largest = 0;
  for (const int64_t end : page_ends(range, store_.page_numel())) {
    largest = std::max(largest, end - begin);
    begin = end;
  }
  return largest;
}

HostUpdate& Updater::host_update(const Range& range) {
  const auto& ranges = store_.ranges();
  host_updates_.resize(ranges.size());
  const auto place = std::find_if(ranges.begin(), ranges.end(), [&](const Range& each) { return &each == &range; });
  auto& one = host_updates_[static_cast<size_t>(place - ranges.begin())];
  if (!one)
    one = std::make_unique<HostUpdate>(
        *context_.accelerator,
        HostUpdate::Options{.numel = largest_page(range),
                            .grad_dtype = gradients_on_host_ ? std::nullopt : std::optional(range.grad_dtype),
                            .param_dtype = range.dtype,
                            .reads_param = !range.has_master_copy(),
                            .device = context_.device_index()});
  return *one;
}

void Updater::update_range(Range& range, const UpdateStep& step, Sums& sums, PiecePass work) {
  if (work.round && !sums.has_round(*work.round)) return;
  Group& group = groups_[range.group];
  const bool updates = work.pass == GANNET_PASS_UPDATE && !work.round;
  const bool averages = updates && average_.is_on();
  std::vector<int64_t> lags;
  if (!group.optimizer->owns_grad_reduction()) lags = lags_of(range, step.reducer);
  if (averages && !lags.empty())  // the average also moves for parameters that keep their values in this update
    average_.move_parameters(range, [&](size_t parameter) { return lags[parameter] == kSkipped; });
  RangePass pass(context_, store_, range, group, sums, lags, context_.updates_on_host() ? &host_update(range) : nullptr,
                 {.pass = work.pass,
                  .writes = !work.round,
                  .grad_scale = scale_for(group, step.grad_scale, step.reducer),
                  .applied_steps = step.applied_steps,
                  .seed = seed_of(*group.optimizer, step.applied_steps),
                  .loss = loss_of(*group.optimizer, step),
                  .second_gradient = updates ? second_gradient_.of(range) : nullptr,
                  .average = averages ? &average_ : nullptr,
                  .gradients_on_host = gradients_on_host_},
                 memory_);
  if (work.round) return add_sums(pass, *group.optimizer, sums, *work.round);
  if (updates) return update_pieces(pass, group, step.applied_steps);
  pass.for_each([&](size_t i, const gannet_update_args& args) { perturb_piece(*group.optimizer, range, pass.piece(i), args); });
}

void Updater::update_pieces(RangePass& pass, const Group& group, int64_t applied_steps) {
  Optimizer& optimizer = *group.optimizer;
  if (pass.has_lists())
    return pass.for_lists([&](size_t, const std::vector<gannet_update_args>& list) { optimizer.update_many(list); });
  GroupCollectives collectives(context_);
  std::optional<Host::OpenCollectives> open;
  if (optimizer.reduction(static_cast<uint64_t>(applied_steps - group.lag) + 1) == GANNET_REDUCED_BY_UPDATE)
    open.emplace(context_.host, collectives);
  pass.for_each([&](size_t, const gannet_update_args& args) {
    try {
      optimizer.update(args);
    } catch (const Error&) {
      collectives.rethrow();
      throw;
    }
  });
}

void Updater::add_sums(RangePass& pass, Optimizer& optimizer, Sums& sums, uint32_t round) {
  const auto add = [&](const Piece& piece, const std::vector<double>& parts) {
    for (size_t k = 0; k < piece.segment_count; ++k)
      sums.add(piece.segments[k].tensor_index, round, parts.data() + k * sums.width());
  };
  if (!pass.has_lists())
    return pass.for_each([&](size_t i, const gannet_update_args& args) {
      std::vector<double> parts = sums.identity_values(args.segment_count);
      optimizer.sums(args, round, parts.data());
      add(pass.piece(i), parts);
    });
  pass.for_lists([&](size_t first, const std::vector<gannet_update_args>& list) {
    std::vector<std::vector<double>> parts;
    for (const gannet_update_args& args : list) parts.push_back(sums.identity_values(args.segment_count));
    std::vector<double*> places;
    for (auto& each : parts) places.push_back(each.data());
    optimizer.sums_many(list, round, places.data());
    for (size_t i = 0; i < list.size(); ++i) add(pass.piece(first + i), parts[i]);
  });
}

}  // namespace gannet
