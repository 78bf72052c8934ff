// The part of Reducer that tracks which backward a gradient comes from, how many gradients arrive,
// and which of them arrive after their bucket was sent.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "grads/gradient_mark.h"
#include "grads/reducer.h"
#include "tensor/dtype.h"

namespace gannet {

// A gradient of another backward stays where PyTorch puts it.
void Reducer::on_foreign_gradient(size_t slot) {
  std::lock_guard lock(mutex_);
  slots_[slot].is_foreign = true;
}

std::string Reducer::leftover() {
  const at::NoGradGuard no_grad;
  std::string first;
  for (GradientSlot& slot : slots_) {
    const TrainedParameter& parameter = ranges_[slot.range].parameters[slot.parameter];
    at::Tensor& grad = parameter.tensor.mutable_grad();
    const bool is_ours = grad.defined() && (grad.unsafeGetTensorImpl() == slot.shown || slot.mark.is(grad));
    if (grad.defined() && !is_ours && is_zero_gradient(grad)) grad.reset();
    if (!grad.defined()) slot.is_foreign = false;
    if (first.empty() && grad.defined() && (!is_ours || slot.is_foreign)) first = parameter.name;
  }
  return first;
}

bool Reducer::has_come(const Range& range, size_t parameter) const {
  const GradientSlot* const slot = find(range, parameter);
  return slot && slot->has_come;
}

// Autograd adds to an existing `.grad`, so the hook would receive the sum of the engine's gradient
// and the one that was left there.
void Reducer::take_leftovers_aside() {
  for (size_t i = 0; i < slots_.size(); ++i) {
    at::Tensor& grad = ranges_[slots_[i].range].parameters[slots_[i].parameter].tensor.mutable_grad();
    if (grad.defined() && is_zero_gradient(grad)) grad.reset();  // left by zero_grad(false): adds nothing
    slots_[i].is_foreign = grad.defined();
    if (!grad.defined()) continue;
    leftovers_.emplace_back(i, std::move(grad));
    grad = at::Tensor();
  }
}

void Reducer::give_leftovers_back() {
  for (auto& [slot, taken] : leftovers_) {
    at::Tensor& grad = ranges_[slots_[slot].range].parameters[slots_[slot].parameter].tensor.mutable_grad();
    const at::NoGradGuard no_grad;
    grad = grad.defined() ? grad.detach().add(taken) : std::move(taken);
    slots_[slot].is_foreign = true;
  }
  leftovers_.clear();
}

void Reducer::learn_arrivals() {
  for (Bucket& bucket : buckets_) {
    bucket.expected = 0;
    for (size_t i = bucket.slot; i < bucket.slot + bucket.last - bucket.first; ++i) {
      slots_[i].expected = std::max(slots_[i].expected, slots_[i].arrivals);
      slots_[i].arrivals = 0;
      bucket.expected += slots_[i].expected;
    }
  }
  if (current_.reduce) has_learned_ = true;
}

// Requires mutex_. The bucket is in flight, and the Comm owns its memory until it has arrived.
void Reducer::add_late(size_t slot, const at::Tensor& gradient) {
  const GradientSlot& place = slots_[slot];
  const Bucket& bucket = buckets_[place.bucket];
  const Range& range = ranges_[place.range];
  at::Tensor& late = late_[place.bucket];
  if (!late.defined())
    late = at::zeros({bucket.numel}, at::TensorOptions().dtype(range.grad_dtype).device(range.parameters[0].tensor.device()));
  const at::Tensor flat = gradient.reshape({-1});
  for (const auto& part : stretches(bucket, slot))
    late.narrow(0, part.at, part.numel).add_(flat.narrow(0, part.begin, part.numel));
}

// Requires mutex_. All ranks have late gradients in the same buckets: they compare late_buckets(),
// and the watch aborts the step if these differ.
void Reducer::reduce_late() {
  const at::NoGradGuard no_grad;
  for (auto& [index, late] : late_) {
    Bucket& bucket = buckets_[index];
    Range& range = ranges_[bucket.range];
    finish(bucket);
    if (const double factor = pre_factor(range); factor != 1.0) late.mul_(factor);
    const at::Tensor wire = options_.communication_dtype ? late.to(*options_.communication_dtype) : late;
    if (range.reduction() == Reduction::kAllReduce) {
      range.ranks.comm->all_reduce(wire).block();
      range.grad.narrow(0, bucket.offset, bucket.numel).add_(wire);
    } else {
      const at::Tensor own = wire.narrow(0, range.ranks.comm->rank() * bucket.shard.numel, bucket.shard.numel).clone();
      range.ranks.comm->reduce_scatter(wire, own).block();
      const at::Tensor sum = range.grad_of(bucket.shard);
      if (options_.host)
        options_.host->wait(options_.host->take(sum, own, /*adds=*/true));
      else
        sum.add_(own);
    }
    late_buckets_ = late_buckets_ * 1'000'003 + index + 1;
  }
  late_.clear();
}

void Reducer::abandon() noexcept {
  marked_.reset();
  for (auto& bucket : buckets_) {
    try {
      bucket.work.wait();
    } catch (const std::exception&) {  // the exception that ended the backward is the one to report
    }
  }
  try {
    forget();
  } catch (const std::exception&) {
    in_backward_ = false;
  }
}

}  // namespace gannet
