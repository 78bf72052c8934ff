// The part of Reducer that sends full buckets to the other ranks and receives the sums.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>

#include "base/format.h"
#include "grads/reducer.h"
#include "tensor/dtype.h"

namespace gannet {
namespace {

// Zeroes stretches of a flat tensor. Most stretches are a few elements of padding after a
// parameter.
class Eraser {
 public:
  explicit Eraser(const at::Tensor& flat)
      : flat_(flat), host_(flat.is_cpu() ? static_cast<char*>(flat.data_ptr()) : nullptr), size_(flat.element_size()) {}
  void operator()(int64_t offset, int64_t numel) const {
    if (host_)
      std::memset(host_ + offset * size_, 0, static_cast<size_t>(numel * size_));
    else
      flat_.narrow(0, offset, numel).zero_();
  }

 private:
  const at::Tensor& flat_;
  char* host_;
  int64_t size_;
};

}  // namespace

// Requires mutex_. Two buffers suffice if gradients arrive in the usual order: one is filled while
// the other is in flight. A different order keeps several buckets open and allocates more buffers.
at::Tensor Reducer::take_buffer(const Bucket& bucket, at::ScalarType dtype) {
  const auto find = [&] {
    return std::find_if(spare_.begin(), spare_.end(), [&](const SpareBuffer& one) { return one.memory.scalar_type() == dtype; });
  };
  auto found = find();
  while (found == spare_.end() && flying_.size() > 1) {
    finish(*flying_.front());
    found = find();
  }
  if (found == spare_.end()) return allocate_flat(largest_bucket_, dtype, ranges_[bucket.range].parameters[0].tensor.device());
  const SpareBuffer spare = std::move(*found);
  spare_.erase(found);
  if (options_.host) options_.host->wait(spare.read_by);
  return spare.memory;
}

void Reducer::send_ready_buckets() {
  while (next_bucket_ < buckets_.size() && buckets_[next_bucket_].awaited == 0) send(buckets_[next_bucket_++]);
}

// Requires mutex_.
void Reducer::send(Bucket& bucket) {
  at::NoGradGuard no_grad;
  Range& range = ranges_[bucket.range];
  const bool accumulates = accumulates_shards(bucket);
  at::Tensor part;
  if (accumulates) {
    if (!bucket.gathered.defined()) bucket.gathered = take_buffer(bucket, range.grad_dtype);
    const Eraser clear(bucket.gathered);
    for (const auto& [offset, numel] : bucket.gaps) clear(offset, numel);  // the buffer may have served another bucket
    for (size_t i = bucket.slot; i < bucket.slot + bucket.last - bucket.first; ++i) {
      if (!slots_[i].has_arrived)
        for (const auto& place : stretches(bucket, i)) clear(place.at, place.numel);
      slots_[i].has_arrived = false;
    }
    part = bucket.gathered.narrow(0, 0, bucket.numel);
  } else {
    zero_missing(range, bucket.first, bucket.last);
    if (range.has_unreduced_gradients) return;
    part = range.grad.narrow(0, bucket.offset, bucket.numel);
  }
  if (const double factor = pre_factor(range); factor != 1.0) part.mul_(factor);
  const bool is_cast = options_.communication_dtype && *options_.communication_dtype != range.grad_dtype;
  if (is_cast) {
    if (!bucket.cast.defined())
      bucket.cast = accumulates ? take_buffer(bucket, *options_.communication_dtype)
                                : at::empty({bucket.numel}, part.options().dtype(*options_.communication_dtype));
    const at::Tensor cast = bucket.cast.narrow(0, 0, bucket.numel);
    cast.copy_(part);
    part = cast;
  }
  finished_ = false;
  if (timers_.is_traced()) bucket.sent = Timers::Clock::now();
  if (range.reduction() == Reduction::kAllReduce) {
    bucket.work = range.ranks.comm->all_reduce(part);
    return;
  }
  const zero::Shard& shard = bucket.shard;
  // The first sum of a step is received in place. Later sums, and sums in another dtype or for the
  // host, are received in the bucket, and added or copied from there.
  const bool is_direct = accumulates && !bucket.has_sum && !is_cast && !options_.host;
  at::Tensor into = is_direct ? range.grad_of(shard) : part.narrow(0, range.ranks.comm->rank() * shard.numel, shard.numel);
  bucket.arriving = is_direct || (!is_cast && !accumulates) ? at::Tensor() : into;
  bucket.work = range.ranks.comm->reduce_scatter(part, into);
  if (accumulates) flying_.push_back(&bucket);
}

void Reducer::zero_missing(Range& range, size_t first, size_t last) {
  for (size_t p = first; p < last; ++p) {
    auto& parameter = range.parameters[p];
    if (!parameter.held.defined()) parameter.held = range.flat_grad(parameter).zero_();
  }
}

void Reducer::end_backward() {
  marked_.reset();
  give_leftovers_back();
  in_backward_ = false;
  learn_arrivals();
  mark_gradients();
  if (!current_.reduce) return;
  std::lock_guard lock(mutex_);
  for (; next_bucket_ < buckets_.size(); ++next_bucket_) send(buckets_[next_bucket_]);
  reduced_ = true;
  if (!late_.empty()) reduce_late();
}

void Reducer::wait() {
  if (!finished_) finish_works();
  if (options_.host) options_.host->wait();
  at::NoGradGuard no_grad;
  for (auto& range : ranges_)
    if (range.reduction() != Reduction::kReduceScatter) zero_missing(range, 0, range.parameters.size());
  for (auto& bucket : buckets_) {
    if (accumulates_shards(bucket) && !bucket.has_sum) ranges_[bucket.range].grad_of(bucket.shard).zero_();
  }
}

void Reducer::finish_works() {
  at::NoGradGuard no_grad;
  std::lock_guard lock(mutex_);
  for (auto& bucket : buckets_) finish(bucket);
  finished_ = true;
}

// Requires mutex_. Does nothing for a bucket that was not sent.
void Reducer::finish(Bucket& bucket) {
  if (!bucket.work.pending()) return;
  at::NoGradGuard no_grad;
  std::erase(flying_, &bucket);
  {
    Timers::Wait timed(timers_, TimedPhase::kReduce);
    bucket.work.block();
  }
  if (timers_.is_traced()) trace_transfer(bucket);
  bucket.sent = {};
  Range& range = ranges_[bucket.range];
  if (range.reduction() == Reduction::kAllReduce) {
    if (bucket.cast.defined()) range.grad.narrow(0, bucket.offset, bucket.numel).copy_(bucket.cast);
    return;
  }
  at::Tensor own = range.grad_of(bucket.shard);
  HostGradients::Ticket read_by = 0;
  if (bucket.arriving.defined()) {
    if (options_.host)
      read_by = options_.host->take(own, bucket.arriving, bucket.has_sum);
    else if (bucket.has_sum)
      own.add_(bucket.arriving);
    else
      own.copy_(bucket.arriving);
    bucket.arriving.reset();
  }
  if (!accumulates_shards(bucket)) return;
  bucket.has_sum = true;
  give_back(bucket, read_by);
}

void Reducer::give_back(Bucket& bucket, HostGradients::Ticket read_by) {
  for (at::Tensor* buffer : {&bucket.gathered, &bucket.cast})
    if (buffer->defined()) {
      spare_.push_back({std::move(*buffer), read_by});
      buffer->reset();
    }
}

void Reducer::trace_transfer(const Bucket& bucket) const {
  if (bucket.sent == Timers::Clock::time_point()) return;
  const auto& parameters = ranges_[bucket.range].parameters;
  const size_t size = c10::elementSize(options_.communication_dtype.value_or(ranges_[bucket.range].grad_dtype));
  timers_.trace->flight("reduce",
                        formatted("bucket of {}{}", parameters[bucket.first].name,
                                  bucket.last - bucket.first > 1 ? formatted(" to {}", parameters[bucket.last - 1].name) : ""),
                        bucket.sent, Timers::Clock::now(), bucket.numel * static_cast<int64_t>(size));
}

}  // namespace gannet
