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
#include "base/format.h"
#include "control/world.h"
#include "engine/impl.h"
#include "grads/grad_norm.h"
#include "params/pieces.h"
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

// The step is over, what came after it failed: its report, a look at the other ranks.
[[noreturn]] void rethrow_after_step(int64_t step) {
  try {
    throw;
  } catch (const Error& error) {
    throw Error(error.code(), formatted("{} (after step {} had been taken: the parameters are whole)", error.message(), step),
                error.next_step());
  }
}

std::string message_of_current_exception() {
  try {
    throw;
  } catch (const Error& error) {
    return error.message();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an exception of the program's own";
  }
}

}  // namespace

StepResult EngineBase::step() {
  Impl& impl = *impl_;
  impl.require_usable("step");
  if (impl.no_sync) throw Error(ErrorCode::kOrder, "step() was called inside no_sync()", "end the NoSync scope before step()");
  if (impl.groups.empty() || (!impl.groups[0].optimizer && !impl.user_optimizer))
    throw Error(ErrorCode::kOrder, "step() was called, but there is no optimizer",
                "add an \"optimizer\" block to the config, or pass one to initialize");
  if (impl.running && (impl.running->has_begun || impl.phase != Phase::kBackwarded)) {
    if (impl.running->has_begun) impl.restart_step();
    throw Error(ErrorCode::kOrder, "step() was called after scale(), but the backward of what it returned has not ended",
                "call its backward before step()");
  }
  impl.running.reset();  // of a scaled loss that was given up
  if (impl.phase != Phase::kBackwarded)
    throw Error(ErrorCode::kOrder,
                std::string("step() was called ") +
                    (impl.phase == Phase::kIdle ? "before forward() and backward()" : "before backward(), or after zero_grad()"),
                "the order of a micro-batch is forward, backward, step");
  impl.scale_scope.reset();
  if (!impl.is_boundary()) {
    impl.phase = Phase::kIdle;
    ++impl.micro_steps;
    ++impl.micro_in_step;
    if (impl.reporter) impl.reporter->end_micro_batch();
    if (impl.settings().wall_clock_breakdown) impl.report_times(false);
    return {false, false,
            formatted("accumulating gradients: micro-batch {} of {}", impl.micro_in_step, gradient_accumulation_steps())};
  }
  if (impl.comm->size() > 1 && !impl.reducer->is_reduced())
    throw Error(ErrorCode::kOrder,
                formatted("step() is at a boundary, but the gradients were not averaged over the {} ranks", impl.comm->size()),
                "run the last backward() of a step outside no_sync(), or call allreduce_gradients() before step()");
  std::optional<control::Watch::Call> call;
  bool is_updating = false;
  const int64_t steps = impl.global_steps;
  try {
    return impl.take_step(call, is_updating);
  } catch (...) {
    if (call) call->fail();
    const std::string what = message_of_current_exception();
    if (impl.global_steps > steps && impl.torn.empty()) rethrow_after_step(impl.global_steps);
    if (is_updating) impl.torn = formatted("step {} failed while it changed them ({})", impl.global_steps + 1, what);
    if (impl.reporter) impl.reporter->error(impl.global_steps + 1, what);
    impl.restart_step();
    rethrow_as_ours("step");
  }
}

// A step is a transaction: an exception before the update leaves the parameters as they were, one inside it leaves them
// undefined.
StepResult EngineBase::Impl::take_step(std::optional<control::Watch::Call>& call, bool& is_updating) {
  audit();
  if (const std::string name = reducer->leftover(keeps_user_grads); !name.empty())
    throw Error(ErrorCode::kOrder,
                formatted("step() found a gradient in `.grad` of '{}' that this engine's backward did not make: of a "
                          "loss.backward(), of another engine's backward, or set by hand",
                          name),
                "call engine->backward(loss) for every loss that trains it, or requires_grad_(false) on parameters that another "
                "model's backward passes through; a gradient that is not wanted is dropped by zero_grad()");
  call.emplace(process_group->world()->watch(), *host_group, "step", global_steps + 1, "", control::Watch::Call::kAtOnce,
               &agreed(/*is_boundary=*/true));
  if (const std::string held = residency ? residency->held() : ""; !held.empty())
    throw Error(
        ErrorCode::kOrder,
        formatted("step() was called while a zero::GatheredParameters guard holds '{}': the guard would keep its old value",
                  held),
        "end the guard before step()");
  phase = Phase::kIdle;
  disarm();
  StepResult result{true, true, ""};
  const StepInputs inputs{reporter ? rates() : std::vector<double>(), scaler.scale()};
  const at::NoGradGuard no_grad;
  std::optional<Timers::Scope> timed(std::in_place, timers, Timed::kStep);
  {
    Timers::Scope reducing(timers, Timed::kReduce);
    reducer->wait();
  }
  const Check check = this->check();
  if (reporter) reporter->fetch_loss();
  if (check.finite) {
    // Asked for now: a schedule that fails does so before anything has changed.
    const auto next = schedule_is_by_hand ? std::vector<Scheduler::Value>() : schedule_at(schedule_position + 1);
    grad_norm = check.norm;
    const double factor = clip(check.norm);
    is_updating = true;
    update(factor);
    is_updating = false;
    for (auto& range : ranges)
      for (size_t p = 0; p < range.parameters.size(); ++p) {
        auto& parameter = range.parameters[p];
        if (is_skipped(range, p))
          ++parameter.lag;
        else if (!parameter.tensor
                      .is_inference())  // a graph that saved the old values says so in backward, as torch.optim's does
          parameter.tensor.unsafeGetTensorImpl()->bump_version();
      }
    ++applied_steps;
    consecutive_skips = 0;
    if (!schedule_is_by_hand) {
      ++schedule_position;
      apply_schedule(next);
    }
  } else {
    grad_norm.reset();
    result = skip(first_non_finite());
  }
  if (is_fp16) scaler.update(!check.finite);
  last_step_applied = result.applied;
  forget_gradients();
  record_parameters();
  ++micro_steps;
  ++global_steps;
  micro_in_step = 0;
  written_hash = 0;
  global_samples += settings().train_batch_size;
  start_next_step();
  timed.reset();
  if (settings().fingerprint_every > 0 && global_steps % settings().fingerprint_every == 0) compare_fingerprints("after a step");
  if (profiling && profiling->report()) profiling.reset();
  report(result, inputs);
  return result;
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
    host_group->all_reduce(totals, 2);
    squares = totals[0];
    finite = totals[1] == 0;
  }
  const double scale = reducer->mean_factor() / scaler.scale();
  if (finite && std::isinf(squares)) return {norm_of_large() * scale, true};
  return {std::sqrt(squares) * scale, finite};
}

