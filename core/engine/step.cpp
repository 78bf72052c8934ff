// One boundary, in the order in which things happen: reduce (end of it) -> check -> clip -> lr -> update -> publish -> tell.
#include "base/check.h"
#include "control/world.h"
#include "engine/impl.h"
#include "precision/grad_norm.h"
#include "tensor/dtype.h"

#include <gannet/log.h>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace gannet {
namespace {

constexpr size_t kPlaceDigits = 36;

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", number);
  return text;
}

void* at_element(const at::Tensor& flat, int64_t element) {
  return static_cast<char*>(flat.data_ptr()) + element * static_cast<int64_t>(flat.element_size());
}

// A stretch of a range that the optimizer takes at once: a shard of it; without sharding the whole, or one tensor each where
// gradients are as autograd made them.
struct Piece {
  at::Tensor master, grad, out;  // [numel]; out is undefined where parameters are their own masters
  int64_t own;                   // elements into this rank's states
  size_t first;                  // its first tensor
  const gannet_segment* segments;
  size_t segment_count;
};

std::vector<Piece> pieces_of(const Range& range) {
  std::vector<Piece> pieces;
  bool is_flat = true;
  if (!range.is_sharded())
    for (const auto& parameter : range.parameters) is_flat = is_flat && parameter.held.is_alias_of(range.grad);
  if (is_flat) {
    for (size_t s = 0; s < range.stretches.size(); ++s) {
      const auto& stretch = range.stretches[s];
      const auto& segments = range.segments[s];
      pieces.push_back({range.master_of(stretch), range.grad_of(stretch), range.has_master_copy() ? range.param_of(stretch) : at::Tensor(), stretch.own,
                        segments.empty() ? 0 : segments[0].tensor_id, segments.data(), segments.size()});
    }
    return pieces;
  }
  for (size_t p = 0; p < range.parameters.size(); ++p) {
    const auto& parameter = range.parameters[p];
    const zero::Shard whole{parameter.offset, parameter.offset, parameter.numel};
    pieces.push_back({range.master_of(whole), parameter.held, range.has_master_copy() ? range.param_of(whole) : at::Tensor(), parameter.offset, p, &range.own_segments[p], 1});
  }
  return pieces;
}

// The sum of squares in fp64. LibTorch's norm works on a copy in fp64, so it is taken by parts.
at::Tensor squares_on_device(const at::Tensor& flat) {
  constexpr int64_t kPartNumel = 16 << 20;
  at::Tensor sum;
  for (int64_t begin = 0; begin < flat.numel(); begin += kPartNumel) {
    const at::Tensor part = at::linalg_vector_norm(flat.narrow(0, begin, std::min(kPartNumel, flat.numel() - begin)), 2, {}, false, at::kDouble).square();
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum;
}

}  // namespace

StepResult EngineBase::step() {
  Impl& impl = *impl_;
  if (impl.no_sync) throw Error(ErrorCode::kOrder, "step() was called inside no_sync()", "end the NoSync scope before step()");
  if (impl.groups.empty() || (!impl.groups[0].optimizer && !impl.user_optimizer))
    throw Error(ErrorCode::kOrder, "step() was called, but there is no optimizer", "add an \"optimizer\" block to the config, or pass one to initialize");
  if (impl.phase != Phase::kBackwarded)
    throw Error(ErrorCode::kOrder, std::string("step() was called ") + (impl.phase == Phase::kIdle ? "before forward() and backward()" : "before backward()"),
                "the order of a micro-batch is forward, backward, step");
  if (!impl.is_boundary()) {
    impl.phase = Phase::kIdle;
    ++impl.micro_steps;
    return {false, false, "accumulating gradients: micro-batch " + std::to_string((impl.micro_steps - 1) % gradient_accumulation_steps() + 1) +
                              " of " + std::to_string(gradient_accumulation_steps())};
  }
  if (impl.comm->size() > 1 && !impl.reducer->is_reduced())
    throw Error(ErrorCode::kOrder, "step() is at a boundary, but the gradients were not averaged over the " + std::to_string(impl.comm->size()) + " ranks",
                "run the last backward() of a step outside no_sync(), or call allreduce_gradients() before step()");
  auto call = impl.process_group->world()->enter(*impl.comm, "step", impl.global_steps + 1, "", control::Watch::Call::kAtOnce);
  impl.phase = Phase::kIdle;
  impl.disarm();
  StepResult result{true, true, ""};
  {
    at::NoGradGuard no_grad;
    Timers::Scope timed(impl.timers.step_ms);
    {
      Timers::Scope waited(impl.timers.reduce_ms);
      impl.reducer->wait();
    }
    const Impl::Check check = impl.check();
    if (check.finite) {
      impl.grad_norm = check.norm;
      impl.update(impl.clip(check.norm));
      ++impl.applied_steps;
      impl.consecutive_skips = 0;
      if (!impl.schedule_is_by_hand) impl.advance_schedule();
    } else {
      impl.grad_norm.reset();
      result = impl.skip(impl.first_non_finite());
    }
    if (impl.is_fp16) impl.scaler.update(!check.finite);
    impl.last_step_applied = result.applied;
    impl.forget_gradients();
    ++impl.micro_steps;
    ++impl.global_steps;
    impl.global_samples += impl.settings().train_batch_size;
  }
  impl.tell(result);
  return result;
}

