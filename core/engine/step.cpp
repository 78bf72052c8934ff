// One boundary, in the order in which things happen: reduce (end of it) -> check -> clip -> lr -> update -> publish -> tell.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/log.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "control/world.h"
#include "engine/impl.h"
#include "engine/pieces.h"
#include "precision/grad_norm.h"
#include "tensor/dtype.h"
#include "tensor/torch_errors.h"

namespace gannet {
namespace {

constexpr size_t kPlaceDigits = 36;

std::string short_number(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", number);
  return text;
}

// The sum of squares in fp64. LibTorch's norm works on a copy in fp64, so it is taken by parts.
at::Tensor squares_on_device(const at::Tensor& flat) {
  constexpr int64_t kPartNumel = 16 << 20;
  at::Tensor sum;
  for (int64_t begin = 0; begin < flat.numel(); begin += kPartNumel) {
    const at::Tensor part =
        at::linalg_vector_norm(flat.narrow(0, begin, std::min(kPartNumel, flat.numel() - begin)), 2, {}, false, at::kDouble)
            .square();
    sum = sum.defined() ? sum.add_(part) : part;
  }
  return sum;
}

}  // namespace

StepResult EngineBase::step() try {
  Impl& impl = *impl_;
  if (impl.no_sync) throw Error(ErrorCode::kOrder, "step() was called inside no_sync()", "end the NoSync scope before step()");
  if (impl.groups.empty() || (!impl.groups[0].optimizer && !impl.user_optimizer))
    throw Error(ErrorCode::kOrder, "step() was called, but there is no optimizer",
                "add an \"optimizer\" block to the config, or pass one to initialize");
  if (impl.phase != Phase::kBackwarded)
    throw Error(ErrorCode::kOrder,
                std::string("step() was called ") +
                    (impl.phase == Phase::kIdle ? "before forward() and backward()" : "before backward()"),
                "the order of a micro-batch is forward, backward, step");
  if (!impl.is_boundary()) {
    impl.phase = Phase::kIdle;
    ++impl.micro_steps;
    if (impl.telling) impl.telling->end_micro_batch();
    if (impl.settings().wall_clock_breakdown) impl.tell_times(false);
    return {false, false,
            "accumulating gradients: micro-batch " + std::to_string((impl.micro_steps - 1) % gradient_accumulation_steps() + 1) +
                " of " + std::to_string(gradient_accumulation_steps())};
  }
  if (impl.comm->size() > 1 && !impl.reducer->is_reduced())
    throw Error(
        ErrorCode::kOrder,
        "step() is at a boundary, but the gradients were not averaged over the " + std::to_string(impl.comm->size()) + " ranks",
        "run the last backward() of a step outside no_sync(), or call allreduce_gradients() before step()");
  auto call = impl.process_group->world()->enter(*impl.comm, "step", impl.global_steps + 1, "", control::Watch::Call::kAtOnce);
  impl.phase = Phase::kIdle;
  impl.disarm();
  StepResult result{true, true, ""};
  const Impl::Used used{impl.telling ? impl.rates() : std::vector<double>(), impl.scaler.scale()};
  try {
    at::NoGradGuard no_grad;
    Timers::Scope timed(impl.timers, Timed::kStep);
    {
      Timers::Scope timed(impl.timers, Timed::kReduce);
      impl.reducer->wait();
    }
    const Impl::Check check = impl.check();
    if (impl.telling) impl.telling->fetch_loss();
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
  } catch (const Error& error) {
    if (impl.telling) impl.telling->error(impl.global_steps + 1, error.message());
    throw;
  }
  if (impl.profiling && impl.profiling->tell()) impl.profiling.reset();
  impl.tell(result, used);
  return result;
} catch (...) {
  rethrow_as_ours("step");
}

// One pass over the gradients: their norm, and whether all are finite. A rank sees its shards; the sums go to all.
EngineBase::Impl::Check EngineBase::Impl::check() {
  Timers::Scope timed(timers, Timed::kCheck);
  double squares = 0;
  bool finite = true, is_sharded = false;
  at::Tensor device_squares;  // [] fp64, on the device: one wait for it, at the end
  for (auto& range : ranges) {
    is_sharded = is_sharded || range.is_sharded();
    for (const Piece& piece : pieces_of(range, kNoPages)) {
      if (piece.grad.is_cpu()) {
        const NormResult part =
            sum_of_squares(piece.grad.const_data_ptr(), to_dtype(range.grad_dtype), static_cast<uint64_t>(piece.grad.numel()), 0);
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

StepResult EngineBase::Impl::skip(const std::string& why) {
  if (!skips_non_finite) {
    forget_gradients();
    throw Error(
        ErrorCode::kNonFinite,
        "step " + std::to_string(global_steps + 1) + ": " + why + "; the step was not taken and the parameters are as before it",
        "look for a too large learning rate or a bad sample; get_lr() and the batch of this step are where to begin");
  }
  ++skipped_steps;
  ++consecutive_skips;
  std::string reason = "step " + std::to_string(global_steps + 1) + " skipped: " + why;
  if (is_fp16) {
    LossScaler after = scaler;
    after.update(true);  // throws when the scale is at its minimum
    reason += after.scale() == scaler.scale()
                  ? "; the loss scale stays " + short_number(scaler.scale())
                  : "; the loss scale goes from " + short_number(scaler.scale()) + " to " + short_number(after.scale());
  }
  const bool scale_can_mend = is_fp16 && settings().fp16.loss_scale == 0;
  if (!scale_can_mend && consecutive_skips > settings().max_consecutive_skips)
    throw Error(ErrorCode::kNonFinite, reason + "; it is the " + std::to_string(consecutive_skips) + "th in a row",
                "the run does not recover by itself: lower the learning rate or look at the data (gannet.max_consecutive_skips "
                "sets the limit)");
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
      char place[64];
      std::snprintf(place, sizeof(place), "%06zu%010zu%020lld", r, part.tensor, static_cast<long long>(part.begin));
      found = place + ("the gradient of '" + parameter.name + "' is ") + short_number(grad[index].item<double>()) +
              " at element " + std::to_string(part.begin + index) + (loss_was_finite ? "" : " (the loss was not finite either)");
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
    if (user_schedule.function)
      value.lr = user_schedule.function(schedule_position);
    else if (scheduler)
      value = scheduler->at(static_cast<uint64_t>(schedule_position), static_cast<uint32_t>(g), group.base_lr);
    else
      return;
    if (double* lr = group.find("lr"); lr && value.lr) *lr = *value.lr;
    if (double* beta1 = group.find("betas[0]"); beta1 && value.beta1) *beta1 = *value.beta1;
    if (double* beta2 = group.find("betas[1]"); beta2 && value.beta2) *beta2 = *value.beta2;
  }
}

void EngineBase::Impl::forget_gradients() {
  Timers::Scope timed(timers, Timed::kForget);
  reducer->forget();
  if (keeps_user_grads) {
    for (auto& range : ranges)
      for (auto& parameter : range.parameters) parameter.tensor.mutable_grad().reset();
    keeps_user_grads = false;
  }
}

}  // namespace gannet
