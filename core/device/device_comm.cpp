#include "device/device_comm.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tensor/dtype.h"

namespace gannet {
namespace {

uint64_t numel_of(const at::Tensor& tensor) {
  GANNET_CHECK(tensor.is_contiguous());
  return static_cast<uint64_t>(tensor.numel());
}

}  // namespace

void DeviceWork::wait() {
  work_.wait();
  tensors_.clear();
}

void DeviceWork::block() {
  if (!work_.pending()) return;
  void* const stream = comm_->stream_();
  work_.block(stream);
  if (!stream)
    tensors_.clear();
  else
    comm_->hold(std::move(*this));
}

DeviceComm::~DeviceComm() = default;  // the works wait

void DeviceComm::hold(DeviceWork work) {
  const std::lock_guard lock(mutex_);
  held_.push_back(std::move(work));
}

// Gives back what is over, in the order in which it was started; keeps the rest.
void DeviceComm::sweep() {
  const std::lock_guard lock(mutex_);
  while (!held_.empty() && held_.front().work_.is_over()) held_.pop_front();
}

DeviceWork DeviceComm::start(const gannet_collective_args& args, DeviceWork::Held tensors) {
  sweep();
  return DeviceWork(this, group_.start(args, stream_()), std::move(tensors));
}

DeviceWork DeviceComm::all_reduce(const at::Tensor& tensor, gannet_reduce_op op) {
  return start(collective::all_reduce(tensor.data_ptr(), numel_of(tensor), to_dtype(tensor.scalar_type()), op), {tensor});
}

DeviceWork DeviceComm::broadcast(const at::Tensor& tensor, uint32_t root) {
  numel_of(tensor);
  return start(collective::broadcast(tensor.data_ptr(), tensor.nbytes(), GANNET_UINT8, root), {tensor});
}

DeviceWork DeviceComm::all_gather(const at::Tensor& mine, const at::Tensor& whole) {
  GANNET_CHECK(numel_of(whole) == numel_of(mine) * size() && whole.scalar_type() == mine.scalar_type());
  return start(collective::all_gather(mine.const_data_ptr(), whole.data_ptr(), numel_of(mine), to_dtype(mine.scalar_type())),
               {mine, whole});
}

DeviceWork DeviceComm::reduce_scatter(const at::Tensor& whole, const at::Tensor& mine, gannet_reduce_op op) {
  GANNET_CHECK(numel_of(whole) == numel_of(mine) * size() && whole.scalar_type() == mine.scalar_type());
  return start(
      collective::reduce_scatter(whole.const_data_ptr(), mine.data_ptr(), numel_of(mine), to_dtype(mine.scalar_type()), op),
      {whole, mine});
}

DeviceWork DeviceComm::all_to_all(const at::Tensor& send, const at::Tensor& receive) {
  GANNET_CHECK(numel_of(send) == numel_of(receive) && send.scalar_type() == receive.scalar_type() && send.numel() % size() == 0);
  return start(
      collective::all_to_all(send.const_data_ptr(), receive.data_ptr(), numel_of(send) / size(), to_dtype(send.scalar_type())),
      {send, receive});
}

DeviceWork DeviceComm::exchange(const std::vector<Sent>& sent, const std::vector<Received>& received) {
  sweep();
  std::vector<gannet_collective_args> batch;
  DeviceWork::Held tensors;
  for (const auto& [to, tensor] : sent) {
    batch.push_back(collective::send(tensor.const_data_ptr(), numel_of(tensor), to_dtype(tensor.scalar_type()), to));
    tensors.push_back(tensor);
  }
  for (const auto& [from, tensor] : received) {
    batch.push_back(collective::receive(tensor.data_ptr(), numel_of(tensor), to_dtype(tensor.scalar_type()), from));
    tensors.push_back(tensor);
  }
  return DeviceWork(this, group_.start_many(std::move(batch), stream_()), std::move(tensors));
}

}  // namespace gannet
