// The part of Reducer that detects changes to `.grad` while the gradient is in the buffers
// (gradient_mark.h), and that takes the gradients that autograd left in `.grad` because their
// parameters joined later.
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>

#include "base/check.h"
#include "grads/gradient_mark.h"
#include "grads/reducer.h"
#include "tensor/version.h"

namespace gannet {

// Called at the end of a backward. A `.grad` left by create_graph or by another backward serves as
// a mark as well, because zero_grad() clears it.
void Reducer::mark_gradients() {
  for (GradientSlot& slot : slots_)
    if (slot.has_come) mark_gradient(slot);
}

void Reducer::mark_gradient(GradientSlot& slot) {
  const TrainedParameter& parameter = ranges_[slot.range].parameters[slot.parameter];
  at::Tensor& grad = parameter.tensor.mutable_grad();
  if (!grad.defined()) grad = slot.mark.of(parameter.tensor, parameter.name);
  slot.shown = grad.unsafeGetTensorImpl();
  slot.shown_storage = storage_of(grad);
  slot.shown_version = version_of(grad);
}

void Reducer::unmark_gradients() noexcept {
  for (GradientSlot& slot : slots_) {
    slot.shown = nullptr;
    at::Tensor& grad = ranges_[slot.range].parameters[slot.parameter].tensor.mutable_grad();
    if (slot.mark.is(grad)) grad.reset();
  }
}

void Reducer::drop_kept() {
  for (GradientSlot& slot : slots_) {
    at::Tensor& grad = ranges_[slot.range].parameters[slot.parameter].tensor.mutable_grad();
    if (grad.defined() && grad.unsafeGetTensorImpl() == slot.shown) grad.reset();
  }
}

std::vector<std::string> Reducer::take_cleared() {
  const at::NoGradGuard no_grad;
  std::vector<std::string> cleared;
  for (size_t i = 0; i < slots_.size(); ++i) {
    GradientSlot& slot = slots_[i];
    if (!slot.shown) continue;
    const TrainedParameter& parameter = ranges_[slot.range].parameters[slot.parameter];
    const at::Tensor& grad = parameter.tensor.grad();
    if (slot.mark.is(grad)) continue;
    if (grad.defined() && grad.unsafeGetTensorImpl() == slot.shown && storage_of(grad) == slot.shown_storage &&
        version_of(grad) == slot.shown_version)
      continue;
    slot.shown = nullptr;
    if (grad.defined() && !is_zero_gradient(grad)) {  // put there by the program or another backward; leftover() reports it
      slot.is_foreign = true;
      continue;
    }
    clear(i, /*to_none=*/!grad.defined());
    cleared.push_back(parameter.name);
  }
  return cleared;
}

// Sets the gradient in the buffers to zero. If `.grad` was cleared to none after a step's last
// backward, the update skips the parameter, as torch.optim skips an undefined `.grad`.
void Reducer::clear(size_t index, bool to_none) {
  GradientSlot& slot = slots_[index];
  Bucket& bucket = buckets_[slot.bucket];
  Range& range = ranges_[slot.range];
  TrainedParameter& parameter = range.parameters[slot.parameter];
  if (!finished_) finish_works();
  if (options_.host) options_.host->wait();
  if (!accumulates_shards(bucket)) {
    if (parameter.held.defined()) parameter.held.zero_();
  } else if (bucket.has_sum) {
    for (const zero::TensorPart& part : range.parts)
      if (part.tensor == slot.parameter) range.grad_of(part).zero_();
  }
  slot.has_come = false;
  note_cleared(index, to_none);
}

void Reducer::note_cleared(size_t index, bool to_none) {
  GradientSlot& slot = slots_[index];
  slot.is_cleared = to_none && !ranges_[slot.range].is_optimizer_reduced;  // an optimizer that takes whole buckets skips nothing
  cleared_hash_ = (cleared_hash_ + index) * 0x9E3779B97F4A7C15u + (to_none ? 1 : 2);
}

void Reducer::leave_out(const Range& range, size_t parameter) {
  if (const GradientSlot* const slot = find(range, parameter))
    note_cleared(static_cast<size_t>(slot - slots_.data()), /*to_none=*/true);
}

bool Reducer::is_cleared(const Range& range, size_t parameter) const {
  if (cleared_hash_ == 0) return false;
  const GradientSlot* const slot = find(range, parameter);
  return slot && slot->is_cleared;
}

void Reducer::count_as_come(const Range& range, size_t parameter) {
  if (const GradientSlot* const slot = find(range, parameter)) const_cast<GradientSlot*>(slot)->is_cleared = false;
}

const Reducer::GradientSlot* Reducer::find(const Range& range, size_t parameter) const {
  for (const Bucket& bucket : buckets_)
    if (&ranges_[bucket.range] == &range && parameter >= bucket.first && parameter < bucket.last)
      return &slots_[bucket.slot + parameter - bucket.first];
  return nullptr;
}

// Takes the gradients as if a backward had produced only them. If the gradients so far are sums
// over the ranks, reduces the new ones now.
void Reducer::bring(size_t range, const std::vector<at::Tensor>& gradients) {
  GANNET_CHECK(!in_backward_ && gradients.size() == ranges_[range].parameters.size(), "gradients of a whole range");
  const at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  current_ = {};
  for (Bucket& bucket : buckets_) {
    if (bucket.range != range) continue;
    const bool accumulates = accumulates_shards(bucket);
    if (accumulates && !bucket.gathered.defined()) bucket.gathered = take_buffer(bucket, ranges_[range].grad_dtype);
    for (size_t slot = bucket.slot; slot < bucket.slot + bucket.last - bucket.first; ++slot) {
      if (!gradients[slots_[slot].parameter].defined()) continue;
      slots_[slot].has_come = true;
      hold(bucket, slot, as_dense(gradients[slots_[slot].parameter]));
      const TrainedParameter& parameter = ranges_[range].parameters[slots_[slot].parameter];
      if (!parameter.tensor.grad().defined()) mark_gradient(slots_[slot]);  // the program may clear it before the next backward
    }
    if (ranges_[range].ranks.comm->size() > 1 && (accumulates || reduced_)) send(bucket);
  }
  if (accumulates_shards()) reduced_ = reduced_ || comm_->size() > 1;
}

}  // namespace gannet
