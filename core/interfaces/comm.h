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

// Who knows why a collective does not end: the control plane's watch (control/watch.h). Without one a Comm waits alone.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // Throws what has gone wrong between the ranks, when something has.
  virtual void check() = 0;
  // The Comm lost a peer: throws why, as soon as that is known; returns when nobody finds out.
  virtual void explain(const Error& failure) = 0;
  // How long the calling thread may wait for a collective; `otherwise` when nobody watches its call.
  virtual std::chrono::milliseconds patience(std::chrono::milliseconds otherwise) const = 0;
  // Around every wait for other ranks.
  virtual void begin_wait() = 0;
  virtual void end_wait() = 0;
};

// Collectives as values, to be started alone or in a batch. `count` is in elements; see gannet_collective in abi.h.
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

// A collective in flight, or a batch of them. Destroying it without wait() waits too, and warns when that fails; one that has
// timed out already is aborted instead, with everything else in flight.
class Work {
 public:
  Work() = default;
  Work(Comm* comm, void* handle) : comm_(comm), handle_(handle) {}
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();
  bool pending() const { return handle_ != nullptr; }
  // The host waits. Throws Error(kTimeout) or Error(kPeerLost), or what the watch has found; legal when nothing is pending.
  void wait();
  // Whether wait() would return at once.
  bool is_over() const;
  // What the device's stream is given from now on begins after the collective; the host does not wait. The work stays pending,
  // and its buffers in use, until wait(), or until is_over(). With a null stream this is wait().
  void block(void* stream);

 private:
  void finish() noexcept;
  void free() noexcept;
  // Not owned: a Comm outlives its works.
  Comm* comm_ = nullptr;
  // The plugin's work; null: nothing is pending.
  void* handle_ = nullptr;
  // The last wait() timed out: the collective is still in flight and uses its buffers.
  bool timed_out_ = false;
};

// Ranks that call the same collectives in the same order. The core uses it through DeviceComm (device/device_comm.h), which knows
// the stream, and HostGroup (interfaces/host_group.h), for the memory of the host.
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

  // `stream`: the native stream that the buffers were produced on; null for the host's memory, and where there are no streams.
  Work start(gannet_collective_args args, void* stream);
  // A batch that progresses together, in no order among its members: exchanges, many small gathers.
  Work start_many(std::vector<gannet_collective_args> batch, void* stream);

  // Memory that the plugin moves faster than other memory, and that the ranks of one host may share; collective. Null where the
  // plugin offers none: any memory will do.
  std::shared_ptr<void> allocate(uint64_t bytes);
  // The caller's own memory, for as long as the answer lives; null where the plugin has no use for it.
  std::shared_ptr<void> register_buffer(void* buffer, uint64_t bytes);

 private:
  Work started(const std::function<void(void** work)>& start);
  Comm& comm_;
  std::vector<uint32_t> ranks_;
  std::string name_;
  uint32_t rank_ = 0;  // in the group
  void* handle_ = nullptr;
};

// Whether it moves the memory of the host, for which HostGroup needs one.
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
  // The type in which sums of a 16-bit type are added when the caller leaves it open; see gannet_comm_api::sum_dtype.
  gannet_dtype sum_dtype(gannet_dtype dtype) const;
  gannet_comm_counters counters() const;
  void abort();  // from any thread
  bool is_aborted() const { return aborted_; }
  void set_watcher(Watcher* watcher) { watcher_ = watcher; }  // outlives every collective; null: none
  Watcher* watcher() const { return watcher_; }

  const gannet_comm_api* api() const { return api_; }
  void* self() const { return self_; }

 private:
  const plugin::Plugin& plugin_;
  // The plugin's object was created with a view into it, and may have kept that.
  plugin::ParamSet params_;
  const gannet_comm_api* api_;
  void* self_ = nullptr;
  uint32_t rank_ = 0, world_size_ = 1;
  // How long a wait may last where no watch bounds it.
  std::chrono::milliseconds timeout_{600'000};
  Watcher* watcher_ = nullptr;
  // Atomic: the watch's thread aborts while another waits.
  std::atomic<bool> aborted_{false};
};

}  // namespace gannet
