#include "engine/module_audit.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <gannet/error.h>
#include <gannet/log.h>
#include <torch/nn/module.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/format.h"
#include "base/text.h"
#include "engine/checkpoint/loaded_memory.h"
#include "engine/ownership.h"
#include "engine/shared_memory.h"
#include "tensor/module_walk.h"
#include "tensor/move_leaf.h"
#include "tensor/splits.h"
#include "tensor/version.h"

namespace gannet {
namespace {

constexpr int64_t kSamples = 16;

// Hashes a sample of elements, spread evenly over a dense parameter in host memory.
uint64_t sample_of(const at::Tensor& tensor) {
  const int64_t numel = tensor.numel(), size = static_cast<int64_t>(tensor.element_size());
  if (!tensor.is_cpu() || numel == 0) return 0;
  const char* const data = static_cast<const char*>(tensor.const_data_ptr());
  uint64_t hash = 0;
  for (int64_t i = 0; i < std::min(kSamples, numel); ++i) {
    const int64_t place = numel <= kSamples ? i : i * (numel - 1) / (kSamples - 1);
    uint64_t bits = 0;
    std::memcpy(&bits, data + place * size, static_cast<size_t>(std::min<int64_t>(size, sizeof bits)));
    hash = (hash ^ bits) * 0x9E3779B97F4A7C15u;
  }
  return hash;
}

bool is_where_it_was_left(const TrainedParameter& parameter) {
  const auto* const tensor = parameter.tensor.unsafeGetTensorImpl();
  const auto& left = parameter.left;
  return tensor->unsafe_storage().unsafeGetStorageImpl() == left.storage && tensor->storage_offset() == left.offset &&
         tensor->strides() == at::IntArrayRef(left.strides);
}

}  // namespace

std::optional<size_t> ModuleAudit::group_of(const at::Tensor& parameter) const {
  const auto given = given_group_.find(parameter.unsafeGetTensorImpl());
  return given == given_group_.end() ? std::nullopt : std::optional(given->second);
}

void ModuleAudit::say_once(const std::string& what) {
  if (said_.insert(what.substr(0, 40)).second && context_.is_first()) log_info(what);
}

void ModuleAudit::record() {
  for (auto& range : store_.ranges())
    for (auto& parameter : range.parameters) {
      auto& left = parameter.left;
      const auto* const tensor = parameter.tensor.unsafeGetTensorImpl();
      left.storage = tensor->unsafe_storage().unsafeGetStorageImpl();
      left.offset = tensor->storage_offset();
      if (tensor->strides() != at::IntArrayRef(left.strides)) left.strides = parameter.tensor.strides().vec();
      left.version = version_of(parameter.tensor);
      if (range.reads_a_copy(parameter)) left.sample = sample_of(parameter.tensor);
    }
  record_module();
}

// Records the module's parameters in their order, so that look() can tell whether they are still
// the same.
void ModuleAudit::record_module() {
  size_t count = 0;
  bool is_same = true;
  for_each_parameter(module_, [&](const at::Tensor& tensor) {
    is_same = is_same && count < known_.size() && known_[count].identity == tensor.unsafeGetTensorImpl();
    ++count;
  });
  if (is_same && count == known_.size()) return;
  std::unordered_set<const void*> trained;
  for (const auto& range : store_.ranges())
    for (const auto& parameter : range.parameters) trained.insert(parameter.tensor.unsafeGetTensorImpl());
  known_.clear();
  for_each_parameter(module_, [&](const at::Tensor& tensor) {
    const void* identity = tensor.unsafeGetTensorImpl();
    known_.push_back({identity, trained.contains(identity) || declined_.contains(identity) || tensor.numel() == 0,
                      tensor.has_storage() ? tensor.storage().nbytes() : 0,
                      tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr, tensor.scalar_type()});
  });
}

std::vector<ModuleAudit::ParameterChange> ModuleAudit::changes() const {
  std::vector<ParameterChange> changes;
  for (auto& range : store_.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p) {
      const auto& parameter = range.parameters[p];
      const bool is_replaced = !is_where_it_was_left(parameter);
      if (is_replaced || version_of(parameter.tensor) != parameter.left.version ||
          (range.reads_a_copy(parameter) && sample_of(parameter.tensor) != parameter.left.sample))
        changes.push_back({&range, p, is_replaced});
    }
  return changes;
}

std::string ModuleAudit::written(std::optional<size_t> group) const {
  for (const ParameterChange& change : changes())
    if (!group || change.range->group == *group) return change.range->parameters[change.parameter].name;
  return "";
}

std::string ModuleAudit::written_names() const {
  constexpr size_t kMost = 3;
  std::vector<std::string> first;
  for (const std::string& name : written_names_)
    if (first.size() < kMost) first.push_back(formatted("'{}'", name));
  const size_t more = written_names_.size() - first.size();
  return join(first, ", ") + (more > 0 ? formatted(" and {} more", more) : "");
}

void ModuleAudit::look(Reducer& reducer, const std::function<void(const NamedParameters& added)>& join) {
  const std::vector<ParameterChange> changes = this->changes();
  if (const std::string name = reducer.restore_hooks(); !name.empty())
    throw Error(
        ErrorCode::kOrder,
        formatted("parameter '{}' has another post-accumulate-gradient hook than this engine's: its gradients go there", name),
        "remove that hook (set_post_acc_grad_hooks), or use a tensor hook (register_hook), of which there may be several");
  const auto added = new_parameters(std::any_of(changes.begin(), changes.end(), [](const ParameterChange& change) {
    return change.is_replaced && change.range->parameters[change.parameter].tensor.scalar_type() != change.range->dtype;
  }));
  if (changes.empty() && added.empty()) return;

  const at::NoGradGuard no_grad;
  if (!changes.empty()) store_.forget_gathered();
  std::vector<const TrainedParameter*> replaced;
  for (const ParameterChange& change : changes)
    if (change.is_replaced) replaced.push_back(&change.range->parameters[change.parameter]);
  prepare(replaced);
  for (const ParameterChange& change : changes) take_in(*change.range, change.parameter, change.is_replaced);
  reclaim();
  if (!changes.empty()) {
    const bool any_replaced =
        std::any_of(changes.begin(), changes.end(), [](const ParameterChange& change) { return change.is_replaced; });
    const ParameterChange& first = changes.front();
    const std::string more = changes.size() > 1 ? formatted(" and {} others", changes.size() - 1) : "";
    say_once(any_replaced ? formatted("took in new memory of parameters (torch::load, set_data or to): '{}'{} train from those "
                                      "values, in the engine's memory and dtype",
                                      first.range->parameters[first.parameter].name, more)
                          : formatted("took in values that the program wrote in place: '{}'{}",
                                      first.range->parameters[first.parameter].name, more));
  }
  if (!added.empty()) join(added);
  record();
}

void ModuleAudit::prepare(const std::vector<const TrainedParameter*>& replaced) const {
  if (replaced.empty()) return;
  NamedParameters given;
  for (const TrainedParameter* one : replaced) given.emplace_back(one->name, one->tensor);
  refuse_overlap(module_, given);
  for (const TrainedParameter* one : replaced) {
    at::Tensor tensor = one->tensor;
    const auto* const storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    const bool is_ours = std::any_of(store_.ranges().begin(), store_.ranges().end(), [&](const Range& range) {
      return std::any_of(range.parameters.begin(), range.parameters.end(),
                         [&](const TrainedParameter& other) { return other.left.storage == storage; });
    });
    if (is_ours) tensor.set_data(tensor.detach().clone());
  }
}

bool ModuleAudit::is_replaced(const TrainedParameter& parameter) const { return !is_where_it_was_left(parameter); }

at::Tensor ModuleAudit::value_in_file_dtype(const Range& range, const TrainedParameter& parameter) const {
  if (version_of(parameter.tensor) == parameter.left.version) return parameter.tensor.detach();
  StorageSharing sharing{false, parameter.tensor.storage_offset() + parameter.tensor.numel(),
                         range.numel * static_cast<int64_t>(parameter.tensor.element_size())};
  for (const auto& other : store_.ranges())
    for (const auto& one : other.parameters) {
      if (one.tensor.is_same(parameter.tensor) || storage_of(one.tensor) != storage_of(parameter.tensor)) continue;
      sharing.is_shared = true;
      sharing.extent = std::max(sharing.extent, one.tensor.storage_offset() + one.tensor.numel());
    }
  return as_a_file_has_it(parameter.name, parameter.tensor, sharing).detach();
}

at::Tensor ModuleAudit::value_given(const Range& range, size_t p, bool is_replaced) const {
  const TrainedParameter& parameter = range.parameters[p];
  at::Tensor value = is_replaced ? value_in_file_dtype(range, parameter) : parameter.tensor.detach();
  if (value.is_complex()) value = at::view_as_real(value.resolve_conj());
  if (value.sizes() != at::IntArrayRef(parameter.shape))
    throw Error(ErrorCode::kArgument,
                formatted("parameter '{}' was given a value of shape {} (by torch::load, set_data or resize), this engine trains "
                          "it in shape {}",
                          parameter.name, shape_text(value.sizes().vec()), shape_text(parameter.shape)),
                "give it its shape back, or make a new engine with initialize()");
  if (!value.is_floating_point())
    throw Error(ErrorCode::kArgument,
                formatted("parameter '{}' was given a value of dtype {}, which cannot be trained", parameter.name,
                          c10::toString(value.scalar_type())),
                "give it floating-point values");
  return value;
}

// Sets the parameter in use, and this rank's part of its master, to the values that the program put
// into the module.
void ModuleAudit::take_in(Range& range, size_t p, bool is_replaced) {
  const TrainedParameter& parameter = range.parameters[p];
  const at::Tensor value = value_given(range, p, is_replaced);
  if (parameter.resident && !is_replaced) return;  // written under a guard, which publishes the values
  const at::Tensor whole = value.to(context_.device, range.master_dtype).contiguous().flatten();
  // Split parameters differ along the tensor axis. If ranks along the data axis write different
  // values into them, the fingerprint detects it.
  if (context_.world_group->size() > 1 && !parameter.split) {
    const at::Tensor bytes = whole.to(at::kCPU);
    written_hash_ = (written_hash_ ^ XXH3_64bits(bytes.const_data_ptr(), bytes.nbytes())) * 0x9E3779B97F4A7C15u + p + 1;
    written_names_.insert(parameter.name);
  }
  store_.take_in(range, p, whole, is_replaced, value.scalar_type() != range.dtype);
}

void ModuleAudit::reclaim() {
  for (auto& range : store_.ranges())
    for (size_t p = 0; p < range.parameters.size(); ++p)
      if (!is_where_it_was_left(range.parameters[p])) store_.restore_memory(range, p);
}

bool ModuleAudit::is_module_as_recorded() const {
  size_t count = 0;
  bool is_same = true;
  for_each_parameter(module_, [&](const at::Tensor& tensor) {
    is_same = is_same && count < known_.size() && known_[count].identity == tensor.unsafeGetTensorImpl() &&
              (known_[count].is_trained ||
               (!tensor.requires_grad() &&
                (!tensor.has_storage() || (tensor.storage().nbytes() == known_[count].bytes &&
                                           tensor.storage().unsafeGetStorageImpl() == known_[count].storage))));
    ++count;
  });
  return is_same && count == known_.size();
}

ModuleAudit::StorageVersion ModuleAudit::StorageVersion::of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), version_of(tensor)};
}

