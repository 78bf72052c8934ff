#include "engine/reducer.h"

#include "base/check.h"
#include "tensor/dtype.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace gannet {

class Reducer::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Reducer* reducer, size_t slot, std::weak_ptr<bool> alive) : reducer_(reducer), slot_(slot), alive_(std::move(alive)) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    if (!alive_.expired()) reducer_->on_gradient(slot_, parameter);
  }

 private:
  Reducer* reducer_;
  size_t slot_;
  std::weak_ptr<bool> alive_;
};

Reducer::Reducer(std::vector<Range>& ranges, CommGroup* comm, Options options)
    : ranges_(ranges), comm_(comm), options_(options), alive_(std::make_shared<bool>(true)) {
  for (size_t r = ranges.size(); r-- > 0;) {
    auto& parameters = ranges[r].parameters;
    size_t last = parameters.size();
    while (last > 0) {  // a bucket takes parameters from the end until it is full; a larger parameter is one of its own
      const int64_t end = last == parameters.size() ? ranges[r].numel : parameters[last].offset;
      size_t first = last - 1;
      while (first > 0 && end - parameters[first - 1].offset <= options_.bucket_numel) --first;
      Bucket& bucket = buckets_.emplace_back();
      bucket.range = r;
      bucket.first = first;
      bucket.last = last;
      bucket.offset = parameters[first].offset;
      bucket.numel = end - bucket.offset;
      last = first;
    }
  }
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (size_t p = buckets_[b].first; p < buckets_[b].last; ++p) {
      auto& parameter = ranges[buckets_[b].range].parameters[p].tensor;
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, std::make_unique<Hook>(this, slots_.size(), alive_));
      slots_.push_back({buckets_[b].range, p, b});
    }
  }
}

Reducer::~Reducer() {
  alive_.reset();
  for (auto& bucket : buckets_) {
    try {
      bucket.work.wait();
    } catch (const std::exception&) {  // a lost peer was reported where it mattered
    }
  }
  for (auto& range : ranges_)
    for (auto& parameter : range.parameters) torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, nullptr);
}

void Reducer::begin_backward(Backward backward) {
  current_ = backward;
  if (reduced_) {
    // A further backward after the sums over ranks are in place. Each rank keeps an equal share of them, so that the sum of
    // shares and new gradients is what one reduction of everything would have given.
    wait();
    const double share = 1.0 / (comm_->size() * options_.pre_factor);
    for (auto& range : ranges_) range.grad.mul_(share);
    reduced_ = false;
  }
  next_bucket_ = 0;
  for (auto& bucket : buckets_) bucket.awaited = bucket.last - bucket.first;
  in_backward_ = true;
}

void Reducer::on_gradient(size_t slot, const at::Tensor& tensor) {
  const Slot& place = slots_[slot];
  Range& range = ranges_[place.range];
  TrainedParameter& parameter = range.parameters[place.parameter];
  at::Tensor& grad = tensor.mutable_grad();
  if (!grad.defined()) return;
  {
    at::NoGradGuard no_grad;
    hold(range, parameter, grad.is_sparse() ? grad.detach().to_dense() : grad.detach());
  }
  if (!current_.keep_grads) grad.reset();
  std::lock_guard lock(mutex_);
  if (in_backward_ && current_.reduce) {
    --buckets_[place.bucket].awaited;
    send_ready_buckets();
  }
}

void Reducer::hold(Range& range, TrainedParameter& parameter, const at::Tensor& gradient) {
  if (parameter.held.defined()) {
    parameter.held.add_(gradient);
    return;
  }
  // Autograd's tensor is ours alone once `.grad` lets go of it; kernels want it dense and aligned as a flat buffer is.
  const bool can_take_over = comm_->size() == 1 && !current_.keep_grads && gradient.scalar_type() == range.grad_dtype && gradient.is_contiguous() &&
                             reinterpret_cast<uintptr_t>(gradient.const_data_ptr()) % 64 == 0;
  if (can_take_over) {
    parameter.held = gradient;
  } else {
    parameter.held = parameter.flat_grad;
    parameter.held.copy_(gradient);
  }
}

void Reducer::send_ready_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].awaited == 0) send(buckets_[next_bucket_++]);
}

void Reducer::send(Bucket& bucket) {
  at::NoGradGuard no_grad;
  Range& range = ranges_[bucket.range];
  zero_missing(range, bucket.first, bucket.last);
  at::Tensor part = range.grad.narrow(0, bucket.offset, bucket.numel);
  if (options_.pre_factor != 1.0) part.mul_(options_.pre_factor);
  if (options_.communication_dtype && *options_.communication_dtype != range.grad_dtype) {
    if (!bucket.cast.defined()) bucket.cast = at::empty({bucket.numel}, part.options().dtype(*options_.communication_dtype));
    bucket.cast.copy_(part);
    part = bucket.cast;
  }
  finished_ = false;
  bucket.work = comm_->all_reduce(part.data_ptr(), static_cast<uint64_t>(bucket.numel), to_dtype(part.scalar_type()), GANNET_SUM);
}

void Reducer::zero_missing(Range& range, size_t first, size_t last) {
  for (size_t p = first; p < last; ++p) {
    auto& parameter = range.parameters[p];
    if (!parameter.held.defined()) parameter.held = parameter.flat_grad.zero_();
  }
}

void Reducer::end_backward() {
  in_backward_ = false;
  if (!current_.reduce) return;
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) send(buckets_[next_bucket_]);
  reduced_ = true;
}

void Reducer::wait() {
  if (!finished_) finish_works();
  at::NoGradGuard no_grad;
  for (auto& range : ranges_) zero_missing(range, 0, range.parameters.size());
}

void Reducer::finish_works() {
  at::NoGradGuard no_grad;
  for (auto& bucket : buckets_) {
    bucket.work.wait();
    if (bucket.cast.defined()) ranges_[bucket.range].grad.narrow(0, bucket.offset, bucket.numel).copy_(bucket.cast);
  }
  finished_ = true;
}

void Reducer::forget() {
  if (!finished_) finish_works();
  in_backward_ = false;
  reduced_ = false;
  for (auto& range : ranges_)
    for (auto& parameter : range.parameters) parameter.held.reset();
}

}  // namespace gannet
