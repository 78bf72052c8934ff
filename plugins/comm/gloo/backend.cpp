#include "backend.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <gannet/sdk_threads.hpp>

#include "store.h"

namespace gannet_gloo {
namespace {

using gannet::sdk::Failure;
using std::chrono::milliseconds;

at::Tensor bytes_at(const void* pointer, uint64_t count) {
  return at::from_blob(const_cast<void*>(pointer), {static_cast<int64_t>(count)}, at::TensorOptions().dtype(at::kByte));
}

// A transfer that one of our threads waits for without a timeout.
class GlooTransfer : public Transfer {
 public:
  explicit GlooTransfer(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  void wait() override {
    bool is_over = false;
    try {
      is_over = work_->wait();
    } catch (...) {
      throw failure_of("a transfer of it", text_of(std::current_exception()));
    }
    if (!is_over) throw Failure(GANNET_PEER_LOST, "a transfer of it was aborted");
  }
  void abort() override { work_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

}  // namespace

std::string text_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "an unknown exception";
  }
}

// Gloo has one exception type for all I/O errors. Only the exception's text distinguishes a timeout
// from a lost peer.
Failure failure_of(const std::string& doing, const std::string& said) {
  const bool late = said.find("imed out") != std::string::npos || said.find("imeout") != std::string::npos;
  if (late) return {GANNET_TIMEOUT, doing + " timed out; Gloo says: " + said};
  return {GANNET_PEER_LOST, doing + " failed because another rank ended or closed its connection; Gloo says: " + said};
}

c10::intrusive_ptr<Backend> connect(const GroupOptions& options) {
  c10::intrusive_ptr<Backend> backend;
  // Gloo's own threads, which start here, inherit the signal mask.
  gannet::sdk::without_signals([&] {
    const milliseconds time_out(options.timeout_ms);
    auto backend_options = c10d::ProcessGroupGloo::Options::create(time_out);
    backend_options->threads = 2;
    backend_options->devices = {!options.interface.empty() ? c10d::ProcessGroupGloo::createDeviceForInterface(options.interface)
                                : !options.address.empty() ? c10d::ProcessGroupGloo::createDeviceForHostname(options.address)
                                                           : c10d::ProcessGroupGloo::createDefaultDevice()};
    auto store = c10::make_intrusive<HostStore>(options.store, options.name + "/", time_out);
    backend =
        c10::make_intrusive<Backend>(store, static_cast<int>(options.rank), static_cast<int>(options.size), backend_options);
    // The caller's deadline in wait() expires first, so that the message is ours and the work stays
    // pending.
    backend->setTimeout(time_out + milliseconds(10'000));
  });
  return backend;
}

// Gloo writes to a connection in the thread that calls send() or recv(), without MSG_NOSIGNAL.
std::unique_ptr<Transfer> BackendMail::send(const void* from, uint64_t bytes, uint32_t to, Lane lane) {
  std::vector<at::Tensor> tensors{bytes_at(from, bytes)};
  const gannet::sdk::BlockPipeSignal blocked;
  const std::lock_guard lock(issuing_);
  return std::make_unique<GlooTransfer>(backend_.send(tensors, static_cast<int>(to), lane));
}

std::unique_ptr<Transfer> BackendMail::receive(void* to, uint64_t bytes, uint32_t from, Lane lane) {
  std::vector<at::Tensor> tensors{bytes_at(to, bytes)};
  const gannet::sdk::BlockPipeSignal blocked;
  const std::lock_guard lock(issuing_);
  return std::make_unique<GlooTransfer>(backend_.recv(tensors, static_cast<int>(from), lane));
}

}  // namespace gannet_gloo
