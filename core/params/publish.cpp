// Distributes new values: sends shards to the other ranks after an update, and copies masters to
// parameters after a load.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "params/broadcast.h"
#include "params/store.h"
#include "tensor/dtype.h"

namespace gannet {

// Splits a shard, which may be on a drive, into parts of at most one page, so that each of them
// fits in memory.
std::vector<zero::Shard> ParameterStore::in_parts(const zero::Shard& shard) const {
  std::vector<zero::Shard> parts;
  for (int64_t done = 0; done < shard.numel; done += page_numel())
    parts.push_back({shard.offset + done, shard.own + done, std::min(page_numel(), shard.numel - done)});
  return parts;
}

void ParameterStore::publish_shard(Range& range, size_t shard) {
  if (!publishes_shards(range)) return;
  const auto& bucket = range.layout.buckets[shard];
  const at::Tensor mine = range.param_of(range.shards[shard]);
  const at::Tensor whole = range.param.here().narrow(0, bucket.offset, bucket.numel);
  publishing_.push_back(range.ranks.comm->all_gather(mine, whole));
}

void ParameterStore::publish() {
  for (auto& range : ranges_)
    if (range.is_gathered_on_demand_) all_gather_persistent(range);
  finish_publishing();
}

void ParameterStore::finish_publishing() {
  if (publishing_.empty()) return;
  Timers::Wait timed(context_.timers, TimedPhase::kPublish);
  for (auto& work : publishing_) work.block();
  publishing_.clear();
}

// Gathers the small parameters that every rank keeps in full alongside sharded ones.
void ParameterStore::all_gather_persistent(Range& range) {
  if (range.has_owners()) return broadcast_persistent(range);
  std::vector<size_t> staying;
  int64_t numel = 0;
  const int64_t ranks = range.ranks.comm->size();
  const auto part = [&](size_t p) { return range.layout.buckets[p].numel / ranks; };
  for (size_t p = 0; p < range.parameters.size(); ++p)
    if (range.parameters[p].persistent.defined()) {
      staying.push_back(p);
      numel += part(p);
    }
  if (staying.empty()) return;
  Timers::Wait timed(context_.timers, TimedPhase::kPublish);
  const auto options = at::TensorOptions().dtype(range.dtype).device(context_.device);
  const at::Tensor mine = at::empty({numel}, options), all = at::empty({ranks, numel}, options);
  int64_t at = 0;
  for (const size_t p : staying) {
    mine.narrow(0, at, part(p)).copy_(range.param.get(range.layout.buckets[p].offset / ranks, part(p)));
    at += part(p);
  }
  // A single rank already has everything. Its Comm may be the host's, which cannot read device
  // memory.
  if (ranks == 1)
    all.view({-1}).copy_(mine);
  else
    range.ranks.comm->all_gather(mine, all).block();
  at = 0;
  for (const size_t p : staying) {
    range.parameters[p].persistent.view({ranks, part(p)}).copy_(all.narrow(1, at, part(p)));
    at += part(p);
  }
}

// The same, for ranges in which each parameter is owned by one rank.
void ParameterStore::broadcast_persistent(Range& range) {
  Timers::Wait timed(context_.timers, TimedPhase::kPublish);
  for (size_t p = 0; p < range.parameters.size(); ++p) {
    const auto& parameter = range.parameters[p];
    if (!parameter.persistent.defined()) continue;
    const zero::TensorPart part = FoundParameter{&range, p}.part();
    if (part.numel > 0) parameter.persistent.copy_(range.param.get(part.own, part.numel));
    broadcast(range.ranks, parameter.persistent, range.owner_of(p));
  }
}

void ParameterStore::publish_all() {
  forget_gathered();
  forget_displaced();
  for (auto& range : ranges_) {
    for (size_t s = 0; s < range.shards.size(); ++s) {
      if (range.has_master_copy())
        for (const auto& part : in_parts(range.shards[s])) range.set_param(part, range.master_of(part));
      publish_shard(range, s);
    }
    if (range.is_gathered_on_demand_) all_gather_persistent(range);
  }
  finish_publishing();
}

void ParameterStore::refresh_masters() {
  at::NoGradGuard no_grad;
  for (auto& range : ranges_)
    for (const auto& part : range.parts)
      if (range.has_master_copy())
        for (const auto& place : in_parts({part.offset, part.own, part.numel}))
          range.set_master(place, masters_after_write(range, part.tensor, place, range.param_of(place)));
}

}  // namespace gannet
