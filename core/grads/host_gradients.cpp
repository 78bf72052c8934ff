#include "grads/host_gradients.h"

#include <ATen/core/grad_mode.h>
#include <gannet/log.h>

#include <algorithm>

#include "tensor/flat_buffer.h"

namespace gannet {
namespace {

// A stretch is large enough to keep the bus busy while the host adds the previous one.
constexpr int64_t kHalfBytes = 16 << 20, kStretchBytes = kHalfBytes / 2;
constexpr int64_t kAlignment = 64;

}  // namespace

HostGradients::HostGradients(Accelerator& accelerator, uint32_t device, int64_t most_bytes, std::function<void*()> stream)
    : accelerator_(accelerator),
      most_bytes_(most_bytes),
      stream_(std::move(stream)),
      queue_(accelerator.make_queue("gradients", device)) {}

HostGradients::~HostGradients() {
  try {
    wait();
  } catch (const std::exception& error) {  // thrown by a step that failed
    log(LogLevel::kError, error.what());
  }
}

at::Tensor HostGradients::allocate(int64_t numel, at::ScalarType dtype) {
  pinned_.push_back(allocate_flat(numel, dtype, at::kCPU));
  pins_.push_back(accelerator_.pin(pinned_.back().data_ptr(), pinned_.back().nbytes()));
  return pinned_.back();
}

HostGradients::Ticket HostGradients::take(const at::Tensor& into, const at::Tensor& from, bool adds) {
  at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  ++taken_;
  const at::Tensor to = into.view({-1}), source = from.contiguous().view({-1});
  queue_.wait_stream(stream_());
  if (!adds && to.scalar_type() == source.scalar_type()) {
    start({to, source, {}, false, taken_, {}});
    return taken_;
  }
  const int64_t stretch = kStretchBytes / static_cast<int64_t>(source.element_size());
  for (int64_t begin = 0; begin < source.numel(); begin += stretch) {
    const at::Tensor part = source.narrow(0, begin, std::min(stretch, source.numel() - begin));
    const at::Tensor landing = landing_for(static_cast<int64_t>(part.nbytes())).view(part.scalar_type());
    start({to.narrow(0, begin, part.numel()), part, landing, adds, taken_, {}});
  }
  return taken_;
}

at::Tensor HostGradients::landing_for(int64_t bytes) {
  if (halves_[half_].used + bytes > kHalfBytes) {
    half_ = 1 - half_;
    while (started_ - coming_.size() < halves_[half_].last) finish_oldest();
    halves_[half_].used = 0;
  }
  StagingHalf& half = halves_[half_];
  if (!half.memory.defined()) half.memory = allocate(kHalfBytes, at::kByte);
  const at::Tensor landing = half.memory.narrow(0, half.used, bytes);
  half.used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  half.last = started_ + 1;
  return landing;
}

void HostGradients::start(GradientTransfer coming) {
  const auto bytes = static_cast<int64_t>(coming.from.nbytes());
  while (!coming_.empty() && coming_bytes_ + bytes > most_bytes_) finish_oldest();
  // Staged data is moved to its destination in order, oldest first. A direct copy must not overtake
  // it.
  while (!coming.landing.defined() && landings_ > 0) finish_oldest();
  const at::Tensor& to = coming.landing.defined() ? coming.landing : coming.into;
  queue_.copy(to.data_ptr(), coming.from.const_data_ptr(), coming.from.nbytes());
  coming.came = queue_.record();
  coming_bytes_ += bytes;
  landings_ += coming.landing.defined();
  ++started_;
  coming_.push_back(std::move(coming));
}

void HostGradients::finish_oldest() {
  const GradientTransfer oldest = std::move(coming_.front());
  coming_.pop_front();
  coming_bytes_ -= static_cast<int64_t>(oldest.from.nbytes());
  landings_ -= oldest.landing.defined();
  oldest.came.wait();
  if (!oldest.landing.defined()) return;
  oldest.adds ? oldest.into.add_(oldest.landing) : oldest.into.copy_(oldest.landing);
}

void HostGradients::wait(Ticket ticket) {
  at::NoGradGuard no_grad;
  const std::lock_guard lock(mutex_);
  while (!coming_.empty() && coming_.front().ticket <= ticket) finish_oldest();
}

}  // namespace gannet
