#include "grads/reducer.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gannet/error.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "base/format.h"
#include "tensor/accumulate.h"
#include "tensor/host_meter.h"

namespace gannet {
namespace {

char* at_element(const at::Tensor& flat, int64_t element) {
  return static_cast<char*>(flat.data_ptr()) + element * static_cast<int64_t>(flat.element_size());
}

bool is_plain(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.is_contiguous(); }

// Both tensors are dense and have the same shape.
void add_or_copy(const at::Tensor& into, const at::Tensor& from, bool adds) {
  if (is_plain(into) && is_plain(from) &&
      accumulate(into.data_ptr(), into.scalar_type(), from.const_data_ptr(), from.scalar_type(), from.numel(), adds))
    return;
  adds ? into.add_(from) : into.copy_(from);
}

}  // namespace

class Reducer::Hook : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(Reducer* reducer, size_t slot) : reducer_(reducer), slot_(slot) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    if (reducer_->is_backward_of_engine())
      reducer_->on_gradient(slot_, parameter);
    else
      reducer_->on_foreign_gradient(slot_);
  }

 private:
  Reducer* reducer_;
  size_t slot_;
};

Reducer::Reducer(std::deque<Range>& ranges, DeviceComm* comm, Timers& timers, Options options)
    : ranges_(ranges), comm_(comm), timers_(timers), options_(options) {
  for (size_t r = ranges.size(); r-- > 0;) add_buckets(r);
  for (size_t b = 0; b < buckets_.size(); ++b) add_slots(b);
}

void Reducer::add_range(size_t range) {
  const size_t first = buckets_.size();
  const int64_t largest = largest_bucket_;
  add_buckets(range);
  if (largest_bucket_ > largest) {  // every spare buffer must fit the largest bucket
    if (!finished_) finish_works();
    if (options_.host) options_.host->wait();
    spare_.clear();
  }
  for (size_t b = first; b < buckets_.size(); ++b) add_slots(b);
  has_learned_ = false;
}

void Reducer::set_hook(size_t slot) {
  auto hook = std::make_unique<Hook>(this, slot);
  slots_[slot].hook = hook.get();
  torch::autograd::impl::set_post_acc_grad_hooks(ranges_[slots_[slot].range].parameters[slots_[slot].parameter].tensor,
                                                 std::move(hook));
}

std::string Reducer::restore_hooks() {
  std::string foreign;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const TrainedParameter& parameter = ranges_[slots_[i].range].parameters[slots_[i].parameter];
    const auto& hook = torch::autograd::impl::post_acc_grad_hooks(parameter.tensor);
    if (hook.get() == slots_[i].hook) continue;
    if (!hook)
      set_hook(i);
    else if (foreign.empty())
      foreign = parameter.name;
  }
  return foreign;
}

void Reducer::add_buckets(size_t r) {
  for (ReduceBucket& one : ReduceBuckets::of(ranges_[r], options_.bucket_numel, ranges_[r].ranks.comm->size())) {
    Bucket& bucket = buckets_.emplace_back();
    static_cast<ReduceBucket&>(bucket) = std::move(one);
    bucket.range = r;
    largest_bucket_ = std::max(largest_bucket_, bucket.numel);
  }
}

void Reducer::add_slots(size_t b) {
  Bucket& bucket = buckets_[b];
  bucket.slot = slots_.size();
  for (size_t p = bucket.first; p < bucket.last; ++p) {
    slots_.push_back({.range = bucket.range, .parameter = p, .bucket = b});
    set_hook(slots_.size() - 1);
  }
  bucket.expected = bucket.last - bucket.first;
}

Reducer::~Reducer() {
  for (auto& bucket : buckets_) {
    try {
      bucket.work.wait();
    } catch (const std::exception&) {  // the lost peer was already reported
    }
  }
  unmark_gradients();
  for (const GradientSlot& slot : slots_) {
    const at::Tensor& tensor = ranges_[slot.range].parameters[slot.parameter].tensor;
    if (torch::autograd::impl::post_acc_grad_hooks(tensor).get() == slot.hook)
      torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
  }
}