// Finite fp64 gradients whose squares have no number: every element is divided by the largest one first. All ranks come here,
// since they have the same sum of squares.
double EngineBase::Impl::norm_of_large() {
  const auto over_ranks = [this](double value, gannet_reduce_op op) {
    if (ranges[0].is_sharded()) host_group->all_reduce(&value, 1, op);
    return value;
  };
  double largest = 0, squares = 0;
  for (auto& range : ranges)
    for (const Piece& piece : pieces_of(range, kNoPages)) largest = std::max(largest, piece.grad.abs().max().item<double>());
  largest = over_ranks(largest, GANNET_MAX);
  for (auto& range : ranges)
    for (const Piece& piece : pieces_of(range, kNoPages))
      squares += piece.grad.to(at::kDouble).div(largest).square().sum().item<double>();
  return largest * std::sqrt(over_ranks(squares, GANNET_SUM));
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
  if (!skips_non_finite)
    throw Error(ErrorCode::kNonFinite,
                formatted("step {}: {}; the step was not taken and the parameters are as before it", global_steps + 1, why),
                "look for a too large learning rate or a bad sample; get_lr() and the batch of this step are where to begin");
  ++skipped_steps;
  ++consecutive_skips;
  std::string reason = formatted("step {} skipped: {}", global_steps + 1, why);
  if (is_fp16) {
    LossScaler after = scaler;
    after.update(true);  // throws when the scale is at its minimum
    reason += after.scale() == scaler.scale()
                  ? formatted("; the loss scale stays {}", short_number(scaler.scale()))
                  : formatted("; the loss scale goes from {} to {}", short_number(scaler.scale()), short_number(after.scale()));
  }
  const bool scale_can_mend = is_fp16 && settings().fp16.loss_scale == 0;
  if (!scale_can_mend && consecutive_skips > settings().max_consecutive_skips)
    throw Error(ErrorCode::kNonFinite, formatted("{}; it is the {}th in a row", reason, consecutive_skips),
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
      found = formatted("{}{}{} at element {}{}", place, formatted("the gradient of '{}' is ", parameter.name),
                        short_number(grad[index].item<double>()), part.begin + index,
                        loss_was_finite ? "" : " (the loss was not finite either)");
    }
  }
  if (is_sharded)
    for (const auto& text : host_group->gather_texts(found))
      if (!text.empty() && (found.empty() || text < found)) found = text;
  return found.empty() ? "the gradients' norm is too large for a number" : found.substr(kPlaceDigits);
}

void EngineBase::Impl::advance_schedule() {
  const auto next = schedule_at(schedule_position + 1);
  ++schedule_position;
  apply_schedule(next);
}

void EngineBase::Impl::apply_schedule() { apply_schedule(schedule_at(schedule_position)); }

// Of each group; empty where there is no schedule.
std::vector<Scheduler::Value> EngineBase::Impl::schedule_at(int64_t position) {
  std::vector<Scheduler::Value> values;
  if (!user_schedule.function && !scheduler) return values;
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& value = values.emplace_back();
    if (user_schedule.function)
      value.lr = user_schedule.function(position);
    else
      value = scheduler->at(static_cast<uint64_t>(position), static_cast<uint32_t>(g), groups[g].base_lr);
    if (value.lr && !std::isfinite(*value.lr))
      throw Error(ErrorCode::kArgument, formatted("the schedule's learning rate at position {} is {}", position, *value.lr),
                  "a learning rate is a finite number");
  }
  return values;
}

void EngineBase::Impl::apply_schedule(const std::vector<Scheduler::Value>& values) {
  for (size_t g = 0; g < values.size(); ++g) {
    Group& group = groups[g];
    const Scheduler::Value& value = values[g];
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
