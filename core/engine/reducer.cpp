#include "engine/reducer.h"

#include <ATen/core/grad_mode.h>
#include <gannet/error.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "tensor/accumulate.h"

namespace gannet {
namespace {

char* at_element(const at::Tensor& flat, int64_t element) {
  return static_cast<char*>(flat.data_ptr()) + element * static_cast<int64_t>(flat.element_size());
}

bool is_plain(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.is_contiguous(); }

// Both dense and of one shape.
void add_or_copy(const at::Tensor& into, const at::Tensor& from, bool adds) {
  if (is_plain(into) && is_plain(from) &&
      accumulate(into.data_ptr(), into.scalar_type(), from.const_data_ptr(), from.scalar_type(), from.numel(), adds))
    return;
  adds ? into.add_(from) : into.copy_(from);
}

}  // namespace

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

Reducer::Reducer(std::vector<Range>& ranges, CommGroup* comm, Timers& timers, Options options)
    : ranges_(ranges), comm_(comm), timers_(timers), options_(options), alive_(std::make_shared<bool>(true)) {
  for (size_t r = ranges.size(); r-- > 0;) add_buckets(r);
  for (size_t b = 0; b < buckets_.size(); ++b) add_slots(b);
}

void Reducer::add_buckets(size_t r) {
  const Range& range = ranges_[r];
  const auto& cuts = range.layout.buckets;
  for (size_t last = cuts.size(); last > 0;) {
    size_t first = last - 1;
    int64_t numel = cuts[first].numel;
    // Where parameters are sharded each is a cut of its own: several of them make a bucket.
    while (range.shards_parameters() && first > 0 && numel + cuts[first - 1].numel <= options_.bucket_numel)
      numel += cuts[--first].numel;
    Bucket& bucket = buckets_.emplace_back();
    bucket.range = r;
    bucket.first = cuts[first].first;
    bucket.last = cuts[last - 1].last;
    bucket.offset = cuts[first].offset;
    bucket.numel = numel;
    if (range.is_sharded()) bucket.shard = {range.shards[first].offset, range.shards[first].own, numel / comm_->size()};
    largest_bucket_ = std::max(largest_bucket_, numel);
    last = first;
  }
}

void Reducer::add_slots(size_t b) {
  Bucket& bucket = buckets_[b];
  Range& range = ranges_[bucket.range];
  bucket.slot = slots_.size();
  std::vector<Place> taken;
  for (size_t p = bucket.first; p < bucket.last; ++p) {
    auto& parameter = range.parameters[p];
    Slot slot{bucket.range, p, b, {}};
    if (range.shards_parameters()) {
      const int64_t part = range.shards[p].numel, at = range.shards[p].own - bucket.shard.own;
      for (int64_t begin = 0, rank = 0; begin < parameter.numel; begin += part, ++rank)
        slot.places.push_back({begin, rank * bucket.shard.numel + at, std::min(part, parameter.numel - begin)});
    } else {
      slot.places.push_back({0, parameter.offset - bucket.offset, parameter.numel});
    }
    taken.insert(taken.end(), slot.places.begin(), slot.places.end());
    torch::autograd::impl::set_post_acc_grad_hooks(parameter.tensor, std::make_unique<Hook>(this, slots_.size(), alive_));
    slots_.push_back(std::move(slot));
  }
  std::sort(taken.begin(), taken.end(), [](const Place& a, const Place& c) { return a.at < c.at; });
  int64_t end = 0;
  for (const Place& place : taken) {
    if (end < place.at) bucket.gaps.emplace_back(end, place.at - end);
    end = place.at + place.numel;
  }
  if (end < bucket.numel) bucket.gaps.emplace_back(end, bucket.numel - end);
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
  if (in_backward_)
    throw Error(ErrorCode::kOrder,
                "backward() was called after one that ended in an error, with a part of its gradients gathered",
                "call engine->zero_grad() and begin the step anew");
  current_ = backward;
  unreduce();
  next_bucket_ = 0;
  for (auto& bucket : buckets_) bucket.awaited = bucket.last - bucket.first;
  in_backward_ = true;
}

void Reducer::unreduce() {
  if (!reduced_) return;
  wait();
  at::NoGradGuard no_grad;
  for (auto& range : ranges_) {
    if (range.shards_gradients()) continue;  // new sums are added to the old ones
    if (range.sharding == Sharding::kNone) {
      range.grad.mul_(1.0 / (comm_->size() * options_.pre_factor));
      continue;
    }
    for (size_t b = 0; b < range.shards.size(); ++b) {
      const auto& bucket = range.layout.buckets[b];
      const auto& shard = range.shards[b];
      range.grad_of(shard).mul_(1.0 / options_.pre_factor);
      range.grad.narrow(0, bucket.offset, shard.offset - bucket.offset).zero_();
      range.grad.narrow(0, shard.offset + shard.numel, bucket.offset + bucket.numel - shard.offset - shard.numel).zero_();
    }
  }
  reduced_ = false;
}

void Reducer::on_gradient(size_t slot, const at::Tensor& tensor) {
  Slot& place = slots_[slot];
  at::Tensor& grad = tensor.mutable_grad();
  if (!grad.defined()) return;
  Bucket& bucket = buckets_[place.bucket];
  {
    std::lock_guard lock(mutex_);
    if (in_backward_ && current_.reduce && place.bucket < next_bucket_)
      came_late(ranges_[place.range].parameters[place.parameter]);
    const Range& range = ranges_[place.range];
    if (range.shards_gradients() && !bucket.gathered.defined()) bucket.gathered = take_buffer(bucket, range.grad_dtype);
  }
  {
    std::optional<at::NoGradGuard> no_grad;
    if (at::GradMode::is_enabled()) no_grad.emplace();  // under create_graph
    hold(bucket, place, grad.is_sparse() ? grad.detach().to_dense() : grad.requires_grad() ? grad.detach() : grad);
  }
  if (!current_.keep_grads) grad.reset();
  std::lock_guard lock(mutex_);
  if (in_backward_ && current_.reduce) {
    --bucket.awaited;
    send_ready_buckets();
  }
}

void Reducer::came_late(const TrainedParameter& parameter) const {
  throw Error(ErrorCode::kUnsupported,
              "the gradient of '" + parameter.name +
                  "' came a second time in one backward, after its sum had been sent to the other ranks",
              "a backward() inside a backward() cannot share parameters with the rest of the model: accumulate with no_sync() at "
              "ZeRO stage 0 or 1, then call allreduce_gradients()");
}

// Devices' autograd threads may both be the first to need it.
at::Tensor Reducer::flat_grad(Range& range, const TrainedParameter& parameter) {
  static std::mutex first;
  const std::lock_guard lock(first);
  return range.flat_grad(parameter);
}

void Reducer::put(Bucket& bucket, Slot& slot, const at::Tensor& gradient) {
  const bool is_direct = is_plain(gradient) && bucket.gathered.is_cpu();
  at::Tensor flat;
  for (const Place& place : slot.places) {
    if (is_direct && accumulate(at_element(bucket.gathered, place.at), bucket.gathered.scalar_type(),
                                at_element(gradient, place.begin), gradient.scalar_type(), place.numel, slot.has_arrived))
      continue;
    if (!flat.defined()) flat = gradient.reshape({-1});
    add_or_copy(bucket.gathered.narrow(0, place.at, place.numel), flat.narrow(0, place.begin, place.numel), slot.has_arrived);
  }
  slot.has_arrived = true;
}

void Reducer::hold(Bucket& bucket, Slot& slot, const at::Tensor& gradient) {
  const Range& range = ranges_[bucket.range];
  if (range.shards_gradients()) return put(bucket, slot, gradient);
  TrainedParameter& parameter = ranges_[slot.range].parameters[slot.parameter];
  if (options_.host) {
    const bool adds = parameter.held.defined();
    if (!adds) parameter.held = flat_grad(ranges_[bucket.range], parameter);
    const HostSums::Ticket ticket = options_.host->take(parameter.held, gradient, adds);
    if (current_.keep_grads) options_.host->wait(ticket);  // the program may write to it
    return;
  }
  if (parameter.held.defined()) return add_or_copy(parameter.held, gradient, /*adds=*/true);
  // Autograd's tensor is ours alone once `.grad` lets go of it; kernels want it dense and aligned as a flat buffer is.
  const bool can_take_over = comm_->size() == 1 && !current_.keep_grads && gradient.scalar_type() == range.grad_dtype &&
                             gradient.is_contiguous() && reinterpret_cast<uintptr_t>(gradient.const_data_ptr()) % 64 == 0;
  if (can_take_over) {
    parameter.held = gradient;
  } else {
    parameter.held = flat_grad(ranges_[bucket.range], parameter);
    add_or_copy(parameter.held, gradient, /*adds=*/false);
  }
}

bool Reducer::holds_sums() const {
  return reduced_ && std::any_of(ranges_.begin(), ranges_.end(), [](const Range& range) { return range.shards_gradients(); });
}

void Reducer::wait_for_sums() {
  if (holds_sums()) return wait();
  if (options_.host) options_.host->wait();
  unreduce();
}

void Reducer::adopt_sums() {
  for (auto& bucket : buckets_) bucket.has_sum = ranges_[bucket.range].shards_gradients();
  reduced_ = true;
}

void Reducer::forget() {
  if (!finished_) finish_works();
  if (options_.host) options_.host->wait();
  in_backward_ = false;
  reduced_ = false;
  for (auto& range : ranges_)
    for (auto& parameter : range.parameters) parameter.held.reset();
  for (auto& slot : slots_) slot.has_arrived = false;
  for (auto& bucket : buckets_) {
    bucket.has_sum = false;
    if (ranges_[bucket.range].shards_gradients()) give_back(bucket);  // of a backward that was broken off
  }
}

}  // namespace gannet
