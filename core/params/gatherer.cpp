#include "params/gatherer.h"

#include <ATen/ops/empty.h>
#include <gannet/error.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/format.h"
#include "tensor/dtype.h"
#include "tensor/flat_buffer.h"

namespace gannet {
namespace {

// A mark is count * kIds + id. The id is a parameter's number or a meeting's; meetings count down
// from kIds - 1.
constexpr int64_t kIds = int64_t{1} << 31;
constexpr int64_t kReadNumel = 4096;  // in elements; at least a page of direct I/O in every dtype
constexpr int64_t kDone = -1;         // Mark::at of a rank that only answers the other ranks' gathers

// The current stream waits. The last gather of a batch leaves the work to the DeviceComm.
void block(std::shared_ptr<DeviceWork> work) {
  if (!work) return;
  if (work.use_count() > 1)
    work->block_stream();
  else
    work->block();
}

}  // namespace

void Gatherer::add(const Range& range, size_t parameter) {
  GatherEntry& entry = entries_.emplace_back();
  entry.range = &range;
  entry.parameter = parameter;
  entry.marks.resize(comm_->size());
  if (range.has_owners()) {  // one rank owns the whole parameter
    for (const zero::TensorPart& part : range.parts)
      if (part.tensor == parameter) entry.own = {part.offset, part.own, part.numel};
    entry.numel = range.parameters[parameter].numel;
    if (range.placement == Placement::kDrive) entry.numel = (entry.numel + kReadNumel - 1) / kReadNumel * kReadNumel;
    return;
  }
  const auto& bucket = range.layout.buckets[parameter];
  const uint32_t ranks = range.ranks.comm->size();
  entry.own = {bucket.offset, bucket.offset / ranks, bucket.numel / ranks};
  entry.numel = bucket.numel;
}

int64_t Gatherer::numel_to_gather(size_t parameter) const { return entries_[parameter].numel; }

at::Tensor Gatherer::place_of(const GatherEntry& entry) const {
  return entry.whole.narrow(0, entry.range->has_owners() ? 0 : entry.range->ranks.comm->rank() * entry.own.numel,
                            entry.own.numel);
}

void Gatherer::start(size_t parameter, const at::Tensor& whole) {
  GatherEntry& entry = entries_[parameter];
  const Array& param = entry.range->param;
  const zero::Shard& shard = entry.own;
  entry.mark.at = gathers_++ * kIds + static_cast<int64_t>(parameter);
  entry.whole = whole;
  if (timers_.is_traced()) entry.began = Timers::Clock::now();
  if (!is_apart(entry)) return gather(entry, param.get(shard.own, shard.numel));
  if (shard.numel == 0) return;  // another rank owns it
  // Copies this rank's shard to its place in the whole parameter. finish() gathers from there.
  if (param.is_here()) return copy_to_device(entry, param.get(shard.own, shard.numel));
  if (to_device_)
    entry.landing = allocate_flat(entry.range->has_owners() ? entry.numel : shard.numel, entry.range->dtype, at::kCPU);
  void* const into = to_device_ ? entry.landing.data_ptr() : place_of(entry).data_ptr();
  entry.reading = param.start_read(shard.own, shard.numel, into);
}

void Gatherer::copy_to_device(GatherEntry& entry, const at::Tensor& from) {
  to_device_->queue.wait_stream(to_device_->stream());
  const at::Tensor into = place_of(entry);
  to_device_->queue.copy(into.data_ptr(), from.const_data_ptr(), into.nbytes());
  entry.copied = to_device_->queue.record();
}

// The marks are exchanged before the parameter. Otherwise ranks with different control flow would
// silently mix shards of different parameters of the same size. Marks make the host wait, so
// gathers in an order that all ranks have agreed on do without them: a rank that departs from the
// order sends a mark before its next gather, and the others receive it at their next meeting, at
// the latest at the end of backward. Where the host waits for gathers anyway, it would wait for
// that rank in vain, so there every gather has marks.
void Gatherer::gather(GatherEntry& entry, const at::Tensor& shard) {
  entry.marks.assign(comm_->size(), entry.mark);
  if (comm_->size() > 1 && order_ != Order::kFollowed) {
    entry.marking = ranks_->start_all_gather(&entry.mark, entry.marks.data(), sizeof(entry.mark));
    if (order_ == Order::kLeft) {
      entry.marking.wait();
      compare(entry.mark, entry.marks);
    }
  }
  if (entry.range->ranks.comm->size() == 1) {  // no collective: a host Comm cannot read device memory
    if (shard.is_cpu() && entry.whole.is_cpu() && shard.const_data_ptr() != entry.whole.const_data_ptr())
      std::memcpy(entry.whole.data_ptr(), shard.const_data_ptr(), shard.nbytes());
    else if (shard.const_data_ptr() != entry.whole.const_data_ptr())
      entry.whole.view({-1}).copy_(shard.view({-1}));
    return;
  }
  queued_.push_back({&entry, shard});
  if (order_ != Order::kFollowed) launch();  // ranks that agree on no order may differ in what belongs together
}

// One batch for each group of ranks; an engine has one or two.
void Gatherer::launch() {
  while (!queued_.empty()) {
    DeviceComm* const comm = queued_.front().entry->range->ranks.comm;
    const auto others = std::stable_partition(
        queued_.begin(), queued_.end(), [&](const QueuedGather& queued) { return queued.entry->range->ranks.comm == comm; });
    DeviceComm::Batch batch(*comm);
    std::for_each(queued_.begin(), others,
                  [&](const QueuedGather& queued) { add_to(batch, *queued.entry, queued.shard, queued.entry->whole); });
    const auto work = std::make_shared<DeviceWork>(batch.start());
    std::for_each(queued_.begin(), others, [&](const QueuedGather& queued) { queued.entry->gathering = work; });
    queued_.erase(queued_.begin(), others);
  }
}

// All-gathers the shards, or broadcasts the parameter from its owner.
void Gatherer::add_to(DeviceComm::Batch& batch, const GatherEntry& entry, const at::Tensor& shard,
                      const at::Tensor& whole) const {
  if (!entry.range->has_owners()) return batch.all_gather(shard, whole);
  if (entry.own.numel > 0 && shard.const_data_ptr() != whole.const_data_ptr()) whole.narrow(0, 0, entry.own.numel).copy_(shard);
  batch.broadcast(whole.narrow(0, 0, entry.range->parameters[entry.parameter].numel), entry.range->owner_of(entry.parameter));
}

void Gatherer::finish(size_t parameter) {
  GatherEntry& entry = entries_[parameter];
  Timers::Wait timed(timers_, TimedPhase::kGather);
  if (is_apart(entry)) {
    entry.reading.wait();
    if (entry.landing.defined()) copy_to_device(entry, entry.landing);
    entry.copied.wait();
    entry.landing.reset();
    gather(entry, place_of(entry));
  }
  launch();
  entry.marking.wait();
  compare(entry.mark, entry.marks);
  block(std::move(entry.gathering));
  if (timers_.is_traced() && entry.began != Timers::Clock::time_point())
    timers_.trace->flight("gather", entry.range->parameters[entry.parameter].name, entry.began, Timers::Clock::now(),
                          static_cast<int64_t>(entry.whole.nbytes()));
  entry.began = {};
  entry.whole.reset();
}

void Gatherer::drop(size_t parameter) noexcept {
  GatherEntry& entry = entries_[parameter];
  const auto quietly = [](auto& pending) {
    try {
      pending.wait();
    } catch (const std::exception&) {  // the lost peer was already reported
    }
  };
  quietly(entry.reading);
  quietly(entry.copied);
  quietly(entry.marking);
  if (const auto work = std::exchange(entry.gathering, nullptr)) quietly(*work);
  queued_.erase(std::remove_if(queued_.begin(), queued_.end(), [&](const QueuedGather& each) { return each.entry == &entry; }),
                queued_.end());
  entry.whole.reset();
}

std::string Gatherer::name_of(int64_t mark) const {
  const auto id = static_cast<size_t>(mark % kIds);
  for (size_t m = 0; m < meetings_.size(); ++m)
    if (id == static_cast<size_t>(kIds) - 1 - m) return std::string("is at ") + meetings_[m];
  if (mark < 0 || id >= entries_.size()) return "does something else";
  return formatted("reads '{}'", entries_[id].range->parameters[entries_[id].parameter].name);
}

bool Gatherer::begin_order(uint64_t hash) {
  const bool is_agreed = hash != 0 && hash == agreed_ && comm_->is_ordered_by_streams();
  order_ = is_agreed ? Order::kFollowed : Order::kUnknown;
  return is_agreed && !to_device_;  // what is copied to the device first is gathered when it is used
}

void Gatherer::leave_order() {
  if (order_ == Order::kFollowed) order_ = Order::kLeft;
}

void Gatherer::end_order() { order_ = Order::kUnknown; }

// Every gather is preceded by an exchange of marks, since a rank that answers agrees on no order. The ranks that are still
// running check that their own marks agree, so this rank follows the first mark that it finds.
void Gatherer::answer() {
  const Mark done{.at = kDone};
  std::vector<Mark> marks(comm_->size());
  for (;;) {
    ranks_->all_gather(&done, marks.data(), sizeof(done));
    const auto asked = std::find_if(marks.begin(), marks.end(), [](const Mark& mark) { return mark.at != kDone; });
    if (asked == marks.end()) break;
    const auto id = static_cast<size_t>(asked->at % kIds);
    if (id >= entries_.size()) continue;  // a meeting
    const GatherEntry& entry = entries_[id];
    const at::Tensor shard = entry.range->param.get(entry.own.own, entry.own.numel),
                     whole = at::empty({entry.numel}, shard.options());
    DeviceComm::Batch one(*entry.range->ranks.comm);
    add_to(one, entry, shard, whole);
    one.start().wait();
  }
  gathers_ = 0;  // the ranks' counts differ by now
}

void Gatherer::meet(const char* where, std::optional<uint64_t> order) {
  if (comm_->size() == 1) return;
  Timers::Wait timed(timers_, TimedPhase::kGather);
  size_t id = 0;
  while (id < meetings_.size() && meetings_[id] != where) ++id;
  if (id == meetings_.size()) meetings_.push_back(where);
  const Mark mark{.at = gathers_++ * kIds + kIds - 1 - static_cast<int64_t>(id), .order = order.value_or(0)};
  std::vector<Mark> marks(comm_->size());
  ranks_->all_gather(&mark, marks.data(), sizeof(mark));
  compare(mark, marks);
  if (!order) return;
  const bool is_agreed = std::all_of(marks.begin(), marks.end(), [&](const Mark& other) { return other.order == *order; });
  agreed_ = is_agreed ? *order : 0;
}

void Gatherer::compare(const Mark& mark, const std::vector<Mark>& marks) const {
  for (uint32_t rank = 0; rank < comm_->size(); ++rank) {
    if (marks[rank].at == mark.at || marks[rank].at == kDone) continue;
    comm_->comm().abort();  // a gather is in flight between ranks that expect different parameters
    throw Error(ErrorCode::kMismatch,
                formatted("the ranks use parameters in different orders in {}: rank {} {} where rank {} {}", place_(),
                          comm_->rank(), name_of(mark.at), rank, name_of(marks[rank].at)),
                "with parameters shared out (ZeRO stage 3) all ranks run the same operators on them in the same order: let every "
                "rank's control flow depend on the same numbers, or set zero_optimization.stage to 2");
  }
}

}  // namespace gannet
