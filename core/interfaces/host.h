// The host table passed to plugins, and the interface that implements its collectives.
#pragma once

#include <gannet/abi.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace gannet {

// Implements the table's collectives while they are open (Host::OpenCollectives).
class HostCollectives {
 public:
  virtual ~HostCollectives() = default;
  // The struct_size and the group of `args` have been checked. Throws Error.
  virtual void run(const gannet_host_collective& args) = 0;
};

// Owns a host table. Each engine has its own, so that several engines in a process have separate
// collectives. The table's address never changes, and the table must outlive every object that was
// created with it.
class Host {
 public:
  Host();
  Host(const Host&) = delete;
  const gannet_host* table() const { return &table_; }
  // Sets this rank and the size of GANNET_GROUP_DATA. Until then, the group is only this process.
  void set_ranks(uint32_t rank, uint32_t size) {
    rank_ = rank;
    size_ = size;
  }
  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }
  // Plugins may use the collectives while this object lives.
  class OpenCollectives {
   public:
    OpenCollectives(Host& host, HostCollectives& collectives) : host_(host) { host_.collectives_ = &collectives; }
    ~OpenCollectives() { host_.collectives_ = nullptr; }
    OpenCollectives(const OpenCollectives&) = delete;

   private:
    Host& host_;
  };
  HostCollectives* collectives() const { return collectives_; }
  // Plugins may show metrics while this object lives: `show` gets their names and values.
  using ShowMetric = std::function<void(const std::string& name, double value)>;
  class OpenMetrics {
   public:
    OpenMetrics(Host& host, ShowMetric show) : host_(host) {
      host_.show_metric_ = std::move(show);
      host_.metric_thread_ = std::this_thread::get_id();
    }
    ~OpenMetrics() { host_.show_metric_ = nullptr; }
    OpenMetrics(const OpenMetrics&) = delete;

   private:
    Host& host_;
  };
  const ShowMetric& show_metric() const { return show_metric_; }
  std::thread::id metric_thread() const { return metric_thread_; }  // the thread that may show one

 private:
  gannet_host table_{};
  HostCollectives* collectives_ = nullptr;  // not owned; null while closed
  ShowMetric show_metric_;                  // empty while closed
  std::thread::id metric_thread_;
  uint32_t rank_ = 0, size_ = 1;
};

}  // namespace gannet
