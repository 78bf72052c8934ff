// From a module's parameters to groups and flat ranges on the device.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gannet/log.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "base/format.h"
#include "engine/impl.h"
#include "params/interception.h"
#include "tensor/dtype.h"

namespace gannet {
namespace {

// What the parameters are trained in: fp16 or bf16 where the config says so, else as the program made them.
std::optional<at::ScalarType> training_dtype(const config::Settings& settings) {
  if (settings.fp16.enabled) return at::kHalf;
  if (settings.bf16.enabled) return at::kBFloat16;
  return std::nullopt;
}

constexpr const char* kHowToRead = "read it in forward or backward, or under a zero::GatheredParameters guard";

// Elements: a page of direct I/O, of the smallest dtype.
constexpr int64_t kDriveAlignment = 2048;

bool is_16_bit(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

TrainedParameter parameter_of(const std::string& name, const at::Tensor& tensor) {
  TrainedParameter parameter;
  parameter.name = name;
  parameter.tensor = tensor;
  parameter.shape = tensor.sizes().vec();
  parameter.numel = tensor.numel();
  if (tensor.is_complex()) {  // elementwise rules see the real and the imaginary part as two numbers
    parameter.is_complex = true;
    parameter.shape.push_back(2);
    parameter.numel *= 2;
  }
  return parameter;
}

// What flat buffers hold of it.
at::Tensor real_view(const at::Tensor& tensor) { return tensor.is_complex() ? at::view_as_real(tensor.resolve_conj()) : tensor; }

std::vector<ParameterGroup> groups_of(const EngineOptions& options, torch::nn::Module& module) {
  if (options.optimizer) {  // the program's own optimizer says which parameters it steps
    std::vector<ParameterGroup> groups;
    for (auto& group : options.optimizer->param_groups()) groups.push_back({group.params(), {}, ""});
    return groups;
  }
  if (!options.model_parameters.empty()) return options.model_parameters;
  ParameterGroup all;
  for (auto& parameter : module.parameters()) all.parameters.push_back(parameter);
  return {std::move(all)};
}

}  // namespace

void EngineBase::Impl::collect_parameters(const EngineOptions& options) {
  std::unordered_map<const void*, std::string> names;
  for (const auto& entry : module->named_parameters()) names.emplace(entry.value().unsafeGetTensorImpl(), entry.key());
  if (names.empty())
    throw Error(ErrorCode::kArgument, "the model has no parameters",
                "register them with register_parameter or register_module; a plain member is not seen by LibTorch");

  std::unordered_map<const void*, size_t> group_of;
  int64_t off_the_drive = settings().zero.offload_param.max_in_cpu;
  if (options.inference) return collect_frozen(group_of, off_the_drive);
  groups_are_given = options.optimizer || !options.model_parameters.empty();
  for (auto& given : groups_of(options, *module)) {
    const size_t index = groups.size();
    Group& group = groups.emplace_back();
    group.name = given.name.empty() ? formatted("group {}", index) : given.name;
    for (auto& tensor : given.parameters) {
      const void* identity = tensor.unsafeGetTensorImpl();
      const auto known = names.find(identity);
      const std::string name = known != names.end() ? known->second : formatted("{}[{}]", group.name, group.parameters.size());
      given_group.emplace(identity, index);
      if (!tensor.requires_grad()) continue;
      const TrainedParameter parameter = admit(name, tensor);
      if (const auto [place, is_new] = group_of.emplace(identity, index); !is_new) {
        if (place->second != index)
          throw Error(
              ErrorCode::kArgument,
              formatted("parameter '{}' is in two parameter groups: {} and {}", name, groups[place->second].name, group.name),
              "give each parameter to one group");
        continue;  // registered under two names: tied
      }
      group.parameters.push_back(tensor);
      if (tensor.numel() > 0) range_for(index, parameter, 0, off_the_drive).parameters.push_back(parameter);
    }
  }
  collect_frozen(group_of, off_the_drive);
  if (ranges.empty())
    throw Error(ErrorCode::kArgument,
                formatted("none of the model's {} parameters requires a gradient, so there is nothing to train", names.size()),
                "call requires_grad_(true) on those to train");
}

TrainedParameter EngineBase::Impl::admit(const std::string& name, const at::Tensor& tensor) const {
  const bool can_be_trained =
      tensor.is_floating_point() || tensor.scalar_type() == at::kComplexFloat || tensor.scalar_type() == at::kComplexDouble;
  if (!can_be_trained || c10::elementSize(tensor.scalar_type()) < 2)
    throw Error(ErrorCode::kArgument,
                formatted("parameter '{}' has dtype {}, which cannot be trained", name, c10::toString(tensor.scalar_type())),
                "register it as a buffer");
  return parameter_of(name, tensor);
}

// The one of ranges[first ...] that a parameter of this group, dtype and placement belongs to.
Range& EngineBase::Impl::range_for(size_t group, const TrainedParameter& parameter, size_t first, int64_t& off_the_drive) {
  const at::Tensor& tensor = parameter.tensor;
  const at::ScalarType dtype = parameter.is_complex ? c10::toRealValueType(tensor.scalar_type())
                                                    : training_dtype(settings()).value_or(tensor.scalar_type());
  const Placement placement = placement_for(tensor, off_the_drive);
  for (size_t r = first; r < ranges.size(); ++r)
    if (ranges[r].group == group && ranges[r].dtype == dtype && ranges[r].placement == placement) return ranges[r];
  Range& range = ranges.emplace_back();
  range.group = group;
  range.placement = placement;
  range.dtype = dtype;
  range.master_dtype = is_16_bit(dtype) ? at::kFloat : dtype;
  range.grad_dtype = settings().grad_accum_dtype ? scalar_type(*settings().grad_accum_dtype) : dtype;
  // An accumulation dtype narrower than the parameters is DeepSpeed's business with fp32 models, never with fp64 ones.
  if (dtype == at::kDouble) range.grad_dtype = at::kDouble;
  return range;
}

// Large parameters that are not trained are shared out too: a base model under adapters is most of its memory.
void EngineBase::Impl::collect_frozen(const std::unordered_map<const void*, size_t>& trained, int64_t& off_the_drive) {
  std::map<std::pair<at::ScalarType, Placement>, size_t> range_of;
  std::unordered_set<const void*> seen;
  for (const auto& entry : module->named_parameters()) {
    const at::Tensor& tensor = entry.value();
    const void* identity = tensor.unsafeGetTensorImpl();
    if (trained.contains(identity) || !tensor.is_floating_point() ||
        tensor.numel() <= settings().zero.param_persistence_threshold || tensor.numel() == 0 || !seen.insert(identity).second)
      continue;
    const Placement placement = placement_for(tensor, off_the_drive);
    if (!is_gathered_on_demand(placement)) continue;
    const at::ScalarType dtype = training_dtype(settings()).value_or(tensor.scalar_type());
    const auto [slot, is_new] = range_of.emplace(std::pair(dtype, placement), frozen.size());
    if (is_new) {
      Range& range = frozen.emplace_back();
      range.placement = placement;
      range.dtype = range.master_dtype = dtype;
      range.grad_dtype = at::ScalarType::Undefined;
    }
    frozen[slot->second].parameters.push_back(parameter_of(entry.key(), tensor));
  }
}

Placement EngineBase::Impl::placement_for(const at::Tensor& parameter, int64_t& off_the_drive) const {
  if (!param_tier) return Placement::kDevice;
  const int64_t share = (parameter.numel() + comm->size() - 1) / comm->size();
  if (param_tier_is_drive && share > off_the_drive) return Placement::kDrive;
  if (param_tier_is_drive) off_the_drive -= share;
  return memory_is_apart ? Placement::kHost : Placement::kDevice;
}

// Parameters are shared out among several ranks, or kept away from the device.
bool EngineBase::Impl::is_gathered_on_demand(Placement placement) const {
  return settings().zero.stage == 3 && (comm->size() > 1 || placement != Placement::kDevice);
}

bool EngineBase::Impl::gathers_on_demand() const {
  const auto does = [&](const Range& range) { return is_gathered_on_demand(range.placement); };
  return std::any_of(ranges.begin(), ranges.end(), does) || std::any_of(frozen.begin(), frozen.end(), does);
}

Array EngineBase::Impl::make_param(const Range& range) const {
  const int64_t numel = range.is_gathered_on_demand ? range.own_numel : range.numel;
  const bool is_on_tier = range.placement == Placement::kDrive || !param_tier_is_drive;
  if (range.placement == Placement::kHost && !is_on_tier) return Array::in_memory(allocate_flat(numel, range.dtype, at::kCPU));
  return make_array(is_on_tier ? param_tier : nullptr, numel, range.dtype, "parameters");
}

Array EngineBase::Impl::make_array(const std::shared_ptr<Offload>& tier, int64_t numel, at::ScalarType dtype,
                                   const std::string& name) const {
  return tier ? Array::on_tier(tier, numel, dtype, name) : Array::in_memory(allocate_flat(numel, dtype, device));
}

int64_t EngineBase::Impl::bucket_numel() const { return std::min(settings().zero.reduce_bucket_size, zero::kOverlapNumel); }

void EngineBase::Impl::cut_range(Range& range) {
  std::vector<int64_t> numels;
  for (auto& parameter : range.parameters) numels.push_back(parameter.numel);
  if (comm->size() > 1) range.sharding = static_cast<Sharding>(settings().zero.stage);
  range.is_gathered_on_demand = is_gathered_on_demand(range.placement);
  // A parameter that is gathered alone is a cut of its own; one that is read from a drive begins where direct I/O can.
  range.layout = zero::lay_out(numels, range.is_gathered_on_demand ? 0 : bucket_numel(), range.is_sharded() ? comm->size() : 1,
                               range.placement == Placement::kDrive ? kDriveAlignment : zero::kAlignment);
  range.numel = range.layout.numel;
  for (size_t p = 0; p < numels.size(); ++p) range.parameters[p].offset = range.layout.offsets[p];
  if (range.is_sharded()) {
    range.shards = zero::shards_of(range.layout, comm->rank(), comm->size());
    range.parts = zero::parts_of(range.layout, range.shards);
    for (const auto& shard : range.shards) range.own_numel += shard.numel;
  } else {
    range.shards = {{0, 0, range.numel}};
    for (size_t p = 0; p < numels.size(); ++p)
      range.parts.push_back({p, 0, range.layout.offsets[p], range.layout.offsets[p], numels[p]});
    range.own_numel = range.numel;
  }

  for (const auto& shard : range.shards) {
    const bool joins =
        range.shards_parameters() && !range.sub_groups.empty() &&
        range.sub_groups.back().numel + shard.numel <= std::min(settings().zero.sub_group_size, zero::kOverlapNumel);
    if (joins)
      range.sub_groups.back().numel += shard.numel;
    else
      range.sub_groups.push_back(shard);
  }
  for (const auto& stretch : range.sub_groups) range.segments.push_back(segments_in(range, stretch.own, stretch.numel));
  for (const auto& part : range.parts)
    if (!range.is_sharded()) range.own_segments.push_back(segments_in(range, part.own, part.numel).front());
}

std::vector<gannet_segment> segments_in(const Range& range, int64_t own, int64_t numel) {
  std::vector<gannet_segment> segments;
  const auto& parts = range.parts;  // in the order of their places
  auto part = std::partition_point(parts.begin(), parts.end(), [&](const zero::Part& one) { return one.own + one.numel <= own; });
  for (; part != parts.end() && part->own < own + numel; ++part) {
    const auto& parameter = range.parameters[part->tensor];
    const int64_t first = std::max(part->own, own), last = std::min(part->own + part->numel, own + numel);
    gannet_segment segment{};
    segment.struct_size = sizeof(segment);
    segment.dimensions = static_cast<uint32_t>(parameter.shape.size());
    segment.tensor_id = part->tensor;
    segment.offset = static_cast<uint64_t>(first - own);
    segment.numel = static_cast<uint64_t>(last - first);
    segment.tensor_offset = static_cast<uint64_t>(part->begin + first - part->own);
    segment.tensor_numel = static_cast<uint64_t>(parameter.numel);
    segment.shape = parameter.shape.data();
    segments.push_back(segment);
  }
  return segments;
}

// As bytes: a sum needs a dtype that the Comm adds, a copy needs none.
void EngineBase::Impl::broadcast(const at::Tensor& tensor, uint32_t root) {
  if (comm->size() == 1 || !tensor.defined()) return;
  if (tensor.layout() != at::kStrided) return broadcast_sparse(tensor, root);
  if (tensor.numel() == 0) return;
  const at::Tensor flat = tensor.resolve_conj().resolve_neg().contiguous();
  comm->broadcast(flat, root).block();
  if (flat.data_ptr() != tensor.data_ptr()) tensor.copy_(flat);
}

// From the module's values to the range's buffers, a bucket at a time: rank 0's on every rank.
void EngineBase::Impl::place_range(Range& range) {
  cut_range(range);
  const bool is_trained = range.grad_dtype != at::ScalarType::Undefined;
  range.param = make_param(range);
  if (range.has_master_copy()) range.master = make_array(state_tier, range.own_numel, range.master_dtype, "masters");
  const int64_t grad_numel = range.shards_gradients() ? range.own_numel : range.numel;
  if (is_trained && host_gradients)
    range.grad = host_gradients->allocate(grad_numel, range.grad_dtype);
  else if (is_trained && range.is_sharded())
    range.grad = allocate_flat(grad_numel, range.grad_dtype, device);
  for (size_t b = 0; b < range.layout.buckets.size(); ++b) {
    const auto& bucket = range.layout.buckets[b];
    // Masters keep the fp32 values that the program made on rank 0, not their rounding to 16 bits.
    const Array& masters = range.has_master_copy() ? range.master : range.param;
    const bool is_direct = !range.is_gathered_on_demand && masters.is_here() && masters.here().device() == device &&
                           (!range.is_sharded() || !range.has_master_copy());
    at::Tensor whole = is_direct ? masters.get(bucket.offset, bucket.numel)
                                 : at::zeros({bucket.numel}, at::TensorOptions().dtype(range.master_dtype).device(device));
    for (size_t p = bucket.first; p < bucket.last; ++p) {
      auto& parameter = range.parameters[p];
      whole.narrow(0, parameter.offset - bucket.offset, parameter.numel).view(parameter.shape).copy_(real_view(parameter.tensor));
      parameter.tensor.mutable_grad().reset();
      zero::release_ownership(parameter.tensor.storage().unsafeGetStorageImpl());
      if (!range.is_gathered_on_demand)
        parameter.tensor.set_data(Range::shaped(range.param.here().narrow(0, parameter.offset, parameter.numel), parameter));
    }
    broadcast(whole);
    if (range.is_gathered_on_demand) {
      keep_part(range, b, whole);
      shard_parameter(range, b, whole);
      continue;
    }
    if (range.has_master_copy()) range.param.set(bucket.offset, whole);
    if (!is_direct) keep_part(range, b, whole);
  }
}

// This rank's part of a bucket whose values, masters' or parameters', are in `whole`.
void EngineBase::Impl::keep_part(Range& range, size_t bucket, const at::Tensor& whole) {
  const int64_t begin = range.layout.buckets[bucket].offset;
  const zero::Shard part =
      range.is_sharded() ? range.shards[bucket] : zero::Shard{begin, begin, range.layout.buckets[bucket].numel};
  const at::Tensor mine = whole.narrow(0, part.offset - begin, part.numel);
  if (range.is_gathered_on_demand) range.set_param(part, mine);
  if (range.has_master_copy()) range.set_master(part, mine);
}

// The module's parameter, which is bucket `p`, gives up its bytes; a small one stays whole on every rank.
void EngineBase::Impl::shard_parameter(Range& range, size_t p, const at::Tensor& whole) {
  auto& parameter = range.parameters[p];
  const auto& zero = settings().zero;
  const bool is_small = parameter.numel <= zero.param_persistence_threshold &&
                        persistent_numel + parameter.numel <= zero.model_persistence_threshold;
  if (is_small || parameter.is_complex) {  // a gather has one dtype, the parameter's own
    persistent_numel += parameter.numel;
    parameter.persistent = whole.to(range.dtype, /*non_blocking=*/false, /*copy=*/true);
    parameter.tensor.set_data(Range::shaped(parameter.persistent, parameter));
    return;
  }
  parameter.tensor.set_data(at::empty(parameter.shape, at::TensorOptions().dtype(range.dtype).device(device)));
  gatherer->add(range, p);
  parameter.resident =
      residency->add(parameter.name, parameter.tensor,
                     comm->size() > 1 ? formatted("is shared out among the ranks (ZeRO stage 3): {}", kHowToRead)
                                      : formatted("is offloaded to {}: {}", settings().zero.offload_param.device, kHowToRead));
  zero::watch(parameter.tensor.storage().unsafeGetStorageImpl(), residency.get(), *parameter.resident);
}

void EngineBase::Impl::make_residency() {
  const auto& zero = settings().zero;
  std::optional<Gatherer::ToDevice> to_device;
  if (param_tier && memory_is_apart)
    to_device = {accelerator->make_queue("parameters", device_index()), [this] { return current_stream(); }};
  gatherer = std::make_unique<Gatherer>(comm.get(), host_group, timers, std::move(to_device), [this] {
    return formatted("{} of step {}", residency->stretch_name(), progress.global_steps + 1);
  });
  residency = std::make_unique<zero::Residency>(
      *gatherer, zero::Residency::Limits{zero.prefetch_bucket_size, zero.max_live_parameters, zero.max_reuse_distance});
  if (is_first()) residency->on_new_order([](const std::string& sentence) { log_info(sentence); });
}

void EngineBase::Impl::place_untrained(const at::Tensor& tensor) const {
  at::Tensor parameter = tensor;
  const auto dtype = training_dtype(settings());
  if (const auto* storage = parameter.has_storage() ? parameter.storage().unsafeGetStorageImpl() : nullptr;
      storage && zero::is_watched(storage)) {
    const at::Tensor own = parameter.clone();
    zero::release_ownership(storage);
    parameter.set_data(own);
  }
  const bool is_cast = dtype && parameter.is_floating_point() && c10::elementSize(parameter.scalar_type()) > 1;
  parameter.set_data(parameter.to(device, is_cast ? *dtype : parameter.scalar_type()));
}

void EngineBase::Impl::move_module() {
  at::NoGradGuard no_grad;
  const zero::Interception armed;  // parameters built under zero::Init come as they are read
  if (updates_on_host() && settings().zero.stage >= 2 && !settings().optimizer.type.empty())
    host_gradients = std::make_unique<HostGradients>(*accelerator, device_index(), 2 * bucket_numel() * int64_t{sizeof(float)},
                                                     [this] { return current_stream(); });
  if (gathers_on_demand()) make_residency();
  std::unordered_set<const void*> placed;
  for (auto* each : {&ranges, &frozen})
    for (auto& range : *each) {
      place_range(range);
      for (auto& parameter : range.parameters) placed.insert(parameter.tensor.unsafeGetTensorImpl());
    }

  if (param_tier_is_drive) {
    int64_t kept = 0, all = 0;
    for (const auto* each : {&ranges, &frozen})
      for (const auto& range : *each) {
        all += range.own_numel;
        if (range.placement != Placement::kDrive) kept += range.own_numel;
      }
    if (kept == all) param_tier.reset();  // nothing is on the drive
    if (kept > 0 && is_first())
      log_info(formatted("offload_param: {} of a rank's {} elements stay in memory (max_in_cpu is {})", kept, all,
                         settings().zero.offload_param.max_in_cpu));
  }

  // What is not trained: frozen parameters follow the training dtype, buffers keep theirs unless buffer_dtype is set.
  for (auto& parameter : module->parameters())
    if (!placed.count(parameter.unsafeGetTensorImpl())) place_untrained(parameter);
  for (auto& buffer : module->buffers()) {
    const bool cast = settings().buffer_dtype && buffer.is_floating_point();
    buffer.set_data(buffer.to(device, cast ? scalar_type(*settings().buffer_dtype) : buffer.scalar_type()));
  }
  // Every rank starts from rank 0's values, buffers included.
  for (auto& parameter : module->parameters())
    if (!placed.count(parameter.unsafeGetTensorImpl())) broadcast(parameter.detach());
  for (auto& buffer : module->buffers()) broadcast(buffer);
}

}  // namespace gannet