void Reducer::begin_backward(BackwardSettings backward) {
  if (in_backward_)
    throw Error(ErrorCode::kOrder, "backward() was called inside another backward() of the same engine",
                "sum the losses and call backward() once, or call it after the first one has returned");
  current_ = backward;
  unmark_gradients();
  unreduce();
  take_leftovers_aside();
  next_bucket_ = 0;
  holds_buckets_ = current_.reduce && !has_learned_ && !accumulates_shards();
  for (auto& bucket : buckets_) bucket.awaited = bucket.expected;
  if (current_.brings)
    for (GradientSlot& slot : slots_) slot.is_cleared = false;
  in_backward_ = true;
  graph_task_ = backward.is_marked ? torch::autograd::get_current_graph_task_id() : -1;
  if (!backward.is_marked) marked_.emplace(kBackwardKind, mark_);
}

// Also compares the graph task: a thread carries only one engine's mark, but one backward may run
// through scaled losses of two engines.
bool Reducer::is_backward_of_engine() const {
  if (!in_backward_) return false;
  return c10::ThreadLocalDebugInfo::get(kBackwardKind) == mark_.get() ||
         (graph_task_ >= 0 && torch::autograd::get_current_graph_task_id() == graph_task_);
}

void Reducer::unreduce() {
  if (!reduced_) return;
  wait();
  at::NoGradGuard no_grad;
  for (auto& range : ranges_) {
    if (range.reduction() == Reduction::kReduceScatter) continue;  // this range adds new sums to the old ones
    if (range.has_unreduced_gradients) continue;                   // not reduced
    if (range.reduction() == Reduction::kAllReduce) {
      range.grad.mul_(1.0 / (range.ranks.comm->size() * pre_factor(range)));
      continue;
    }
    for (size_t b = 0; b < range.shards.size(); ++b) {
      const auto& bucket = range.layout.buckets[b];
      const auto& shard = range.shards[b];
      range.grad_of(shard).mul_(1.0 / pre_factor(range));
      range.grad.narrow(0, bucket.offset, shard.offset - bucket.offset).zero_();
      range.grad.narrow(0, shard.offset + shard.numel, bucket.offset + bucket.numel - shard.offset - shard.numel).zero_();
    }
  }
  reduced_ = false;
}

at::Tensor Reducer::as_dense(at::Tensor gradient) {
  if (gradient.is_sparse())
    gradient = gradient.detach().to_dense();
  else if (gradient.requires_grad())
    gradient = gradient.detach();
  return gradient.is_complex() ? at::view_as_real(gradient.resolve_conj()) : gradient;
}

// One lock is held for the whole arrival, since hooks of one device run one after another anyway.
void Reducer::on_gradient(size_t slot, const at::Tensor& tensor) {
  GradientSlot& place = slots_[slot];
  at::Tensor& grad = tensor.mutable_grad();
  if (!grad.defined()) return;
  if (current_.inputs_alone)
    throw Error(ErrorCode::kUnsupported,
                formatted("'{}' got its gradient in the pass that computes the gradients of a stage's inputs alone: a function's "
                          "backward runs a backward of its own",
                          ranges_[place.range].parameters[place.parameter].name),
                "choose a schedule with whole backwards: gpipe, 1f1b or interleaved");
  const std::lock_guard lock(mutex_);
  Bucket& bucket = buckets_[place.bucket];
  place.has_come = true;
  ++place.arrivals;
  const bool is_late = current_.reduce && place.bucket < next_bucket_ && !ranges_[place.range].has_unreduced_gradients;
  if (!is_late && accumulates_shards(bucket) && !bucket.gathered.defined())
    bucket.gathered = take_buffer(bucket, ranges_[place.range].grad_dtype);
  {
    std::optional<at::NoGradGuard> no_grad;
    if (at::GradMode::is_enabled()) no_grad.emplace();  // it is enabled under create_graph
    const at::Tensor gradient = as_dense(current_.keep_grads ? grad : std::move(grad));
    is_late ? add_late(slot, gradient) : hold(bucket, slot, gradient);
  }
  if (!current_.reduce || is_late || place.arrivals > place.expected) return;
  if (--bucket.awaited == 0 && !holds_buckets_) send_ready_buckets();
}

