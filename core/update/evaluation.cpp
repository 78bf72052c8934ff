#include "update/evaluation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "tensor/dtype.h"
#include "update/group_states.h"
#include "update/workspace.h"

namespace gannet {
namespace {

// Processes this many elements at a time, to bound the temporary memory for arrays on a drive. A
// multiple of every range's alignment.
constexpr int64_t kStretch = 1 << 22;

}  // namespace

bool ranks_differ(const RankContext& context, const Group& group, int64_t applied_steps) {
  const int64_t updates = applied_steps - group.lag;
  return context.comm->size() > 1 && group.optimizer && updates > 0 &&
         group.optimizer->reduction(static_cast<uint64_t>(updates)) == GANNET_REDUCED_LATER;
}

bool EvaluationWeights::are_others(const Group& group, int64_t applied_steps) const {
  if (!group.optimizer || !group.optimizer->has_evaluation_weights()) return false;
  return !group.optimizer->owns_grad_reduction() || ranks_differ(context_, group, applied_steps);
}

bool EvaluationWeights::exist(int64_t applied_steps) const {
  const auto has_average = [](const Range& range) { return range.average.defined(); };
  if (std::any_of(store_.ranges().begin(), store_.ranges().end(), has_average)) return true;
  return std::any_of(groups_.begin(), groups_.end(), [&](const Group& group) { return are_others(group, applied_steps); });
}

// Swaps masters and average without a third copy. A second call restores both bit for bit.
void EvaluationWeights::swap_average(Range& range) const {
  for (const zero::TensorPart& part : range.parts)
    for (int64_t done = 0; done < part.numel; done += kStretch) {
      const zero::Shard place{part.offset + done, part.own + done, std::min(kStretch, part.numel - done)};
      const at::Tensor masters = range.master_of(place).clone();
      range.set_master(place, range.average.get(place.own, place.numel));
      range.average.set(place.own, masters);
    }
}

void EvaluationWeights::enter(int64_t applied_steps) {
  if (in_use_) return;
  const at::NoGradGuard no_grad;
  for (Range& range : store_.ranges()) {
    if (range.average.defined()) swap_average(range);
    if (!are_others(groups_[range.group], applied_steps)) continue;
    kept_.push_back({&range, store_.make_like_masters(range, "masters, while it evaluates")});
    for (const zero::TensorPart& part : range.parts)
      for (int64_t done = 0; done < part.numel; done += kStretch) {
        const zero::TensorPart stretch{part.tensor, part.begin + done, part.offset + done, part.own + done,
                                       std::min(kStretch, part.numel - done)};
        const zero::Shard place{stretch.offset, stretch.own, stretch.numel};
        kept_.back().masters.set(place.own, range.master_of(place));
        range.set_master(place, evaluate(range, stretch, applied_steps));
      }
  }
  in_use_ = true;
  store_.publish_all();
}

at::Tensor EvaluationWeights::of(const Range& range, size_t parameter, int64_t applied_steps) const {
  const at::NoGradGuard no_grad;
  const TrainedParameter& of = range.parameters[parameter];
  at::Tensor values = at::empty({of.numel}, at::TensorOptions().dtype(range.master_dtype).device(context_.device));
  for (const zero::TensorPart& part : range.parts)
    if (part.tensor == parameter && part.numel > 0)
      values.narrow(0, part.begin, part.numel).copy_(evaluate(range, part, applied_steps));
  return values.view(of.shape);
}

void EvaluationWeights::leave() {
  if (!in_use_) return;
  const at::NoGradGuard no_grad;
  for (const KeptMasters& kept : kept_)
    for (const zero::TensorPart& part : kept.range->parts)
      for (int64_t done = 0; done < part.numel; done += kStretch) {
        const zero::Shard place{part.offset + done, part.own + done, std::min(kStretch, part.numel - done)};
        kept.range->set_master(place, kept.masters.get(place.own, place.numel));
      }
  kept_.clear();
  for (Range& range : store_.ranges())
    if (range.average.defined()) swap_average(range);
  in_use_ = false;
  store_.publish_all();
}

// Evaluates a single part, because tensors may have had different numbers of updates. Before the
// first update, returns a copy of the masters.
at::Tensor EvaluationWeights::evaluate(const Range& range, const zero::TensorPart& part, int64_t applied_steps) const {
  Group& group = groups_[range.group];
  Optimizer& optimizer = *group.optimizer;
  const at::Device device = context_.update_device();
  const int64_t updates = applied_steps - range.parameters[part.tensor].lag;
  const at::Tensor master = range.master_of({part.offset, part.own, part.numel});
  if (updates == 0) return master.clone();  // not updated yet
  const at::Tensor param = master.to(device).contiguous();
  const at::Tensor out = at::empty_like(param);
  std::vector<at::Tensor> states;  // copies for states on a drive
  std::vector<void*> places;
  for (size_t s = 0; s < optimizer.states().size(); ++s) {
    const Optimizer::State& state = optimizer.states()[s];
    if (state.has_matrices()) {
      places.push_back(nullptr);
    } else if (!state.is_cut()) {
      places.push_back(group.group_states[s].data_ptr());
    } else if (state.is_served()) {  // this rank holds the states of a different part of the range
      places.push_back(nullptr);
    } else {
      const zero::TensorPart values = Range::values_in(part, state);
      places.push_back(states.emplace_back(range.states[s].get(values.own, values.numel)).data_ptr());
    }
  }
  const std::vector<Segment> segments = segments_in(range, part.own, part.numel);
  gannet_update_args args{};
  args.struct_size = sizeof(args);
  args.param_dtype = args.out_dtype = to_dtype(range.master_dtype);
  args.grad_dtype = GANNET_DTYPE_NONE;
  args.numel = static_cast<uint64_t>(part.numel);
  args.param = param.data_ptr();
  args.out = out.data_ptr();
  args.states = places.data();
  args.state_count = places.size();
  args.grad_scale = 1;
  args.loss = std::numeric_limits<double>::quiet_NaN();
  args.total_steps = static_cast<uint64_t>(context_.settings().total_steps);
  args.step = static_cast<uint64_t>(updates);
  args.hyper = group.hyper.data();
  args.hyper_count = group.hyper.size();
  args.segments = segments.data();
  args.segment_count = segments.size();
  args.segment_stride = sizeof(Segment);
  args.group = static_cast<uint32_t>(range.group);
  args.device = context_.updates_on_host() ? 0 : context_.device_index();
  args.stream = context_.updates_on_host() ? nullptr : context_.current_stream();
  Workspace workspace;
  args.workspace_bytes = optimizer.workspace_bytes(args.numel);
  args.workspace = workspace.of(args.workspace_bytes, device, optimizer.plugin());
  std::vector<void*> squares;
  squares_of(group, segments.data(), segments.size(), squares);
  args.squares = squares.empty() ? nullptr : squares.data();
  optimizer.evaluate(args);
  return out;
}

}  // namespace gannet
