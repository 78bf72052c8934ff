// Gradients that are kept in host memory beside a device with memory of its own (offload_optimizer at stages 2 and 3): what
// backward makes on the device travels to the host while backward continues, and is put or added there.
//
//   HostGradients sums(accelerator, device_index, in_flight_bytes, stream);
//   at::Tensor mine = sums.allocate(own_numel, at::kFloat);
//   const auto ticket = sums.take(mine.narrow(0, 100, 10), on_device, /*adds=*/false);
//   sums.wait(ticket);   // on_device's memory may be used again
//   sums.wait();         // `mine` is whole
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
  using Ticket = uint64_t;  // counts what was taken

  // `most_bytes` of the device's memory are held by what is on its way; `stream` is that of the operators which made it.
  HostGradients(Accelerator& accelerator, uint32_t device, int64_t most_bytes, std::function<void*()> stream);
  ~HostGradients();
  HostGradients(const HostGradients&) = delete;

  at::Tensor allocate(int64_t numel, at::ScalarType dtype);  // zeros, page-locked as long as this lives

  // `from`, dense, is kept until it has come. What follows it to the same place comes after it. Thread-safe, as wait is.
  Ticket take(const at::Tensor& into, const at::Tensor& from, bool adds);
  void wait(Ticket ticket);  // until all that was taken up to it has come
  void wait() { wait(UINT64_MAX); }

 private:
  struct Coming {
    at::Tensor into, from;
    at::Tensor landing;  // in `from`'s dtype, where it does not come to its place; a part of a half
    bool adds = false;
    Ticket ticket = 0;
    Event came;
  };
  at::Tensor landing_for(int64_t bytes);
  void start(Coming coming);
  void finish_oldest();

  Accelerator& accelerator_;
  int64_t most_bytes_;
  std::function<void*()> stream_;
  std::mutex mutex_;
  std::deque<Coming> coming_;
  int64_t coming_bytes_ = 0;
  size_t landings_ = 0;  // of those that are coming
  Ticket taken_ = 0;
  uint64_t started_ = 0;  // copies
  // Two halves that are filled in turn: one again when all that landed in it has gone on to its place.
  struct Half {
    at::Tensor memory;  // bytes, made when first needed
    int64_t used = 0;
    uint64_t last = 0;  // started_ after the last copy to it
  };
  std::array<Half, 2> halves_;
  size_t half_ = 0;
  std::vector<at::Tensor> pinned_;  // what allocate gave
  std::vector<Pin> pins_;           // of it, and gone before it
  Queue queue_;                     // dies first: it waits for its copies
};

}  // namespace gannet
