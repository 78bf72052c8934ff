// Collectives on the device's tensors: the only way in the core to a device's Comm. It takes the current stream itself, so that a
// collective begins after the kernels that produce its buffers, and it holds the tensors until the collective is over. A Comm
// that moves the host's memory alone serves a device, too: copies of the tensors in page-locked memory are moved in their place.
//
//   DeviceWork work = comm.all_reduce(bucket);       // begins after what the current stream was given
//   ...
//   work.block();                                    // kernels from here on see the sum; the host continues
//
// Where compute is synchronous (a CPU) there is no stream, and block() waits.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "interfaces/comm.h"

namespace gannet {

class DeviceComm;

// A collective of tensors in flight. Destroying it waits, as Work does, and what it wrote is in the tensors.
class DeviceWork {
 public:
  DeviceWork() = default;
  DeviceWork(DeviceWork&&) = default;
  ~DeviceWork() { end(); }
  DeviceWork& operator=(DeviceWork&& other) noexcept {  // waits for what was pending, and only then gives its tensors back
    end();
    work_ = std::move(other.work_);
    tensors_ = std::move(other.tensors_);
    comm_ = other.comm_;
    return *this;
  }
  bool pending() const { return work_.pending(); }
  void wait();   // the host; the tensors are free when it returns
  void block();  // the current stream; the tensors are held until the collective is over. Nothing is pending then

 private:
  friend class DeviceComm;
  struct Moved {
    at::Tensor tensor;
    at::Tensor host = {};     // moved in its place; undefined: the tensor itself is
    bool is_written = false;  // by the collective
    const at::Tensor& memory() const { return host.defined() ? host : tensor; }
  };
  using Held = c10::SmallVector<Moved, 2>;
  DeviceWork(DeviceComm* comm, Work work, Held tensors) : comm_(comm), tensors_(std::move(tensors)), work_(std::move(work)) {}
  void bring_back();  // to the device, what was moved in the tensors' place
  void end() noexcept;
  DeviceComm* comm_ = nullptr;
  Held tensors_;
  Work work_;  // dies first: it waits
};

class DeviceComm {
 public:
  enum Memory { kOwn, kStaged };
  // `stream`: the native handle of the current stream, asked for at every call; null where the device has no streams. kStaged:
  // the Comm cannot reach the tensors' memory, so that copies on the host are moved.
  DeviceComm(CommGroup& group, std::function<void*()> stream, Memory memory = kOwn)
      : group_(group), stream_(std::move(stream)), is_staged_(memory == kStaged) {}
  ~DeviceComm();
  DeviceComm(const DeviceComm&) = delete;

  uint32_t rank() const { return group_.rank(); }
  uint32_t size() const { return group_.size(); }
  const std::vector<uint32_t>& ranks() const { return group_.ranks(); }
  const std::string& name() const { return group_.name(); }
  CommGroup& group() { return group_; }
  Comm& comm() { return group_.comm(); }

  // Contiguous tensors. Elements are counted from the smaller one: an all_gather's `whole` has size() times those of `mine`.
  DeviceWork all_reduce(const at::Tensor& tensor, gannet_reduce_op op = GANNET_SUM);
  DeviceWork broadcast(const at::Tensor& tensor, uint32_t root);  // as bytes: any dtype
  DeviceWork all_gather(const at::Tensor& mine, const at::Tensor& whole);
  DeviceWork reduce_scatter(const at::Tensor& whole, const at::Tensor& mine, gannet_reduce_op op = GANNET_SUM);
  DeviceWork all_to_all(const at::Tensor& send, const at::Tensor& receive);

  // Messages, gathered and started together: the only form that two ranks can exchange in.
  //   comm.exchange({{.to = next, .tensor = activations}}, {{.from = next, .tensor = gradients}});
  struct Sent {
    uint32_t to;
    at::Tensor tensor;
  };
  struct Received {
    uint32_t from;
    at::Tensor tensor;
  };
  DeviceWork exchange(const std::vector<Sent>& sent, const std::vector<Received>& received);

 private:
  friend class DeviceWork;
  DeviceWork::Moved read(const at::Tensor& tensor) const { return moved(tensor, true, false); }
  DeviceWork::Moved written(const at::Tensor& tensor) const { return moved(tensor, false, true); }
  DeviceWork::Moved moved(const at::Tensor& tensor, bool is_read, bool is_written) const;
  void* stream() const { return is_staged_ ? nullptr : stream_(); }  // of what is moved
  DeviceWork start(const gannet_collective_args& args, DeviceWork::Held tensors);
  void hold(DeviceWork work);
  void sweep();

  CommGroup& group_;
  std::function<void*()> stream_;
  const bool is_staged_;
  std::mutex mutex_;
  std::deque<DeviceWork> held_;  // a stream waits for them, and nobody else; guarded by mutex_
};

}  // namespace gannet