// One pass over the gradients: their norm, and whether all are finite. A rank sees its shards; the sums go to all.
EngineBase::Impl::Check EngineBase::Impl::check() {
  double squares = 0;
  bool finite = true, is_sharded = false;
  at::Tensor device_squares;  // [] fp64, on the device: one wait for it, at the end
  for (auto& range : ranges) {
    is_sharded = is_sharded || range.is_sharded();
    for (const Piece& piece : pieces_of(range)) {
      if (device.is_cpu()) {
        const NormResult part = sum_of_squares(piece.grad.const_data_ptr(), to_dtype(range.grad_dtype), static_cast<uint64_t>(piece.grad.numel()), 0);
        squares += part.sum_of_squares;
        finite = finite && part.finite;
      } else {
        const at::Tensor part = squares_on_device(piece.grad.flatten());
        device_squares = device_squares.defined() ? device_squares.add_(part) : part;
      }
    }
  }
  if (device_squares.defined()) {
    squares = device_squares.item<double>();
    finite = std::isfinite(squares);
  }
  if (is_sharded) {
    double totals[] = {finite ? squares : 0, finite ? 0.0 : 1.0};
    comm->all_reduce(totals, 2, GANNET_FLOAT64).wait();
    squares = totals[0];
    finite = totals[1] == 0;
  }
  const double scale = reducer->mean_factor() / scaler.scale();
  return {std::sqrt(squares) * scale, finite};
}

// Clipping is a number, not a pass: it is folded into what the update multiplies each gradient by.
double EngineBase::Impl::clip(double norm) const {
  double factor = reducer->mean_factor() / scaler.scale();
  const double limit = settings().gradient_clipping;
  if (limit > 0) {
    const double excess = (norm + 1e-6) / limit;  // DeepSpeed's: reference ZeRO, unscale_and_clip_grads
    if (excess > 1) factor /= excess;
  }
  return factor;
}

// Work goes behind what the program has queued on the calling thread's current stream: its gradients came from there.
void* EngineBase::Impl::current_stream() const {
  if (!accelerator->has(GANNET_ACCELERATOR_STREAMS)) return nullptr;
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
  return accelerator->native_stream(static_cast<uint32_t>(device.index()), stream.id());
}

void EngineBase::Impl::update(double grad_scale) {
  if (user_optimizer) return update_with_user_optimizer(grad_scale);
  if (residency) residency->forget();
  for (auto& range : ranges) {
    update(range, grad_scale);
    if (range.shards_parameters()) publish_staying(range);
  }
  finish_publishing();
}

