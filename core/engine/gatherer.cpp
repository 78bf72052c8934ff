#include "engine/gatherer.h"

#include "tensor/dtype.h"

#include <gannet/error.h>

namespace gannet {
namespace {

// A mark is count * kIds + id; ids from the end are meetings.
constexpr int64_t kIds = int64_t{1} << 31;

}  // namespace

void Gatherer::add(const Range& range, size_t parameter) {
  Entry& entry = entries_.emplace_back();
  entry.range = &range;
  entry.parameter = parameter;
  entry.marks.resize(comm_->size());
}

int64_t Gatherer::numel_to_gather(size_t parameter) const {
  const Entry& entry = entries_[parameter];
  return entry.range->layout.buckets[entry.parameter].numel;
}

// The marks travel ahead of the parameter. Ranks whose control flow differs would otherwise mix parts of different parameters of
// the same size, and nobody would know.
void Gatherer::start(size_t parameter, const at::Tensor& whole) {
  Entry& entry = entries_[parameter];
  const Range& range = *entry.range;
  const zero::Shard& shard = range.shards[entry.parameter];
  entry.mark = gathers_++ * kIds + static_cast<int64_t>(parameter);
  entry.marking = comm_->all_gather(&entry.mark, entry.marks.data(), 1, GANNET_INT64);
  entry.gathering = comm_->all_gather(range.param_of(shard).const_data_ptr(), whole.data_ptr(), static_cast<uint64_t>(shard.numel), to_dtype(range.dtype));
}

void Gatherer::finish(size_t parameter) {
  Entry& entry = entries_[parameter];
  entry.marking.wait();
  compare(entry.mark, entry.marks);
  entry.gathering.wait();
}

void Gatherer::drop(size_t parameter) noexcept {
  Entry& entry = entries_[parameter];
  for (Work* work : {&entry.marking, &entry.gathering}) {
    try {
      work->wait();
    } catch (const std::exception&) {  // a lost peer is told where it matters
    }
  }
}

std::string Gatherer::name_of(int64_t mark) const {
  const auto id = static_cast<size_t>(mark % kIds);
  for (size_t m = 0; m < meetings_.size(); ++m)
    if (id == static_cast<size_t>(kIds) - 1 - m) return std::string("is at ") + meetings_[m];
  if (mark < 0 || id >= entries_.size()) return "does something else";
  return "reads '" + entries_[id].range->parameters[entries_[id].parameter].name + "'";
}

void Gatherer::meet(const char* where) {
  size_t id = 0;
  while (id < meetings_.size() && meetings_[id] != where) ++id;
  if (id == meetings_.size()) meetings_.push_back(where);
  const int64_t mark = gathers_++ * kIds + kIds - 1 - static_cast<int64_t>(id);
  std::vector<int64_t> marks(comm_->size());
  comm_->all_gather(&mark, marks.data(), 1, GANNET_INT64).wait();
  compare(mark, marks);
}

void Gatherer::compare(int64_t mark, const std::vector<int64_t>& marks) const {
  for (uint32_t rank = 0; rank < comm_->size(); ++rank) {
    if (marks[rank] == mark) continue;
    comm_->comm().abort();  // the parameter itself is on its way among ranks that do not mean the same one
    throw Error(ErrorCode::kMismatch,
                "the ranks use parameters in different orders in " + place_() + ": rank " + std::to_string(comm_->rank()) + " " + name_of(mark) + " where rank " +
                    std::to_string(rank) + " " + name_of(marks[rank]),
                "with parameters shared out (ZeRO stage 3) all ranks run the same operators on them in the same order: let every rank's control flow depend on the same numbers, or set zero_optimization.stage to 2");
  }
}

}  // namespace gannet
