// Gathers full parameters from the ranks' shards, which are in memory or on a tier (stage 3), and
// checks that all ranks gather the same parameters.
#pragma once

#include <deque>
#include <functional>
#include <memory>
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

class Gatherer : public zero::ParameterSource {
 public:
  struct CopyToDevice {  // copies parameters from host memory to a device that has its own memory
    Queue queue;
    std::function<void*()> stream;  // the operators' stream; a copy waits for it, since operators may still read the memory
  };
  // `place` returns the current position in the program, for error messages ("forward of step 3").
  Gatherer(DeviceComm* comm, HostGroup* ranks, Timers& timers, std::optional<CopyToDevice> to_device,
           std::function<std::string()> place)
      : comm_(comm), ranks_(ranks), timers_(timers), to_device_(std::move(to_device)), place_(std::move(place)) {}

  void add(const Range& range, size_t parameter);  // assigns the next number to the parameter; ranges must outlive the gatherer

  int64_t numel_to_gather(size_t parameter) const override;
  void start(size_t parameter, const at::Tensor& whole) override;
  void launch() override;
  void finish(size_t parameter) override;
  void drop(size_t parameter) noexcept override;
  bool begin_order(uint64_t hash) override;
  void leave_order() override;
  void end_order() override;

  // For a rank that has finished: contributes its shards to the other ranks' gathers until every
  // rank has finished.
  void answer();
  // Marks a point that all ranks must reach together. Throws Error(kMismatch) if a rank does
  // something else instead, such as a gather. `order`: the hash of the order that the next forward
  // and backward are to follow, which the ranks then agree on; 0: none is known.
  void meet(const char* where, std::optional<uint64_t> order = {});

 private:
  // Exchanged by the ranks before a gather and when they meet.
  struct Mark {
    int64_t at = 0;  // number of this rank's gathers and meetings so far, and of the parameter or the meeting
    uint64_t order = 0;
  };
  struct GatherEntry {
    const Range* range;
    size_t parameter;   // index in the range
    zero::Shard own;    // this rank's shard, with its place in the array; numel 0: another rank owns the parameter
    int64_t numel = 0;  // elements of the gather buffer
    Mark mark;
    std::vector<Mark> marks;  // [ranks]
    at::Tensor whole;         // destination of the gather
    Transfer reading;         // the read of this rank's shard from a drive
    at::Tensor landing;       // host memory for values on their way from a drive to the device
    Event copied;             // recorded after the copy to the device
    Work marking;
    std::shared_ptr<DeviceWork> gathering;  // shared by the gathers of a batch
    Timers::Clock::time_point began{};      // set while traced
  };
  void copy_to_device(GatherEntry& entry, const at::Tensor& from);
  at::Tensor place_of(const GatherEntry& entry) const;  // the slice of `whole` for this rank's shard
  void add_to(DeviceComm::Batch& batch, const GatherEntry& entry, const at::Tensor& shard, const at::Tensor& whole) const;
  void gather(GatherEntry& entry, const at::Tensor& shard);
  void compare(const Mark& mark, const std::vector<Mark>& marks) const;
  std::string name_of(int64_t mark) const;

  bool is_apart(const GatherEntry& entry) const { return to_device_.has_value() || !entry.range->param.is_here(); }
  DeviceComm* comm_;  // data axis; all its ranks gather the same parameters, each over its range's ranks
  HostGroup* ranks_;  // the same ranks, for exchanging marks
  Timers& timers_;
  std::optional<CopyToDevice> to_device_;
  std::function<std::string()> place_;
  std::vector<const char*> meetings_;  // identified by their index
  std::deque<GatherEntry> entries_;    // a deque, because a Work cannot be copied
  struct QueuedGather {
    GatherEntry* entry;
    at::Tensor shard;
  };
  std::vector<QueuedGather> queued_;  // until launch()
  int64_t gathers_ = 0;
  // Gathers of an order that all ranks have agreed on need no marks.
  uint64_t agreed_ = 0;  // the order that all ranks named where they met last; 0: none
  enum class Order { kUnknown, kFollowed, kLeft } order_ = Order::kUnknown;
};

}  // namespace gannet
