// Gives ranges their memory: cuts them into buckets and shards, allocates their buffers, and copies
// rank 0's values to every rank.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gannet/error.h>
#include <gannet/log.h>

#include <algorithm>

#include "base/format.h"
#include "interfaces/seeds.h"
#include "params/broadcast.h"
#include "params/pieces.h"
#include "params/store.h"
#include "tensor/dtype.h"
#include "tensor/move_leaf.h"

namespace gannet {
namespace {

constexpr const char* kHowToRead =
    "read it in forward or backward on the thread that called them, on another thread under engine->guard(), or under a "
    "zero::GatheredParameters guard";

// The number of elements in a page of direct I/O, in the smallest dtype.
constexpr int64_t kDriveAlignment = 2048;

// The tensor as real numbers, which flat buffers store.
at::Tensor real_view(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor; }

}  // namespace

void ParameterStore::place(const GradientMemory& gradient_memory) {
  const bool is_first = !is_placed_;
  if (gathers_on_demand() && !residency_) make_residency();
  for (; placed_ < ranges_.size(); ++placed_) place_range(ranges_[placed_], gradient_memory);
  for (auto& range : frozen_)
    if (!is_placed(range)) place_range(range, nullptr);
  is_placed_ = true;
  if (is_first && context_.param_tier_is_drive) report_drive();
}

// Reports how many parameter elements max_in_cpu keeps in memory. Closes the tier if it holds
// nothing.
void ParameterStore::report_drive() {
  int64_t kept = 0, all = 0;
  for (const auto* each : {&ranges_, &frozen_})
    for (const auto& range : *each) {
      all += range.shard_numel;
      if (range.placement != Placement::kDrive) kept += range.shard_numel;
    }
  if (kept == all) context_.param_tier.reset();  // nothing is on the drive
  if (kept > 0 && context_.is_first())
    log_info(formatted("offload_param: {} of a rank's {} elements stay in memory (max_in_cpu is {})", kept, all,
                       context_.settings().zero.offload_param.max_in_cpu));
}

Array ParameterStore::make_param(const Range& range) const {
  const int64_t numel = range.is_gathered_on_demand_ ? range.shard_numel : range.numel;
  const bool is_on_tier = range.placement == Placement::kDrive || !context_.param_tier_is_drive;
  if (range.placement == Placement::kHost && !is_on_tier) return Array::in_memory(allocate_flat(numel, range.dtype, at::kCPU));
  return make_array(is_on_tier ? context_.param_tier : nullptr, numel, range.dtype, "parameters");
}

Array ParameterStore::make_array(const std::shared_ptr<Offload>& tier, int64_t numel, at::ScalarType dtype,
                                 const std::string& name) const {
  return tier ? Array::on_tier(tier, numel, dtype, name) : Array::in_memory(allocate_flat(numel, dtype, context_.device));
}

void ParameterStore::cut_range(Range& range) {
  const auto& zero = context_.settings().zero;
  DeviceComm* const comm = range.ranks.comm;
  std::vector<int64_t> numels;
  for (auto& parameter : range.parameters) numels.push_back(parameter.numel);
  // Experts that only one rank holds are cut into one shard, so that every range has the same form.
  if (context_.comm->size() > 1) range.sharding_ = static_cast<Sharding>(zero.stage);
  range.is_gathered_on_demand_ = is_gathered_on_demand(range.placement);
  // Reads from a drive begin at a parameter, or at a tensor that starts a page. These must be at
  // offsets that are valid for direct I/O.
  const int64_t alignment =
      std::max(range.alignment, range.keeps_whole_tensors && (context_.state_tier || context_.param_tier) ? kPageGranularity
                                : range.placement == Placement::kDrive                                    ? kDriveAlignment
                                                                                                          : zero::kAlignment);
  if (range.has_owners())
    range.layout = zero::lay_out_whole(numels, bucket_numel(), comm->size(), alignment);
  else  // a parameter that is gathered on demand is its own bucket
    range.layout = zero::lay_out(numels, range.is_gathered_on_demand_ ? 0 : bucket_numel(),
                                 range.is_sharded() || range.is_optimizer_reduced ? comm->size() : 1, alignment);
  range.numel = range.layout.numel;
  for (size_t p = 0; p < numels.size(); ++p) range.parameters[p].offset = range.layout.offsets[p];
  if (range.is_sharded()) {
    range.shards = zero::shards_of(range.layout, comm->rank(), comm->size());
    range.parts = zero::parts_of(range.layout, range.shards);
    for (const auto& shard : range.shards) range.shard_numel += shard.numel;
  } else {
    range.shards = {{0, 0, range.numel}};
    if (range.is_optimizer_reduced) {  // one piece per bucket, the same on every rank
      range.shards.clear();
      for (const auto& bucket : range.layout.buckets) range.shards.push_back({bucket.offset, bucket.offset, bucket.numel});
    }
    for (size_t p = 0; p < numels.size(); ++p)
      range.parts.push_back({p, 0, range.layout.offsets[p], range.layout.offsets[p], numels[p]});
    range.shard_numel = range.numel;
  }

  for (const auto& shard : range.shards) {
    const bool joins = range.shards_parameters() && !range.sub_groups.empty() &&
                       range.sub_groups.back().numel + shard.numel <= std::min(zero.sub_group_size, zero::kOverlapNumel);
    if (joins)
      range.sub_groups.back().numel += shard.numel;
    else
      range.sub_groups.push_back(shard);
  }
  for (const auto& stretch : range.sub_groups) range.segments.push_back(segments_in(range, stretch.own, stretch.numel));
  for (const auto& part : range.parts)
    if (!range.is_sharded()) range.tensor_segments.push_back(segments_in(range, part.own, part.numel).front());
}

void Range::shard_alone(int64_t tensor_numel, uint32_t rank, uint32_t ranks) {
  sharding_ = Sharding::kParameters;
  is_gathered_on_demand_ = true;
  layout = zero::lay_out({tensor_numel}, 0, ranks);
  shards = zero::shards_of(layout, rank, ranks);
}

std::vector<Range::NumelHere> Range::numel_here() const {
  std::vector<NumelHere> all(parameters.size());
  for (const auto& part : parts) all[part.tensor].own += part.numel;
  for (size_t p = 0; p < all.size(); ++p) {
    all[p].parameter = parameters[p].resident ? all[p].own : parameters[p].numel;
    all[p].gradient = shards_gradients() ? all[p].own : parameters[p].numel;
  }
  return all;
}

std::vector<Segment> segments_in(const Range& range, int64_t own, int64_t numel) {
  std::vector<Segment> segments;
  const auto& parts = range.parts;  // in range order
  auto part =
      std::partition_point(parts.begin(), parts.end(), [&](const zero::TensorPart& one) { return one.own + one.numel <= own; });
  for (; part != parts.end() && part->own < own + numel; ++part) {
    const auto& parameter = range.parameters[part->tensor];
    const int64_t first = std::max(part->own, own), last = std::min(part->own + part->numel, own + numel);
    Segment segment{};
    segment.struct_size = sizeof(gannet_segment);
    segment.dimensions = static_cast<uint32_t>(parameter.shape.size());
    segment.parameter = part->tensor;
    segment.tensor_index = parameter.index;
    segment.tensor_id = parameter.id;
    segment.name = parameter.name.c_str();
    segment.offset = static_cast<uint64_t>(first - own);
    segment.numel = static_cast<uint64_t>(last - first);
    segment.tensor_offset = static_cast<uint64_t>(part->begin + first - part->own);
    segment.tensor_numel = static_cast<uint64_t>(parameter.split ? numel_of(parameter.split->shape) : parameter.numel);
    segment.shape = parameter.shape.data();
    parameter.lines.write_to(segment);
    segment.seed = tensor_seed(range.tie.empty() ? parameter.name : range.tie);
    segments.push_back(segment);
  }
  return segments;
}

// Copies the module's values to the range's buffers, one bucket at a time, with rank 0's values on
// every rank.
void ParameterStore::place_range(Range& range, const GradientMemory& gradient_memory) {
  cut_range(range);
  const bool is_trained = range.grad_dtype != at::ScalarType::Undefined;
  range.param = make_param(range);
  if (range.has_master_copy()) range.master = make_array(context_.state_tier, range.shard_numel, range.master_dtype, "masters");
  const int64_t grad_numel = range.shards_gradients() ? range.shard_numel : range.numel;
  if (is_trained && gradient_memory)
    range.grad = gradient_memory(grad_numel, range.grad_dtype);
  else if (is_trained && range.is_sharded())
    range.grad = allocate_flat(grad_numel, range.grad_dtype, context_.device);
  for (size_t b = 0; b < range.layout.buckets.size(); ++b) {
    const auto& bucket = range.layout.buckets[b];
    // Masters keep the program's fp32 values from rank 0, not their rounding to 16 bits.
    const Array& masters = range.masters();
    const bool is_direct = !range.is_gathered_on_demand_ && masters.is_here() && masters.here().device() == context_.device &&
                           (!range.is_sharded() || !range.has_master_copy());
    at::Tensor whole = is_direct
                           ? masters.get(bucket.offset, bucket.numel)
                           : at::zeros({bucket.numel}, at::TensorOptions().dtype(range.master_dtype).device(context_.device));
    for (size_t p = bucket.first; p < bucket.last; ++p) {
      auto& parameter = range.parameters[p];
      whole.narrow(0, parameter.offset - bucket.offset, parameter.numel).view(parameter.shape).copy_(real_view(parameter.tensor));
      zero::release_ownership(parameter.tensor.storage().unsafeGetStorageImpl());
      if (!range.is_gathered_on_demand_)
        move_leaf(parameter.tensor, Range::shaped(range.param.here().narrow(0, parameter.offset, parameter.numel), parameter));
    }
    broadcast(range.ranks, whole);
    if (range.is_gathered_on_demand_) {
      keep_part(range, b, whole);
      for (size_t p = bucket.first; p < bucket.last; ++p) {
        const auto& parameter = range.parameters[p];
        shard_parameter(range, p,
                        range.has_owners() ? whole.narrow(0, parameter.offset - bucket.offset, parameter.numel) : whole);
      }
      continue;
    }
    if (range.has_master_copy()) range.param.set(bucket.offset, whole);
    if (!is_direct) keep_part(range, b, whole);
  }
}

// Stores this rank's part of a bucket. `whole` holds the values of the bucket's masters or
// parameters.
void ParameterStore::keep_part(Range& range, size_t bucket, const at::Tensor& whole) {
  const int64_t begin = range.layout.buckets[bucket].offset;
  const zero::Shard part =
      range.is_sharded() ? range.shards[bucket] : zero::Shard{begin, begin, range.layout.buckets[bucket].numel};
  const at::Tensor mine = whole.narrow(0, part.offset - begin, part.numel);
  if (range.is_gathered_on_demand_) range.set_param(part, mine);
  if (range.has_master_copy()) range.set_master(part, mine);
}

// Frees the bytes of the module's parameter; `whole` holds its values. A small or complex
// parameter is kept in full on every rank.
void ParameterStore::shard_parameter(Range& range, size_t p, const at::Tensor& whole) {
  auto& parameter = range.parameters[p];
  const auto& zero = context_.settings().zero;
  const int64_t counted = counted_numel(parameter);
  const bool is_small =
      counted <= zero.param_persistence_threshold && persistent_numel_ + counted <= zero.model_persistence_threshold;
  if (is_small || parameter.is_complex) {  // a gather has a single dtype, the range's
    persistent_numel_ += counted;
    parameter.persistent = whole.to(range.dtype, /*non_blocking=*/false, /*copy=*/true);
    move_leaf(parameter.tensor, Range::shaped(parameter.persistent, parameter));
    return;
  }
  move_leaf(parameter.tensor, at::empty(parameter.shape, at::TensorOptions().dtype(range.dtype).device(context_.device)));
  gatherer_->add(range, p);
  parameter.resident = residency_->add(
      parameter.name, parameter.tensor,
      context_.comm->size() > 1 ? formatted("is shared out among the ranks (ZeRO stage 3): {}", kHowToRead)
                                : formatted("is offloaded to {}: {}", context_.settings().zero.offload_param.device, kHowToRead),
      counted);
  zero::watch(parameter.tensor.storage().unsafeGetStorageImpl(), residency_.get(), *parameter.resident);
}

void ParameterStore::place_untrained(const at::Tensor& tensor) const {
  at::Tensor parameter = tensor;
  const auto dtype = training_dtype(context_.settings());
  if (const auto* storage = parameter.has_storage() ? parameter.storage().unsafeGetStorageImpl() : nullptr;
      storage && zero::is_watched(storage)) {
    const at::Tensor own = parameter.clone();
    zero::release_ownership(storage);
    move_leaf(parameter, own);
  }
  const bool is_cast = dtype && parameter.is_floating_point() && c10::elementSize(parameter.scalar_type()) > 1;
  move_leaf(parameter, parameter.to(context_.device, is_cast ? *dtype : parameter.scalar_type()));
}

void ParameterStore::require_support(const Range& range, const Optimizer& optimizer) {
  optimizer.require_support(to_dtype(range.master_dtype), to_dtype(range.grad_dtype),
                            range.has_master_copy() ? to_dtype(range.dtype) : GANNET_DTYPE_NONE);
}

void ParameterStore::add_states(Range& range, const Optimizer& optimizer) {
  require_support(range, optimizer);
  for (const auto& state : optimizer.states()) range.states.push_back(make_state(range, state));
}

void ParameterStore::add_average(Range& range) const {
  range.average = make_like_masters(range, "ema");
  for (size_t p = 0; p < range.parameters.size(); ++p) restart_average(range, p);
}

void ParameterStore::restart_average(const Range& range, size_t parameter) const {
  constexpr int64_t kStretch = 1 << 22;  // elements per copy, to limit the memory that arrays on a drive need
  for (const zero::TensorPart& part : range.parts)
    for (int64_t done = 0; part.tensor == parameter && done < part.numel; done += kStretch) {
      const zero::Shard place{part.offset + done, part.own + done, std::min(kStretch, part.numel - done)};
      range.average.set(place.own, range.master_of(place));
    }
}

Array ParameterStore::make_like_masters(const Range& range, const std::string& name) const {
  return make_array(context_.state_tier, range.shard_numel, range.master_dtype, name);
}

Array ParameterStore::make_state(const Range& range, const Optimizer::State& state) const {
  if (!state.is_cut()) return {};
  const bool is_per_block = state.extent == GANNET_STATE_PER_BLOCK;
  const auto dtype = state.dtype != GANNET_DTYPE_NONE ? to_scalar_type(state.dtype)
                     : is_per_block                   ? at::kFloat
                                                      : range.master_dtype;
  // Per-block values are few and stay in memory: a page of them would be smaller than one direct
  // read.
  const int64_t own = range.is_served(state) ? range.shard_numel / range.ranks.comm->size() : range.shard_numel;
  const auto numel = static_cast<int64_t>(state.values_of(static_cast<uint64_t>(own)));
  Array array = is_per_block ? Array::in_memory(allocate_flat(numel, dtype, context_.update_device()))
                             : make_array(context_.state_tier, numel, dtype, state.name);
  if (state.initial_value != 0) array.fill(state.initial_value);
  return array;
}

}  // namespace gannet
