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

// Explains why a collective does not end: the control plane's watch (control/watch.h). A Comm
// without one waits unassisted.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // Throws if something has gone wrong between the ranks.
  virtual void check() = 0;
  // Called when the Comm lost a peer: throws the reason once it is known; returns if none is found.
  virtual void explain(const Error& failure) = 0;
  // How long the calling thread may wait for a collective; `otherwise` if its call is not watched.
  virtual std::chrono::milliseconds patience(std::chrono::milliseconds otherwise) const = 0;
  // Called around every wait for other ranks.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
};

// Collectives as values, to be started singly or in a batch. `count` is in elements; see
// gannet_collective in abi.h.
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

// A collective in flight, or a batch of them. Destroying it without wait() waits as well, and warns
// on failure. If it has already timed out, it is aborted instead, with everything else in flight.
class Work {
 public:
  Work() = default;
  Work(Comm* comm, void* handle) : comm_(comm), handle_(handle) {}
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();
  bool pending() const { return handle_ != nullptr; }
  // Blocks the host. Throws Error(kTimeout) or Error(kPeerLost), or the watch's verdict; legal when
  // nothing is pending.
  void wait();
  // Whether wait() would return at once.
  bool is_over() const;
  // Later work of the device stream begins after the collective; the host does not wait. The work
  // stays pending, with its buffers in use, until wait() or is_over(). With a null stream this is
  // wait().
  void block(void* stream);

 private:
  void finish() noexcept;
  void free() noexcept;
  // Not owned: a Comm outlives its works.
  Comm* comm_ = nullptr;
  // The plugin's work handle; null if nothing is pending.
  void* handle_ = nullptr;
  // The last wait() timed out: the collective is still in flight and uses its buffers.
  bool timed_out_ = false;
};

// Ranks that call the same collectives in the same order. The core uses it through DeviceComm
// (device/device_comm.h), which handles the stream, and HostGroup (interfaces/host_group.h), for
// host memory.
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

  // `stream`: the native stream that produces the buffers; null for host memory, and if there are
  // no streams.
  Work start(gannet_collective_args args, void* stream);
  // Starts a batch that progresses together, without order among its members: exchanges, many small
  // gathers.
  Work start_many(std::vector<gannet_collective_args> batch, void* stream);

  // Collective. Allocates memory that the plugin moves faster than other memory, and that the ranks
  // of one host may share. Null if the plugin offers none: any memory will do.
  std::shared_ptr<void> allocate(uint64_t bytes);
  // Registers the caller's own memory for the lifetime of the result; null if the plugin has no use
  // for it.
  std::shared_ptr<void> register_buffer(void* buffer, uint64_t bytes);

 private:
  Work started(const std::function<void(void** work)>& start);
  Comm& comm_;
  std::vector<uint32_t> ranks_;
  std::string name_;
  uint32_t rank_ = 0;  // in the group
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
  // The dtype in which sums of a 16-bit type accumulate if the caller leaves it open; see
  // gannet_comm_api::sum_dtype.
  gannet_dtype sum_dtype(gannet_dtype dtype) const;
  gannet_comm_counters counters() const;
  void abort();  // from any thread
  bool is_aborted() const { return aborted_; }
  void set_watcher(Watcher* watcher) { watcher_ = watcher; }  // must outlive every collective; null: none
  Watcher* watcher() const { return watcher_; }

  const gannet_comm_api* api() const { return api_; }
  void* self() const { return self_; }

 private:
  const plugin::Plugin& plugin_;
  // The plugin's object was created with a view into it, and may have kept that view.
  plugin::ParamSet params_;
  const gannet_comm_api* api_;
  void* self_ = nullptr;
  uint32_t rank_ = 0, world_size_ = 1;
  // The longest wait if no watch bounds it.
  std::chrono::milliseconds timeout_{600'000};
  Watcher* watcher_ = nullptr;
  // Atomic: the watch's thread aborts while another waits.
  std::atomic<bool> aborted_{false};
};

}  // namespace gannet
