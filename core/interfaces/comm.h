// Communication between ranks, on raw pointers: a Comm plugin's object, its groups, and the work in flight.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
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

// A collective in flight. Destroying it without wait() waits too, and warns when that fails; one that has timed out already
// is aborted instead, with everything else in flight.
class Work {
 public:
  Work() = default;
  Work(Comm* comm, void* handle) : comm_(comm), handle_(handle) {}
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();
  bool pending() const { return handle_ != nullptr; }
  // Throws Error(kTimeout) or Error(kPeerLost), or what the watch has found; legal when nothing is pending.
  void wait();

 private:
  void finish() noexcept;
  Comm* comm_ = nullptr;
  void* handle_ = nullptr;
  bool timed_out_ = false;
};

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

  Work all_reduce(void* buffer, uint64_t count, gannet_dtype dtype, gannet_reduce_op op = GANNET_SUM, void* stream = nullptr);
  Work broadcast(void* buffer, uint64_t count, gannet_dtype dtype, uint32_t root = 0, void* stream = nullptr);
  Work all_gather(const void* send, void* receive, uint64_t count, gannet_dtype dtype, void* stream = nullptr);
  Work reduce_scatter(const void* send, void* receive, uint64_t count, gannet_dtype dtype, void* stream = nullptr);
  Work all_to_all(const void* send, void* receive, uint64_t count, gannet_dtype dtype, void* stream = nullptr);
  void barrier();

 private:
  Work start(gannet_collective_args args);
  Comm& comm_;
  std::vector<uint32_t> ranks_;
  std::string name_;
  uint32_t rank_ = 0;  // in the group
  void* handle_ = nullptr;
};

class Comm {
 public:
  Comm(const plugin::Plugin& plugin, plugin::ParamSet params, const Host& host, const gannet_rendezvous& rendezvous);
  ~Comm();
  Comm(const Comm&) = delete;

  const plugin::Plugin& plugin() const { return plugin_; }
  uint32_t rank() const { return rank_; }
  uint32_t world_size() const { return world_size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  gannet_comm_counters counters() const;
  void abort();
  bool is_aborted() const { return aborted_; }
  void set_watcher(Watcher* watcher) { watcher_ = watcher; }  // outlives every collective; null: none
  Watcher* watcher() const { return watcher_; }

  const gannet_comm_api* api() const { return api_; }
  void* self() const { return self_; }

 private:
  const plugin::Plugin& plugin_;
  plugin::ParamSet params_;
  const gannet_comm_api* api_;
  void* self_ = nullptr;
  uint32_t rank_ = 0, world_size_ = 1;
  std::chrono::milliseconds timeout_{600'000};
  Watcher* watcher_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace gannet
