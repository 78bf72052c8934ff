// Communication between ranks, on raw pointers: a Comm plugin's object, its groups, and the work in flight.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "interfaces/host.h"
#include "plugin/plugin.h"

namespace gannet {

class Comm;
class Error;

// The Comm's view of the control plane's watch (control/watch.h), which explains why a collective
// does not complete. A Comm without a watcher waits up to its timeout.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // Throws the verdict if there is one.
  virtual void check() = 0;
  // Called when the Comm has lost a peer. Throws the reason as soon as it is known; returns if none
  // is found.
  virtual void explain(const Error& failure) = 0;
  // How long the calling thread may wait for a collective; returns `otherwise` if the thread is not
  // in a watched call.
  virtual std::chrono::milliseconds patience(std::chrono::milliseconds otherwise) const = 0;
  // Called around every wait for other ranks.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
};

// These functions describe collectives as values, which can be started singly or in a batch.
// `count` is a number of elements; see gannet_collective in abi.h.
namespace collective {
gannet_collective_args all_reduce(void* buffer, uint64_t count, gannet_dtype dtype, gannet_reduce_op op = GANNET_SUM);
gannet_collective_args broadcast(void* buffer, uint64_t count, gannet_dtype dtype, uint32_t root);
gannet_collective_args all_gather(const void* send, void* receive, uint64_t count, gannet_dtype dtype);
gannet_collective_args reduce_scatter(const void* send, void* receive, uint64_t count, gannet_dtype dtype,
                                      gannet_reduce_op op = GANNET_SUM);
gannet_collective_args all_to_all(const void* send, void* receive, uint64_t count, gannet_dtype dtype);
gannet_collective_args send(const void* buffer, uint64_t count, gannet_dtype dtype, uint32_t to);
gannet_collective_args receive(void* buffer, uint64_t count, gannet_dtype dtype, uint32_t from);
gannet_collective_args barrier();
}  // namespace collective

// A collective in flight, or a batch of them. The destructor waits if wait() was not called, and
// warns on failure. If the work has already timed out, the destructor instead aborts everything
// that is in flight on the Comm.
class Work {
 public:
  Work() = default;
  Work(Comm* comm, void* handle) : comm_(comm), handle_(handle) {}
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();
  bool pending() const { return handle_ != nullptr; }
  // Blocks the host. Throws Error(kTimeout) or Error(kPeerLost), or the watch's verdict. May be
  // called when nothing is pending.
  void wait();
  // Whether the collective has completed, so that wait() would return at once.
  bool is_over() const;
  // Later work on the device stream waits for the collective; the host does not. The work stays
  // pending, with its buffers in use, until wait() returns or is_over() is true. With a null
  // stream, block() is the same as wait().
  void block(void* stream);

 private:
  void finish() noexcept;
  void free() noexcept;
  // Not owned: the Comm outlives its works.
  Comm* comm_ = nullptr;
  // The plugin's work handle; null if nothing is pending.
  void* handle_ = nullptr;
  // Whether the last wait() timed out. If so, the collective is still in flight and uses its
  // buffers.
  bool timed_out_ = false;
};

// A group of ranks that call the same collectives in the same order. The core uses it through
// DeviceComm (device/device_comm.h), which handles the stream, and, for host memory, through
// HostGroup (interfaces/host_group.h).
class CommGroup {
 public:
  CommGroup(Comm& comm, const std::vector<uint32_t>& ranks, const std::string& name);
  ~CommGroup();
  CommGroup(const CommGroup&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return static_cast<uint32_t>(ranks_.size()); }
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  const std::string& name() const { return name_; }
  Comm& comm() { return comm_; }

  // `stream`: the native stream that produces the buffers; null for host memory, and on a device
  // without streams.
  Work start(gannet_collective_args args, void* stream);
  // Starts a batch of collectives that progress together, in no particular order. Used for
  // exchanges and for many small gathers.
  Work start_many(std::vector<gannet_collective_args> batch, void* stream);

  // Must be called by all ranks of the group. Allocates memory that the plugin transfers faster
  // than other memory, and that the ranks of one host may share. Null if the plugin does not offer
  // such memory; any other memory can then be used.
  std::shared_ptr<void> allocate(uint64_t bytes);
  // Registers the caller's own memory for the lifetime of the result; null if the plugin does not
  // use registration.
  std::shared_ptr<void> register_buffer(void* buffer, uint64_t bytes);

 private:
  Work started(const std::function<void(void** work)>& start);
  Comm& comm_;
  std::vector<uint32_t> ranks_;
  std::string name_;
  uint32_t rank_ = 0;  // this rank's index in the group
  void* handle_ = nullptr;
};

// Whether the plugin moves host memory, as HostGroup requires.
bool serves_host_memory(const plugin::Plugin& comm);

class Comm {
 public:
  Comm(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, const gannet_rendezvous& rendezvous);
  ~Comm();
  Comm(const Comm&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  uint32_t rank() const { return rank_; }
  uint32_t world_size() const { return world_size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  // The program's communicator of all ranks (gannet_communicator_extension), which must outlive this
  // object; null if there is none.
  void set_communicator(const void* handle) { communicator_ = handle; }
  const void* communicator() const { return communicator_; }
  // The dtype in which sums of a 16-bit type are accumulated if the caller does not choose one; see
  // gannet_comm_api::sum_dtype.
  gannet_dtype sum_dtype(gannet_dtype dtype) const;
  gannet_comm_counters counters() const;
  void abort();  // may be called from any thread
  bool is_aborted() const { return aborted_; }
  void set_watcher(Watcher* watcher) { watcher_ = watcher; }  // the watcher must outlive every collective; null: none
  Watcher* watcher() const { return watcher_; }

  const gannet_comm_api* api() const { return api_; }
  void* self() const { return self_; }

 private:
  const plugin::Plugin& plugin_;
  // Kept alive because the plugin's object was created with a view of these params, and may still
  // use that view.
  plugin::ParamSet params_;
  const gannet_comm_api* api_;
  void* self_ = nullptr;
  uint32_t rank_ = 0, world_size_ = 1;
  // The longest wait for a collective if no watch limits it.
  std::chrono::milliseconds timeout_{600'000};
  const void* communicator_ = nullptr;  // not owned
  Watcher* watcher_ = nullptr;
  // Atomic, since the watch's thread aborts while another thread waits.
  std::atomic<bool> aborted_{false};
};

}  // namespace gannet
