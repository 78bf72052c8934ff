#include "update/evaluation.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "tensor/dtype.h"

namespace gannet {
namespace {

// Elements at a time, so that what lies on a drive needs little memory: a multiple of every alignment of ranges.
constexpr int64_t kStretch = 1 << 22;

}  // namespace

bool EvaluationWeights::exist() const {
  return std::any_of(groups_.begin(), groups_.end(),
                     [](const Group& group) { return group.optimizer && group.optimizer->has_evaluation_weights(); });
}

void EvaluationWeights::enter(int64_t applied_steps) {
  if (in_use_) return;
  const at::NoGradGuard no_grad;
  for (Range& range : store_.ranges()) {
    if (!groups_[range.group].optimizer->has_evaluation_weights()) continue;
    kept_.push_back({&range, store_.make_like_masters(range, "masters, while it evaluates")});
    evaluate(range, kept_.back().masters, applied_steps);
  }
  in_use_ = true;
  store_.publish_all();
}

void EvaluationWeights::leave() {
  if (!in_use_) return;
  const at::NoGradGuard no_grad;
  for (const Kept& kept : kept_)
    for (const zero::Part& part : kept.range->parts)
      for (int64_t done = 0; done < part.numel; done += kStretch) {
        const zero::Shard place{part.offset + done, part.own + done, std::min(kStretch, part.numel - done)};
        kept.range->set_master(place, kept.masters.get(place.own, place.numel));
      }
  kept_.clear();
  in_use_ = false;
  store_.publish_all();
}

// A tensor's part at a time: tensors may have different numbers of updates.
void EvaluationWeights::evaluate(Range& range, const Array& kept, int64_t applied_steps) {
  Group& group = groups_[range.group];
  Optimizer& optimizer = *group.optimizer;
  const at::Device device = context_.update_device();
  for (const zero::Part& part : range.parts) {
    const int64_t updates = applied_steps - range.parameters[part.tensor].lag;
    for (int64_t done = 0; done < part.numel; done += kStretch) {
      const zero::Shard place{part.offset + done, part.own + done, std::min(kStretch, part.numel - done)};
      const at::Tensor master = range.master_of(place);
      kept.set(place.own, master);
      if (updates == 0) continue;  // it is where it began
      const at::Tensor param = master.to(device).contiguous();
      const at::Tensor out = at::empty_like(param);
      std::vector<at::Tensor> states;  // those on a drive are copies
      std::vector<void*> places;
      for (size_t s = 0; s < optimizer.states().size(); ++s) {
        const Optimizer::State& state = optimizer.states()[s];
        if (!state.is_cut()) {
          places.push_back(group.own_states[s].data_ptr());
          continue;
        }
        const zero::Part values = Range::values_in({part.tensor, part.begin + done, place.offset, place.own, place.numel}, state);
        places.push_back(states.emplace_back(range.states[s].get(values.own, values.numel)).data_ptr());
      }
      const std::vector<Segment> segments = segments_in(range, place.own, place.numel);
      gannet_update_args args{};
      args.struct_size = sizeof(args);
      args.param_dtype = args.out_dtype = to_dtype(range.master_dtype);
      args.grad_dtype = GANNET_DTYPE_NONE;
      args.numel = static_cast<uint64_t>(place.numel);
      args.param = param.data_ptr();
      args.out = out.data_ptr();
      args.states = places.data();
      args.state_count = places.size();
      args.grad_scale = 1;
      args.step = static_cast<uint64_t>(updates);
      args.hyper = group.hyper.data();
      args.hyper_count = group.hyper.size();
      args.segments = segments.data();
      args.segment_count = segments.size();
      args.segment_stride = sizeof(Segment);
      args.group = static_cast<uint32_t>(range.group);
      args.device = context_.updates_on_host() ? 0 : context_.device_index();
      args.stream = context_.updates_on_host() ? nullptr : context_.current_stream();
      optimizer.evaluate(args);
      range.set_master(place, out);
    }
  }
}

}  // namespace gannet