void EngineBase::Impl::update(Range& range, double grad_scale) {
  Group& group = groups[range.group];
  Optimizer& optimizer = *group.optimizer;
  std::vector<void*> states(range.states.size());
  const auto arguments = [&](const Piece& piece) {
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = to_dtype(range.master_dtype);
    args.grad_dtype = to_dtype(range.grad_dtype);
    args.out_dtype = piece.out.defined() ? to_dtype(range.dtype) : GANNET_DTYPE_NONE;
    args.numel = static_cast<uint64_t>(piece.master.numel());
    args.param = piece.master.data_ptr();
    args.grad = piece.grad.const_data_ptr();
    args.out = piece.out.defined() ? piece.out.data_ptr() : nullptr;
    for (size_t s = 0; s < states.size(); ++s) {
      const auto extent = optimizer.states()[s].extent;
      states[s] = at_element(range.states[s], extent == GANNET_STATE_PER_ELEMENT ? piece.own : extent == GANNET_STATE_PER_TENSOR ? static_cast<int64_t>(piece.first) : 0);
    }
    args.states = states.data();
    args.state_count = states.size();
    args.grad_scale = grad_scale;
    args.step = static_cast<uint64_t>(applied_steps) + 1;
    args.hyper = group.hyper.data();
    args.hyper_count = group.hyper.size();
    args.segments = piece.segments;
    args.segment_count = piece.segment_count;
    args.segment_stride = sizeof(gannet_segment);
    args.stream = current_stream();
    return args;
  };

  const std::vector<Piece> pieces = pieces_of(range);
  if (!optimizer.has(GANNET_OPTIMIZER_NEEDS_TENSOR_SUMS)) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      optimizer.update(arguments(pieces[i]));
      if (range.is_sharded() && !range.shards_parameters()) publish(range, i);  // goes out while the next shard is updated
    }
    return;
  }
  // Sums of whole tensors, parts of which may lie on other ranks.
  const size_t width = optimizer.sums_per_tensor();
  std::vector<double> sums(range.parameters.size() * width, 0.0);
  for (const Piece& piece : pieces) {
    std::vector<double> partials(piece.segment_count * width, 0.0);
    optimizer.partials(arguments(piece), partials.data());
    for (size_t i = 0; i < partials.size(); ++i) sums[piece.segments[i / width].tensor_id * width + i % width] += partials[i];
  }
  if (range.is_sharded()) comm->all_reduce(sums.data(), sums.size(), GANNET_FLOAT64).wait();
  for (size_t i = 0; i < pieces.size(); ++i) {
    std::vector<double> of_piece;
    for (size_t s = 0; s < pieces[i].segment_count; ++s) {
      const double* of_tensor = &sums[pieces[i].segments[s].tensor_id * width];
      of_piece.insert(of_piece.end(), of_tensor, of_tensor + width);
    }
    optimizer.apply(arguments(pieces[i]), of_piece.data());
    if (range.is_sharded() && !range.shards_parameters()) publish(range, i);
  }
}

void EngineBase::Impl::publish(Range& range, size_t shard) {
  const auto& bucket = range.layout.buckets[shard];
  const at::Tensor mine = range.param_of(range.shards[shard]);
  publishing.push_back(comm->all_gather(mine.const_data_ptr(), at_element(range.param, bucket.offset), static_cast<uint64_t>(mine.numel()), to_dtype(range.dtype)));
}

void EngineBase::Impl::finish_publishing() {
  for (auto& work : publishing) work.wait();
  publishing.clear();
}

void EngineBase::Impl::publish_all() {
  if (residency) residency->forget();
  for (auto& range : ranges) {
    for (size_t s = 0; s < range.shards.size(); ++s) {
      if (range.has_master_copy()) range.param_of(range.shards[s]).copy_(range.master_of(range.shards[s]));
      if (range.is_sharded() && !range.shards_parameters()) publish(range, s);
    }
    if (range.shards_parameters()) publish_staying(range);
  }
  finish_publishing();
}

