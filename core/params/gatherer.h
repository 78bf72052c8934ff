// Whole parameters from the ranks' shards, which lie in memory or on a tier: what stage 3 gathers, and the check that all ranks
// gather the same.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/device_comm.h"
#include "device/queue.h"
#include "interfaces/host_group.h"
#include "observe/timers.h"
#include "params/range.h"
#include "params/residency.h"

namespace gannet {

class Gatherer : public zero::Source {
 public:
  struct ToDevice {  // copies from host memory, where parameters lie in it and the device has its own
    Queue queue;
    std::function<void*()> stream;  // that operators run on: memory is used again, and what they were given may still be read
  };
  // `place`: where the program is, for errors ("forward of step 3").
  Gatherer(DeviceComm* comm, HostGroup* ranks, Timers& timers, std::optional<ToDevice> to_device,
           std::function<std::string()> place)
      : comm_(comm), ranks_(ranks), timers_(timers), to_device_(std::move(to_device)), place_(std::move(place)) {}

  void add(const Range& range, size_t parameter);  // the next number; ranges outlive the gatherer

  int64_t numel_to_gather(size_t parameter) const override;
  void start(size_t parameter, const at::Tensor& whole) override;
  void finish(size_t parameter) override;
  void drop(size_t parameter) noexcept override;

  // This rank needs nothing more: it gives its part of what the others gather, until none gathers.
  void answer();
  // Where all ranks must be together: a rank that gathers meanwhile is named.
  void meet(const char* where);

 private:
  struct Entry {
    const Range* range;
    size_t parameter;            // of the range
    zero::Shard own;             // this rank's part of it, in its array; numel 0: it is another rank's
    int64_t numel = 0;           // of the buffer that it is gathered into
    int64_t mark = 0;            // what this rank gathers, and as its how-manyth
    std::vector<int64_t> marks;  // of all ranks
    at::Tensor whole;            // where it comes to
    Transfer reading;            // of this rank's shard, from a drive
    at::Tensor landing;          // host memory between a drive and the device
    Event copied;                // to the device
    Work marking;
    DeviceWork gathering;
    Timers::Clock::time_point began{};  // while it is traced
  };
  void copy_to_device(Entry& entry, const at::Tensor& from);
  at::Tensor place_of(const Entry& entry) const;  // this rank's part in the whole
  DeviceWork exchange(const Entry& entry, const at::Tensor& shard, const at::Tensor& whole);
  void gather(Entry& entry, const at::Tensor& shard);
  void compare(int64_t mark, const std::vector<int64_t>& marks) const;
  std::string name_of(int64_t mark) const;

  bool is_apart(const Entry& entry) const { return to_device_.has_value() || !entry.range->param.is_here(); }
  DeviceComm* comm_;  // of the data axis: all its ranks gather the same, each range's among its own ranks
  HostGroup* ranks_;  // the same ones: marks
  Timers& timers_;
  std::optional<ToDevice> to_device_;
  std::function<std::string()> place_;
  std::vector<const char*> meetings_;  // known by their place here
  std::deque<Entry> entries_;          // a deque: Work does not copy
  int64_t gathers_ = 0;
};

}  // namespace gannet
