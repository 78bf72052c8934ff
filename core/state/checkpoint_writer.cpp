#include "state/checkpoint_writer.h"

#include <gannet/error.h>
#include <gannet/log.h>
#include <pthread.h>

#include <algorithm>
#include <gannet/sdk_threads.hpp>
#include <utility>

#include "tensor/flat_buffer.h"
#include "tensor/stream_copy.h"

namespace gannet {

CheckpointWriter::~CheckpointWriter() {
  try {
    wait();
  } catch (const std::exception& error) {
    log(LogLevel::kError, std::string("the last checkpoint was not written: ") + error.what());
  }
}

checkpoint::Saver& CheckpointWriter::saver(const std::string& folder) {
  auto& saver = savers_[real_path(folder)];
  if (!saver) saver = std::make_unique<checkpoint::Saver>(folder, ranks_);
  return *saver;
}

void CheckpointWriter::snapshot(std::vector<checkpoint::Slice>& slices) {
  copies_.resize(slices.size());
  for (size_t i = 0; i < slices.size(); ++i) {
    at::Tensor& copy = copies_[i];
    const at::Tensor& data = slices[i].data;
    if (!copy.defined() || copy.numel() != data.numel() || copy.scalar_type() != data.scalar_type())
      copy = allocate_flat(data.numel(), data.scalar_type(), at::kCPU);
    if (auto stored = std::exchange(slices[i].stored, nullptr))
      stored->copy_out(0, data.nbytes(), static_cast<char*>(copy.data_ptr()));
    else if (data.is_cpu() && data.is_contiguous())
      stream_copy(copy.mutable_data_ptr(), data.const_data_ptr(), data.nbytes());
    else
      copy.copy_(data);
    slices[i].data = copy;
  }
}

void CheckpointWriter::start(std::function<void()> write) {
  sdk::without_signals([&] {
    thread_ = std::thread([this, write = std::move(write)] {
      pthread_setname_np(pthread_self(), "gannet-save");
      try {
        write();
      } catch (...) {
        failure_ = std::current_exception();
      }
    });
  });
}

void CheckpointWriter::wait() {
  if (thread_.joinable()) thread_.join();
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace gannet
