// Keeps gradients in host memory for a device with separate memory (offload_optimizer at
// stages 2 and 3). Gradients are copied to the host while backward continues, and are stored or
// added there.
//
//   HostGradients sums(accelerator, device_index, in_flight_bytes, stream);
//   at::Tensor mine = sums.allocate(shard_numel, at::kFloat);
//   const auto ticket = sums.take(mine.narrow(0, 100, 10), on_device, /*adds=*/false);
//   sums.wait(ticket);   // on_device's memory may be reused
//   sums.wait();         // `mine` is complete
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "device/queue.h"

namespace gannet {

class HostGradients {
 public:
  using Ticket = uint64_t;  // sequence number of a take()

  // `most_bytes` limits the device memory held by transfers in flight. `stream` is the stream of
  // the operators that make the gradients.
  HostGradients(Accelerator& accelerator, uint32_t device, int64_t most_bytes, std::function<void*()> stream);
  ~HostGradients();
  HostGradients(const HostGradients&) = delete;

  at::Tensor allocate(int64_t numel, at::ScalarType dtype);  // zeroed, page-locked during this object's lifetime

  // `from` must be dense, and is kept alive until it has arrived. Several takes into the same place
  // are applied in the order of the calls. take() and wait() are thread-safe.
  Ticket take(const at::Tensor& into, const at::Tensor& from, bool adds);
  void wait(Ticket ticket);  // waits until everything taken up to `ticket` has arrived
  void wait() { wait(UINT64_MAX); }

 private:
  struct GradientTransfer {
    at::Tensor into, from;
    at::Tensor landing;  // staging buffer in `from`'s dtype, part of a half; undefined for a direct copy
    bool adds = false;
    Ticket ticket = 0;
    Event came;
  };
  at::Tensor landing_for(int64_t bytes);
  void start(GradientTransfer coming);
  void finish_oldest();

  Accelerator& accelerator_;
  int64_t most_bytes_;
  std::function<void*()> stream_;
  std::mutex mutex_;
  std::deque<GradientTransfer> coming_;
  int64_t coming_bytes_ = 0;
  size_t landings_ = 0;  // staging buffers in flight
  Ticket taken_ = 0;
  uint64_t started_ = 0;  // number of copies started so far
  // Two staging halves that are filled in turn. A half is reused once everything in it has been
  // moved to its destination.
  struct StagingHalf {
    at::Tensor memory;  // [bytes] allocated at first use
    int64_t used = 0;
    uint64_t last = 0;  // the value of started_ after the last copy into this half
  };
  std::array<StagingHalf, 2> halves_;
  size_t half_ = 0;
  std::vector<at::Tensor> pinned_;  // the tensors made by allocate()
  std::vector<Pin> pins_;           // the pins of pinned_; destroyed before it
  Queue queue_;                     // destroyed first: it waits for its copies
};

}  // namespace gannet