std::vector<ModuleAudit::FrozenParameter> ModuleAudit::frozen() const {
  std::unordered_set<const void*> seen;
  for (const auto& range : store_.ranges())
    for (const auto& parameter : range.parameters) seen.insert(parameter.tensor.unsafeGetTensorImpl());
  std::vector<FrozenParameter> frozen;
  for (const auto& entry : module_.named_parameters()) {
    const at::Tensor& tensor = entry.value();
    if (tensor.requires_grad() || tensor.numel() == 0 || !tensor.has_storage() || split_of(tensor) ||
        zero::is_watched(tensor.storage().unsafeGetStorageImpl()) || !Ownership::owner_of(tensor).empty() ||
        !seen.insert(tensor.unsafeGetTensorImpl()).second)
      continue;
    const auto before = compared_.find(tensor.unsafeGetTensorImpl());
    frozen.push_back({entry.key(), tensor, before == compared_.end() || before->second != StorageVersion::of(tensor)});
  }
  return frozen;
}

void ModuleAudit::compared(const std::vector<FrozenParameter>& frozen) {
  compared_.clear();
  for (const FrozenParameter& one : frozen) compared_.emplace(one.tensor.unsafeGetTensorImpl(), StorageVersion::of(one.tensor));
}

ModuleAudit::NamedParameters ModuleAudit::unknown() const {
  if (is_module_as_recorded()) return {};
  std::unordered_set<const void*> seen = declined_;
  for (const auto& range : store_.ranges())
    for (const auto& parameter : range.parameters) seen.insert(parameter.tensor.unsafeGetTensorImpl());
  NamedParameters unknown;
  for (const auto& entry : module_.named_parameters()) {
    const void* const identity = entry.value().unsafeGetTensorImpl();
    const bool would_be_declined = groups_are_given_ && !given_group_.contains(identity);
    if (entry.value().requires_grad() && entry.value().numel() > 0 && !would_be_declined && seen.insert(identity).second)
      unknown.emplace_back(entry.key(), entry.value());
  }
  return unknown;
}

