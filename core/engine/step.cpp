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

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", number);
  return text;
}

void* at_element(const at::Tensor& flat, int64_t element) {
  return static_cast<char*>(flat.data_ptr()) + element * static_cast<int64_t>(flat.element_size());
}

// A stretch of a range whose gradient lies in one buffer: the whole range where gradients are in the flat buffer, else one
// tensor each, as autograd made them.
struct Piece {
  int64_t offset, numel;         // elements into the range's buffers
  int64_t first, count;          // its tensors
  at::Tensor grad;
  const gannet_segment* segments;
};

std::vector<Piece> pieces_of(const Range& range) {
  bool is_flat = true;
  for (const auto& parameter : range.parameters) is_flat = is_flat && parameter.held.is_alias_of(range.grad);
  if (is_flat) return {{0, range.numel, 0, static_cast<int64_t>(range.parameters.size()), range.grad, range.segments.data()}};
  std::vector<Piece> pieces;
  pieces.reserve(range.parameters.size());
  for (size_t p = 0; p < range.parameters.size(); ++p) {
    const auto& parameter = range.parameters[p];
    pieces.push_back({parameter.offset, parameter.numel, static_cast<int64_t>(p), 1, parameter.held, &range.own_segments[p]});
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

// One pass over the gradients: their norm, and whether all are finite.
EngineBase::Impl::Check EngineBase::Impl::check() {
  double squares = 0;
  bool finite = true;
  at::Tensor device_squares;  // [] fp64, on the device: one wait for it, at the end
  for (auto& range : ranges) {
    for (const Piece& piece : pieces_of(range)) {
      if (device.is_cpu()) {
        const NormResult part = sum_of_squares(piece.grad.const_data_ptr(), to_dtype(range.grad_dtype), static_cast<uint64_t>(piece.numel), 0);
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
  for (auto& range : ranges) {
    Group& group = groups[range.group];
    Optimizer& optimizer = *group.optimizer;
    gannet_update_args args{};
    args.struct_size = sizeof(args);
    args.param_dtype = to_dtype(range.master_dtype);
    args.grad_dtype = to_dtype(range.grad_dtype);
    args.out_dtype = range.has_master_copy() ? to_dtype(range.dtype) : GANNET_DTYPE_NONE;
    args.state_count = range.states.size();
    args.grad_scale = grad_scale;
    args.step = static_cast<uint64_t>(applied_steps) + 1;
    args.hyper = group.hyper.data();
    args.hyper_count = group.hyper.size();
    args.segment_stride = sizeof(gannet_segment);
    args.stream = current_stream();
    std::vector<void*> states(range.states.size());
    for (const Piece& piece : pieces_of(range)) {
      args.numel = static_cast<uint64_t>(piece.numel);
      args.param = at_element(range.master, piece.offset);
      args.grad = piece.grad.const_data_ptr();
      args.out = range.has_master_copy() ? at_element(range.param, piece.offset) : nullptr;
      for (size_t s = 0; s < states.size(); ++s) {
        const auto extent = optimizer.states()[s].extent;
        states[s] = at_element(range.states[s], extent == GANNET_STATE_PER_ELEMENT ? piece.offset : extent == GANNET_STATE_PER_TENSOR ? piece.first : 0);
      }
      args.states = states.data();
      args.segments = piece.segments;
      args.segment_count = static_cast<uint64_t>(piece.count);
      if (optimizer.has(GANNET_OPTIMIZER_NEEDS_TENSOR_SUMS)) {
        // At stage 0 every tensor is whole on every rank, so the sums need no reduction.
        std::vector<double> sums(args.segment_count * optimizer.sums_per_tensor(), 0.0);
        optimizer.partials(args, sums.data());
        optimizer.apply(args, sums.data());
      } else {
        optimizer.update(args);
      }
    }
  }
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

std::string EngineBase::Impl::first_non_finite() const {
  for (const auto& range : ranges) {
    for (const auto& parameter : range.parameters) {
      const at::Tensor grad = parameter.held;
      const at::Tensor finite = at::isfinite(grad).flatten();
      if (finite.all().item<bool>()) continue;
      const int64_t index = finite.logical_not().to(at::kByte).argmax().item<int64_t>();
      return "the gradient of '" + parameter.name + "' is " + short_number(grad.flatten()[index].item<double>()) + " at element " + std::to_string(index) +
             (loss_was_finite ? "" : " (the loss was not finite either)");
    }
  }
  return "the gradients' norm is too large for a number";
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