StepResult EngineBase::Impl::skip(const std::string& why) {
  if (!skips_non_finite) {
    forget_gradients();
    throw Error(ErrorCode::kNonFinite, "step " + std::to_string(global_steps + 1) + ": " + why + "; the step was not taken and the parameters are as before it",
                "look for a too large learning rate or a bad sample; get_lr() and the batch of this step are where to begin");
  }
  ++skipped_steps;
  ++consecutive_skips;
  std::string reason = "step " + std::to_string(global_steps + 1) + " skipped: " + why;
  if (is_fp16) {
    LossScaler after = scaler;
    after.update(true);  // throws when the scale is at its minimum
    reason += after.scale() == scaler.scale() ? "; the loss scale stays " + short_number(scaler.scale())
                                              : "; the loss scale goes from " + short_number(scaler.scale()) + " to " + short_number(after.scale());
  }
  const bool scale_can_mend = is_fp16 && settings().fp16.loss_scale == 0;
  if (!scale_can_mend && consecutive_skips > settings().max_consecutive_skips)
    throw Error(ErrorCode::kNonFinite, reason + "; it is the " + std::to_string(consecutive_skips) + "th in a row",
                "the run does not recover by itself: lower the learning rate or look at the data (gannet.max_consecutive_skips sets the limit)");
  return {false, true, reason};
}

// The first in the order of the parameters. Where gradients are sharded every rank calls it, and all get the same answer.
std::string EngineBase::Impl::first_non_finite() {
  std::string found;  // begins with its place, in digits that sort
  bool is_sharded = false;
  for (size_t r = 0; r < ranges.size(); ++r) {
    const Range& range = ranges[r];
    is_sharded = is_sharded || range.is_sharded();
    for (const auto& part : range.parts) {
      if (!found.empty()) break;
      const auto& parameter = range.parameters[part.tensor];
      const at::Tensor grad = range.is_sharded() ? range.grad_of({part.offset, part.own, part.numel}) : parameter.held.flatten();
      const at::Tensor finite = at::isfinite(grad);
      if (finite.all().item<bool>()) continue;
      const int64_t index = finite.logical_not().to(at::kByte).argmax().item<int64_t>();
      char place[kPlaceDigits + 1];
      std::snprintf(place, sizeof(place), "%06zu%010zu%020lld", r, part.tensor, static_cast<long long>(part.begin));
      found = place + ("the gradient of '" + parameter.name + "' is ") + short_number(grad[index].item<double>()) + " at element " +
              std::to_string(part.begin + index) + (loss_was_finite ? "" : " (the loss was not finite either)");
    }
  }
  if (is_sharded)
    for (const auto& text : gather_texts(*comm, found))
      if (!text.empty() && (found.empty() || text < found)) found = text;
  return found.empty() ? "the gradients' norm is too large for a number" : found.substr(kPlaceDigits);
}

void EngineBase::Impl::advance_schedule() {
  ++schedule_position;
  apply_schedule();
}

void EngineBase::Impl::apply_schedule() {
  for (size_t g = 0; g < groups.size(); ++g) {
    Group& group = groups[g];
    Scheduler::Value value;
    if (user_schedule.function) value.lr = user_schedule.function(schedule_position);
    else if (scheduler) value = scheduler->at(static_cast<uint64_t>(schedule_position), static_cast<uint32_t>(g), group.base_lr);
    else return;
    if (double* lr = group.find("lr"); lr && value.lr) *lr = *value.lr;
    if (double* beta1 = group.find("betas[0]"); beta1 && value.beta1) *beta1 = *value.beta1;
    if (double* beta2 = group.find("betas[1]"); beta2 && value.beta2) *beta2 = *value.beta2;
  }
}

void EngineBase::Impl::forget_gradients() {
  reducer->forget();
  if (keeps_user_grads) {
    for (auto& range : ranges)
      for (auto& parameter : range.parameters) parameter.tensor.mutable_grad().reset();
    keeps_user_grads = false;
  }
}

void EngineBase::Impl::tell(const StepResult& result) {
  const bool is_first = comm->rank() == 0;
  if (!result.applied && is_first) log_warning(result.reason);
  if (settings().wall_clock_breakdown && is_first) log_info(timers.take_line());
  if (settings().steps_per_print && *settings().steps_per_print > 0 && global_steps % *settings().steps_per_print == 0 && is_first) {
    std::string line = "step=" + std::to_string(global_steps) + ", skipped=" + std::to_string(skipped_steps), rates;
    for (auto& group : groups)
      if (const double* lr = group.find("lr")) rates += (rates.empty() ? "" : ", ") + short_number(*lr);
    log_info(line + ", lr=[" + rates + "]" + (grad_norm ? ", grad_norm=" + short_number(*grad_norm) : ""));
  }
}

}  // namespace gannet