// Returns parameters of the module that require a gradient and that this engine does not train.
// `is_converted`: the program converted trained parameters to a different dtype, which the engine
// undoes; frozen parameters that were converted with them are converted back as well.
ModuleAudit::NamedParameters ModuleAudit::new_parameters(bool is_converted) {
  if (is_module_as_recorded()) return {};

  std::unordered_map<const void*, std::string> trained;
  std::unordered_map<std::string, const void*> by_name;
  for (const auto& range : store_.ranges())
    for (const auto& parameter : range.parameters) {
      trained.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
      by_name.emplace(parameter.name, parameter.tensor.unsafeGetTensorImpl());
    }
  std::unordered_map<const void*, const KnownParameter*> known;
  for (const auto& one : known_) known.emplace(one.identity, &one);
  std::vector<std::pair<std::string, at::Tensor>> found;
  std::unordered_set<const void*> seen;
  for (const auto& entry : module_.named_parameters()) {
    const void* identity = entry.value().unsafeGetTensorImpl();
    if (const auto same_name = by_name.find(entry.key());
        same_name != by_name.end() && same_name->second != identity && !trained.contains(identity))
      throw Error(ErrorCode::kOrder,
                  formatted("the module's parameter '{}' is another tensor than the one that this engine trains under that name "
                            "(replace_module, register_parameter)",
                            entry.key()),
                  "make a new engine with initialize()");
    if (trained.contains(identity) || declined_.contains(identity) || !seen.insert(identity).second) continue;
    if (!entry.value().requires_grad() && known.contains(identity)) {
      at::Tensor frozen = entry.value();
      if (frozen.has_storage() && frozen.storage().unsafeGetStorageImpl() != known[identity]->storage)
        refuse_overlap(module_, {{entry.key(), frozen}});
      const at::Tensor meant = frozen.has_storage() && frozen.storage().nbytes() != known[identity]->bytes
                                   ? as_a_file_has_it(entry.key(), frozen, {false, frozen.numel(), 0})
                                   : frozen;
      if (!meant.is_same(frozen)) move_leaf(frozen, meant.to(frozen.scalar_type()));
      if (is_converted && frozen.is_floating_point() && storage_of(frozen) != known[identity]->storage)
        move_leaf(frozen, frozen.detach().to(context_.device, known[identity]->dtype));
      continue;
    }
    if (entry.value().requires_grad() && groups_are_given_ && !given_group_.contains(identity)) {
      declined_.insert(identity);
      say_once(
          formatted("parameter '{}' requires a gradient and is in none of the parameter groups: it is not trained, as "
                    "torch.optim would not",
                    entry.key()));
      if (known.contains(identity)) continue;
    }
    found.emplace_back(entry.key(), entry.value());
  }
  refuse_overlap(module_, found);
  if (found.empty()) {
    known_.clear();
    record_module();
  }
  return found;
}

}  // namespace gannet