void Reducer::put(Bucket& bucket, size_t index, const at::Tensor& gradient) {
  GradientSlot& slot = slots_[index];
  const bool is_direct = is_plain(gradient) && bucket.gathered.is_cpu();
  at::Tensor flat;
  for (const auto& place : stretches(bucket, index)) {
    if (is_direct && accumulate(at_element(bucket.gathered, place.at), bucket.gathered.scalar_type(),
                                at_element(gradient, place.begin), gradient.scalar_type(), place.numel, slot.has_arrived))
      continue;
    if (!flat.defined()) flat = gradient.reshape({-1});
    add_or_copy(bucket.gathered.narrow(0, place.at, place.numel), flat.narrow(0, place.begin, place.numel), slot.has_arrived);
  }
  slot.has_arrived = true;
}

void Reducer::hold(Bucket& bucket, size_t slot, const at::Tensor& gradient) {
  if (accumulates_shards(bucket)) return put(bucket, slot, gradient);
  const Range& range = ranges_[bucket.range];
  TrainedParameter& parameter = ranges_[bucket.range].parameters[slots_[slot].parameter];
  if (options_.host) {
    const bool adds = parameter.held.defined();
    if (!adds) parameter.held = ranges_[bucket.range].flat_grad(parameter);
    const HostGradients::Ticket ticket = options_.host->take(parameter.held, gradient, adds);
    if (current_.keep_grads) options_.host->wait(ticket);  // the program may write to `gradient`
    return;
  }
  if (parameter.held.defined()) return add_or_copy(parameter.held, gradient, /*adds=*/true);
  // Once `.grad` is reset, the engine is the only owner of autograd's tensor. Kernels need it dense,
  // and aligned like a flat buffer.
  const bool can_take_over = comm_->size() == 1 && !current_.keep_grads && gradient.scalar_type() == range.grad_dtype &&
                             gradient.is_contiguous() && reinterpret_cast<uintptr_t>(gradient.const_data_ptr()) % 64 == 0;
  if (can_take_over) {
    parameter.held = gradient;
    if (HostMeter* const meter = gradient.is_cpu() ? HostMeter::here() : nullptr) {
      const auto bytes = static_cast<int64_t>(gradient.storage().nbytes());
      meter->set_aside(bytes);
      taken_over_bytes_ += bytes;
    }
  } else {
    parameter.held = ranges_[bucket.range].flat_grad(parameter);
    add_or_copy(parameter.held, gradient, /*adds=*/false);
  }
}

bool Reducer::accumulates_shards() const {
  return std::any_of(buckets_.begin(), buckets_.end(), [this](const Bucket& bucket) { return accumulates_shards(bucket); });
}

bool Reducer::holds_sums() const { return reduced_ && accumulates_shards(); }

void Reducer::wait_for_sums() {
  if (holds_sums()) return wait();
  if (options_.host) options_.host->wait();
  unreduce();
}

void Reducer::adopt_sums() {
  for (auto& bucket : buckets_) bucket.has_sum = accumulates_shards(bucket);
  reduced_ = true;
}

// Releases the held gradients. Tensors taken over from autograd belong to backward's stream. The
// update may have read them on the current stream, which is therefore recorded.
void Reducer::let_go_of_held() {
  std::optional<c10::Stream> here;
  for (auto& range : ranges_)
    for (auto& parameter : range.parameters) {
      if (comm_->size() == 1 && parameter.held.defined() && !parameter.held.is_cpu()) {
        const at::Device device = parameter.held.device();
        if (!here) here = c10::impl::VirtualGuardImpl(device.type()).getStream(device);
        parameter.held.record_stream(*here);
      }
      parameter.held.reset();
    }
}

void Reducer::forget() {
  if (!finished_) finish_works();
  flying_.clear();  // the buckets that abandon() waited for are no longer pending, but were not finished
  if (options_.host) options_.host->wait();
  marked_.reset();
  give_leftovers_back();
  unmark_gradients();
  in_backward_ = false;
  reduced_ = false;
  cleared_hash_ = 0;
  late_.clear();
  late_buckets_ = 0;
  if (taken_over_bytes_ > 0) HostMeter::here()->set_aside(-taken_over_bytes_);
  last_taken_over_bytes_ = std::exchange(taken_over_bytes_, 0);
  let_go_of_held();
  for (auto& slot : slots_) {
    slot.has_arrived = slot.has_come = slot.is_cleared = false;
    slot.arrivals = 0;
  }
  for (auto& bucket : buckets_) {
    bucket.has_sum = false;
    if (accumulates_shards(bucket)) give_back(bucket);  // an interrupted backward left its buffer
  }
}

}  // namespace gannet
