// Registers parameters and assigns each to a range.
#include "params/store.h"

#include <gannet/error.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_set>

#include "base/format.h"
#include "base/text.h"
#include "config/precision.h"
#include "params/pieces.h"

namespace gannet {
namespace {

bool is_16_bit(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

TrainedParameter parameter_of(const std::string& name, const at::Tensor& tensor) {
  TrainedParameter parameter;
  parameter.name = name;
  parameter.tensor = tensor;
  parameter.split = split_of(tensor);
  parameter.shape = tensor.sizes().vec();
  parameter.numel = tensor.numel();
  if (tensor.is_complex()) {  // elementwise rules treat the real and the imaginary part as two numbers
    parameter.is_complex = true;
    parameter.shape.push_back(2);
    parameter.numel *= 2;
  }
  return parameter;
}

// Whether a range's gradients are reduced like this parameter's: over the same ranks and stages,
// with the same divisor.
bool has_same_reduction(const Range& range, const TrainedParameter& parameter, double ratio, const std::string& tie = "") {
  return range.tie == tie && range.is_split() == (parameter.split != nullptr) &&
         range.is_of_experts() == (parameter.split && parameter.split->is_along_expert) && range.gradient_ratio == ratio;
}

}  // namespace

std::optional<at::ScalarType> training_dtype(const config::Settings& settings) {
  const auto model = config::precision_of(settings, /*on_cpu=*/true).model;  // the same on any device
  return model ? std::optional(scalar_type(*model)) : std::nullopt;
}

at::ScalarType scalar_type(config::DType type) {
  switch (type) {
    case config::DType::kFloat16:
      return at::kHalf;
    case config::DType::kBFloat16:
      return at::kBFloat16;
    default:
      return at::kFloat;
  }
}

ParameterStore::~ParameterStore() {
  if (residency_) zero::unwatch(residency_.get());
}

TrainedParameter ParameterStore::admit(const std::string& name, const at::Tensor& tensor) {
  if (tensor.is_inference())
    throw Error(ErrorCode::kArgument,
                formatted("parameter '{}' was made under c10::InferenceMode: LibTorch's autograd cannot train it", name),
                "build the model outside of InferenceMode, or give initialize a clone of it");
  if (!tensor.is_leaf())
    throw Error(
        ErrorCode::kArgument,
        formatted("parameter '{}' is the result of an operator, not a leaf of the graph: its gradient would go to what it "
                  "was computed from",
                  name),
        "register a copy that is a leaf: register_parameter(name, value.detach().clone())");
  const bool can_be_trained =
      tensor.is_floating_point() || tensor.scalar_type() == at::kComplexFloat || tensor.scalar_type() == at::kComplexDouble;
  if (!can_be_trained || c10::elementSize(tensor.scalar_type()) < 2)
    throw Error(ErrorCode::kArgument,
                formatted("parameter '{}' has dtype {}, which cannot be trained", name, c10::toString(tensor.scalar_type())),
                "register it as a buffer");
  return parameter_of(name, tensor);
}

void ParameterStore::add(size_t group, const TrainedParameter& parameter) {
  if (group >= group_sizes_.size()) {
    group_sizes_.resize(group + 1);
    group_lines_.resize(group + 1);
  }
  TrainedParameter& added = range_for(group, parameter).parameters.emplace_back(parameter);
  added.index = group_sizes_[group]++;
  const auto& shape = parameter.split ? parameter.split->shape : parameter.shape;
  added.lines = TensorLines::of(shape, static_cast<uint64_t>(numel_of(shape)), group_lines_[group]);
  group_lines_[group] = added.lines;
  added.id = (uint64_t{context_.engine_id} << 32) + added_++;
}

// The factor that turns the sum over ranks, divided by the number of ranks along data (or undivided
// with gradient_sum), into the gradient.
double ParameterStore::gradient_ratio(const TrainedParameter& parameter) const {
  const double divisor = divisor_of(parameter.tensor), data = context_.comm->size();
  if (divisor == 0) return 1;
  if (data == 1 && divisor != 1)
    throw Error(ErrorCode::kUnsupported,
                formatted("the gradient of expert parameter '{}' is to be divided by {}, and one rank along data sums nothing",
                          parameter.name, short_number(divisor)),
                "scale the loss, or declare the divisor as the number of ranks that hold the same experts");
  return (context_.settings().gradient_sum ? 1 : data) / divisor;
}

// Returns the range for parameters of this group, dtype and placement, from those that have no
// memory yet. Makes one if there is none.
Range& ParameterStore::range_for(size_t group, const TrainedParameter& parameter) {
  const config::Settings& settings = context_.settings();
  const at::Tensor& tensor = parameter.tensor;
  const at::ScalarType dtype =
      parameter.is_complex ? c10::toRealValueType(tensor.scalar_type()) : training_dtype(settings).value_or(tensor.scalar_type());
  const Placement placement = placement_for(parameter);
  const double ratio = gradient_ratio(parameter);
  const std::string tie = context_.mesh->has_pipe_stages() ? tie_of(tensor) : "";
  for (size_t r = placed_; r < ranges_.size(); ++r)
    if (ranges_[r].group == group && ranges_[r].dtype == dtype && ranges_[r].placement == placement &&
        has_same_reduction(ranges_[r], parameter, ratio, tie))
      return ranges_[r];
  Range& range = ranges_.emplace_back();
  range.group = group;
  range.ranks = context_.ranks_of(parameter.split.get());
  range.gradient_ratio = ratio;
  range.tie = tie;
  range.keeps_whole_tensors = whole_groups_.contains(group);
  range.is_optimizer_reduced = averaging_groups_.contains(group);
  if (const auto found = alignments_.find(group); found != alignments_.end()) range.alignment = found->second;
  range.placement = placement;
  range.dtype = dtype;
  const bool is_own_master = dtype == at::kBFloat16 && settings.bf16.without_masters;
  range.master_dtype = is_16_bit(dtype) && !is_own_master ? at::kFloat : dtype;
  range.grad_dtype = settings.grad_accum_dtype ? scalar_type(*settings.grad_accum_dtype) : dtype;
  // As in DeepSpeed, the accumulation dtype may be narrower than the parameters for fp32 models,
  // but never for fp64.
  if (dtype == at::kDouble) range.grad_dtype = at::kDouble;
  return range;
}

void ParameterStore::add_frozen(const torch::nn::Module& module, const std::function<bool(const void* identity)>& is_trained) {
  const config::Settings& settings = context_.settings();
  std::unordered_set<const void*> seen;
  for (const auto& entry : module.named_parameters()) {
    const at::Tensor& tensor = entry.value();
    const void* identity = tensor.unsafeGetTensorImpl();
    if (is_trained(identity) || !tensor.is_floating_point() || tensor.numel() == 0 || !seen.insert(identity).second) continue;
    const TrainedParameter parameter = parameter_of(entry.key(), tensor);
    if (counted_numel(parameter) <= settings.zero.param_persistence_threshold) continue;
    const Placement placement = placement_for(parameter);
    if (!is_gathered_on_demand(placement)) continue;
    const at::ScalarType dtype = training_dtype(settings).value_or(tensor.scalar_type());
    const auto is_its = [&](const Range& range) {
      return range.dtype == dtype && range.placement == placement && has_same_reduction(range, parameter, 1);
    };
    auto range = std::find_if(frozen_.begin(), frozen_.end(), is_its);
    if (range == frozen_.end()) {
      range = frozen_.insert(frozen_.end(), Range());
      range->placement = placement;
      range->ranks = context_.ranks_of(parameter.split.get());
      range->dtype = range->master_dtype = dtype;
      range->grad_dtype = at::ScalarType::Undefined;
    }
    range->parameters.push_back(parameter);
  }
}

void ParameterStore::keep_whole_tensors(size_t group) {
  whole_groups_.insert(group);
  for (auto& range : ranges_)
    if (range.group == group) range.keeps_whole_tensors = true;
}

void ParameterStore::set_optimizer_reduced(size_t group) {
  if (context_.comm->size() == 1) return;  // a single rank: nothing to average, so gradients are used in place
  averaging_groups_.insert(group);
  for (auto& range : ranges_)
    if (range.group == group) range.is_optimizer_reduced = true;
}

void ParameterStore::align_ranges(size_t group, int64_t alignment) {
  // Never decreases: a layout stays valid if an optimizer with a smaller alignment is swapped in.
  int64_t& largest = alignments_[group];
  largest = std::max(largest, alignment);
  for (auto& range : ranges_)
    if (range.group == group) range.alignment = std::max(range.alignment, alignment);
}

std::vector<const TrainedParameter*> ParameterStore::parameters_of(size_t group) const {
  std::vector<const TrainedParameter*> all(group < group_sizes_.size() ? group_sizes_[group] : 0);
  for (const auto& range : ranges_)
    for (const auto& parameter : range.parameters)
      if (range.group == group) all[parameter.index] = &parameter;
  return all;
}

void ParameterStore::mark_moved(const at::Tensor& parameter) {
  for (auto& range : frozen_)
    for (auto& one : range.parameters)
      if (one.tensor.is_same(parameter)) one.is_moved = true;
}

int64_t ParameterStore::counted_numel(const TrainedParameter& parameter) const {
  if (!parameter.split || !parameter.split->is_along_expert || !context_.expert_group) return parameter.numel;
  const int64_t whole = numel_of(parameter.split->shape), ranks = context_.expert_group->size();
  return (whole + ranks - 1) / ranks;
}

Placement ParameterStore::placement_for(const TrainedParameter& parameter) {
  if (!context_.param_tier) return Placement::kDevice;
  const uint32_t ranks = context_.ranks_of(parameter.split.get()).comm->size();
  const int64_t share = (counted_numel(parameter) + ranks - 1) / ranks;
  // None of max_in_cpu is left for a parameter that joins later.
  const int64_t left = is_placed_ ? 0 : context_.settings().zero.offload_param.max_in_cpu - off_the_drive_;
  if (context_.param_tier_is_drive && share > left) return Placement::kDrive;
  if (context_.param_tier_is_drive) off_the_drive_ += share;
  return context_.memory_is_apart ? Placement::kHost : Placement::kDevice;
}

// True for parameters that are sharded over several ranks or kept off the device.
bool ParameterStore::is_gathered_on_demand(Placement placement) const {
  return context_.settings().zero.stage == 3 && (context_.comm->size() > 1 || placement != Placement::kDevice);
}

bool ParameterStore::gathers_on_demand() const {
  const auto does = [&](const Range& range) { return is_gathered_on_demand(range.placement); };
  return std::any_of(ranges_.begin(), ranges_.end(), does) || std::any_of(frozen_.begin(), frozen_.end(), does);
}

bool ParameterStore::has_experts() const {
  return std::any_of(ranges_.begin(), ranges_.end(), [](const Range& range) { return range.is_of_experts(); });
}

ParameterStore::NamedParameters ParameterStore::owned() const {
  NamedParameters all;
  for (const auto* each : {&ranges_, &frozen_})
    for (const auto& range : *each)
      for (const auto& parameter : range.parameters)
        if (!parameter.is_moved) all.emplace_back(parameter.name, parameter.tensor);
  return all;
}

int64_t ParameterStore::bucket_numel() const {
  return std::min(context_.settings().zero.reduce_bucket_size, zero::kOverlapNumel);
}

int64_t ParameterStore::page_numel() const {
  return std::max(std::min(context_.settings().zero.sub_group_size, zero::kOverlapNumel) / kPageGranularity, int64_t{1}) *
         kPageGranularity;
}

}  // namespace gannet
