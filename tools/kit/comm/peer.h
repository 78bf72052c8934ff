// One rank's Comm object, its groups and works, used only through the C table.
//
//   Peer peer(subject, rank, 3, store, timeout);
//   PeerGroup world = peer.world();
//   PeerWork work = world.start(args, name);      // CheckFailure unless it starts
//   require_ok("work_wait", work.wait(5000));
#pragma once

#include <gannet/abi.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interfaces/host.h"
#include "kit/object.h"

namespace gannet::kit {

class PeerGroup;

class Peer {
 public:
  // `outcome`: whether the object was created.
  Peer(const Subject& subject, uint32_t rank, uint32_t size, const gannet_store* store, std::chrono::milliseconds timeout,
       CallOutcome& outcome);
  ~Peer();
  Peer(const Peer&) = delete;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  uint64_t timeout_ms() const { return timeout_ms_; }
  const gannet_comm_api& api() const { return api_; }
  void* self() const { return self_; }
  const plugin::Plugin& plugin() const { return plugin_; }

  PeerGroup world();
  // A group of these ranks of the world; this rank must be a member.
  PeerGroup group(const std::vector<uint32_t>& ranks, const std::string& name);
  CallOutcome try_group(const std::vector<uint32_t>& ranks, const std::string& name, void** handle);
  gannet_comm_counters counters() const;
  void abort();
  // These two use the store, not the plugin: the first announces that this rank has reached a
  // point, the second waits until `of` ranks have.
  void announce(const std::string& point);
  void await(const std::string& point, uint32_t of);

 private:
  const plugin::Plugin& plugin_;
  const gannet_comm_api& api_;
  const gannet_store* store_;
  const gannet::Host host_;
  plugin::ParamSet params_;
  const uint32_t rank_, size_;
  const uint64_t timeout_ms_;
  void* self_ = nullptr;
};

// A collective in flight. After an exception, the destructor calls no plugin function, which might
// wait for a rank that never joins.
class PeerWork {
 public:
  PeerWork() = default;
  PeerWork(Peer& peer, void* handle, std::string name) : peer_(&peer), handle_(handle), name_(std::move(name)) {}
  PeerWork(PeerWork&& other) noexcept { *this = std::move(other); }
  PeerWork& operator=(PeerWork&& other) noexcept;
  ~PeerWork();
  CallOutcome wait(uint64_t timeout_ms);
  void must_end();  // within the time-out of the rendezvous
  bool is_over();
  CallOutcome block(void* stream);
  void free();

 private:
  Peer* peer_ = nullptr;
  void* handle_ = nullptr;
  std::string name_;
};

class PeerGroup {
 public:
  PeerGroup(Peer& peer, void* handle, uint32_t rank, uint32_t size) : peer_(&peer), handle_(handle), rank_(rank), size_(size) {}
  PeerGroup(PeerGroup&& other) noexcept;
  ~PeerGroup();
  uint32_t rank() const { return rank_; }  // in the group
  uint32_t size() const { return size_; }
  Peer& peer() const { return *peer_; }
  void* handle() const { return handle_; }

  CallOutcome try_start(const gannet_collective_args& args, const std::string& name, PeerWork& work);
  PeerWork start(const gannet_collective_args& args, const std::string& name);
  PeerWork start_many(const std::vector<gannet_collective_args>& batch, const std::string& name);
  void barrier();

 private:
  Peer* peer_;
  void* handle_;
  uint32_t rank_, size_;
};

}  // namespace gannet::kit
