// Collectives on device tensors: the core's only access to a device's Comm. A collective is ordered
// after the work of the current stream, so it begins after the kernels that produce its buffers,
// and it holds the tensors until it completes. A Comm for host memory can also serve a device: it
// then works on page-locked copies of the tensors.
//
//   DeviceWork work = comm.all_reduce(bucket);       // begins after the stream's earlier work
//   ...
//   work.block();                                    // later kernels see the sum; the host does not wait
//
// On a device with synchronous compute (a CPU), there is no stream, and block() waits.
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

// A collective on tensors, possibly still in flight. Like Work's, its destructor waits; the tensors
// then hold the results.
class DeviceWork {
 public:
  DeviceWork() = default;
  DeviceWork(DeviceWork&&) = default;
  ~DeviceWork() { end(); }
  DeviceWork& operator=(DeviceWork&& other) noexcept {  // waits for the pending work before it releases the tensors
    end();
    work_ = std::move(other.work_);
    tensors_ = std::move(other.tensors_);
    comm_ = other.comm_;
    return *this;
  }
  bool pending() const { return work_.pending(); }
  bool is_over() const { return work_.is_over(); }
  void wait();          // blocks the host; the tensors are free on return
  void block();         // the current stream waits; the tensors stay held until the collective is over; pending() becomes false
  void block_stream();  // the same, but the work stays pending: other streams can wait for it, too

 private:
  friend class DeviceComm;
  struct MovedTensor {
    at::Tensor tensor;
    at::Tensor host = {};     // the host copy that the Comm works on; undefined: it works on the tensor itself
    bool is_written = false;  // whether the collective writes to it
    const at::Tensor& memory() const { return host.defined() ? host : tensor; }
  };
  using HeldTensors = c10::SmallVector<MovedTensor, 2>;
  DeviceWork(DeviceComm* comm, Work work, HeldTensors tensors)
      : comm_(comm), tensors_(std::move(tensors)), work_(std::move(work)) {}
  void bring_back();  // copies the host buffers back to the tensors
  void end() noexcept;
  DeviceComm* comm_ = nullptr;
  HeldTensors tensors_;
  Work work_;  // the last member, so destroyed first: its destructor waits
};

class DeviceComm {
 public:
  enum Memory { kOwn, kStaged };
  // `stream` returns the native handle of the stream that is current at the time of the call, or
  // null if the device has no streams. kStaged: the Comm cannot reach the tensors' memory, so it
  // works on host copies of them.
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
  // Whether collectives are asynchronous to the host: the stream waits for them.
  bool is_ordered_by_streams() const { return stream() != nullptr; }

  // All tensors must be contiguous. `whole` has size() times the elements of `mine`.
  DeviceWork all_reduce(const at::Tensor& tensor, gannet_reduce_op op = GANNET_SUM);
  DeviceWork broadcast(const at::Tensor& tensor, uint32_t root);  // sent as bytes, so any dtype will do
  DeviceWork all_gather(const at::Tensor& mine, const at::Tensor& whole);
  DeviceWork reduce_scatter(const at::Tensor& whole, const at::Tensor& mine, gannet_reduce_op op = GANNET_SUM);
  DeviceWork all_to_all(const at::Tensor& send, const at::Tensor& receive);

  // Collectives that are launched together: one call of the Comm, one work for all of them.
  //   DeviceComm::Batch batch(comm);
  //   batch.all_gather(mine, whole);
  //   DeviceWork work = batch.start();
  class Batch {
   public:
    explicit Batch(DeviceComm& comm) : comm_(comm) {}
    void all_gather(const at::Tensor& mine, const at::Tensor& whole);
    void broadcast(const at::Tensor& tensor, uint32_t root);
    DeviceWork start();

   private:
    DeviceComm& comm_;
    std::vector<gannet_collective_args> calls_;
    DeviceWork::HeldTensors tensors_;
  };

  // Starts sends and receives together, which is the only way for two ranks to exchange messages.
  // They are sent as bytes, so any dtype will do.
  //   comm.exchange({{.to = next, .tensor = activations}}, {{.from = next, .tensor = gradients}});
  struct SentTensor {
    uint32_t to;
    at::Tensor tensor;
  };
  struct ReceivedTensor {
    uint32_t from;
    at::Tensor tensor;
  };
  DeviceWork exchange(const std::vector<SentTensor>& sent, const std::vector<ReceivedTensor>& received);

 private:
  friend class DeviceWork;
  DeviceWork::MovedTensor read(const at::Tensor& tensor) const { return moved(tensor, true, false); }
  DeviceWork::MovedTensor written(const at::Tensor& tensor) const { return moved(tensor, false, true); }
  DeviceWork::MovedTensor moved(const at::Tensor& tensor, bool is_read, bool is_written) const;
  void* stream() const { return is_staged_ ? nullptr : stream_(); }  // orders work on the buffers; null for host copies
  DeviceWork start(const gannet_collective_args& args, DeviceWork::HeldTensors tensors);
  void hold(DeviceWork work);
  void sweep();

  CommGroup& group_;
  std::function<void*()> stream_;
  const bool is_staged_;
  std::mutex mutex_;
  std::deque<DeviceWork> held_;  // collectives that only a stream waits for; guarded by mutex_
};

}  // namespace gannet
