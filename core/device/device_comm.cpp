#include "device/device_comm.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/pinned.h"

namespace gannet {
namespace {

uint64_t numel_of(const at::Tensor& tensor) {
  GANNET_CHECK(tensor.is_contiguous());
  return static_cast<uint64_t>(tensor.numel());
}

}  // namespace

void DeviceWork::wait() {
  work_.wait();
  bring_back();
}

void DeviceWork::bring_back() {
  for (MovedTensor& one : tensors_)
    if (one.host.defined() && one.is_written) one.tensor.copy_(one.host);
  tensors_.clear();
}

void DeviceWork::end() noexcept {
  if (!work_.pending()) return;
  work_ = Work();  // waits, and logs a failure
  try {
    const at::NoGradGuard no_grad;
    bring_back();
  } catch (const std::exception&) {  // the next operator reports the device's error
  }
}

void DeviceWork::block() {
  block_stream();
  if (!work_.pending()) return;
  comm_->hold(std::move(*this));
}

void DeviceWork::block_stream() {
  if (!work_.pending()) return;
  void* const stream = comm_->stream();
  if (!stream) return wait();
  work_.block(stream);
}

DeviceComm::~DeviceComm() = default;  // each held DeviceWork waits for its collective

void DeviceComm::hold(DeviceWork work) {
  const std::lock_guard lock(mutex_);
  held_.push_back(std::move(work));
}

// Releases finished collectives in the order in which they were started; keeps the rest.
void DeviceComm::sweep() {
  const std::lock_guard lock(mutex_);
  while (!held_.empty() && held_.front().work_.is_over()) held_.pop_front();
}

// The copy to the host waits for the current stream, so that the data is valid when the Comm gets
// it.
DeviceWork::MovedTensor DeviceComm::moved(const at::Tensor& tensor, bool is_read, bool is_written) const {
  DeviceWork::MovedTensor moved{tensor, {}, is_written};
  if (!is_staged_ || tensor.is_cpu()) return moved;
  const at::NoGradGuard no_grad;
  moved.host = pinned_empty(tensor.sizes(), tensor.scalar_type(), tensor.device());
  if (is_read) moved.host.copy_(tensor);
  return moved;
}

DeviceWork DeviceComm::start(const gannet_collective_args& args, DeviceWork::HeldTensors tensors) {
  sweep();
  return DeviceWork(this, group_.start(args, stream()), std::move(tensors));
}

DeviceWork DeviceComm::all_reduce(const at::Tensor& tensor, gannet_reduce_op op) {
  const uint64_t numel = numel_of(tensor);
  auto both = moved(tensor, true, true);
  return start(collective::all_reduce(both.memory().data_ptr(), numel, to_dtype(tensor.scalar_type()), op), {both});
}

void DeviceComm::Batch::broadcast(const at::Tensor& tensor, uint32_t root) {
  numel_of(tensor);
  const auto& both = tensors_.emplace_back(comm_.moved(tensor, comm_.rank() == root, comm_.rank() != root));
  calls_.push_back(collective::broadcast(both.memory().data_ptr(), tensor.nbytes(), GANNET_UINT8, root));
}

void DeviceComm::Batch::all_gather(const at::Tensor& mine, const at::Tensor& whole) {
  GANNET_CHECK(numel_of(whole) == numel_of(mine) * comm_.size() && whole.scalar_type() == mine.scalar_type());
  const void* const from = tensors_.emplace_back(comm_.read(mine)).memory().const_data_ptr();
  void* const to = tensors_.emplace_back(comm_.written(whole)).memory().data_ptr();
  calls_.push_back(collective::all_gather(from, to, numel_of(mine), to_dtype(mine.scalar_type())));
}

DeviceWork DeviceComm::Batch::start() {
  if (calls_.size() == 1) return comm_.start(calls_.front(), std::move(tensors_));
  comm_.sweep();
  return DeviceWork(&comm_, comm_.group_.start_many(std::move(calls_), comm_.stream()), std::move(tensors_));
}

DeviceWork DeviceComm::broadcast(const at::Tensor& tensor, uint32_t root) {
  Batch one(*this);
  one.broadcast(tensor, root);
  return one.start();
}

DeviceWork DeviceComm::all_gather(const at::Tensor& mine, const at::Tensor& whole) {
  Batch one(*this);
  one.all_gather(mine, whole);
  return one.start();
}

DeviceWork DeviceComm::reduce_scatter(const at::Tensor& whole, const at::Tensor& mine, gannet_reduce_op op) {
  GANNET_CHECK(numel_of(whole) == numel_of(mine) * size() && whole.scalar_type() == mine.scalar_type());
  auto from = read(whole), to = written(mine);
  return start(collective::reduce_scatter(from.memory().const_data_ptr(), to.memory().data_ptr(), numel_of(mine),
                                          to_dtype(mine.scalar_type()), op),
               {from, to});
}

DeviceWork DeviceComm::all_to_all(const at::Tensor& send, const at::Tensor& receive) {
  GANNET_CHECK(numel_of(send) == numel_of(receive) && send.scalar_type() == receive.scalar_type() && send.numel() % size() == 0);
  auto from = read(send), to = written(receive);
  return start(collective::all_to_all(from.memory().const_data_ptr(), to.memory().data_ptr(), numel_of(send) / size(),
                                      to_dtype(send.scalar_type())),
               {from, to});
}

DeviceWork DeviceComm::exchange(const std::vector<SentTensor>& sent, const std::vector<ReceivedTensor>& received) {
  sweep();
  std::vector<gannet_collective_args> batch;
  DeviceWork::HeldTensors tensors;
  for (const auto& [to, tensor] : sent) {
    const auto& from = tensors.emplace_back(read(tensor));
    numel_of(tensor);
    batch.push_back(collective::send(from.memory().const_data_ptr(), tensor.nbytes(), GANNET_UINT8, to));
  }
  for (const auto& [from, tensor] : received) {
    const auto& into = tensors.emplace_back(written(tensor));
    numel_of(tensor);
    batch.push_back(collective::receive(into.memory().data_ptr(), tensor.nbytes(), GANNET_UINT8, from));
  }
  return DeviceWork(this, group_.start_many(std::move(batch), stream()), std::move(tensors));
}

}  // namespace gannet
