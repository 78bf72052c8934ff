#include "update/torch_optimizer.h"

#include <ATen/ops/full.h>
#include <ATen/ops/view_as_real.h>
#include <gannet/error.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <functional>
#include <string_view>

#include "base/format.h"
#include "base/text.h"
#include "update/torch_rule.h"

namespace gannet {

const void* TorchOptimizer::ParameterPlace::key() const { return get().tensor.unsafeGetTensorImpl(); }

std::unique_ptr<TorchOptimizer> TorchOptimizer::of(const std::shared_ptr<torch::optim::Optimizer>& optimizer) {
  const TorchType* const type = torch_type_of(*optimizer);
  return type ? std::unique_ptr<TorchOptimizer>(new TorchOptimizer(optimizer, *type)) : nullptr;
}

TorchOptimizer::TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> program, const TorchType& type)
    : program_(std::move(program)), type_(type) {
  for (auto& group : program_->param_groups()) {
    auto& kept = kept_.emplace_back();
    for (const auto& state : type_.states)
      if (state.is_kept(group.options())) kept.push_back(&state);
    auto& seen = seen_.emplace_back();
    for (const auto& number : type_.numbers) seen.push_back(number.in(group.options()));
    for (const auto& tensor : group.params()) known_.insert(tensor.unsafeGetTensorImpl());
  }
}

std::unique_ptr<Optimizer> TorchOptimizer::make_rule(size_t group, c10::Device device) {
  return make_torch_rule({type_, program_, group, kept_[group], device});
}

std::string TorchOptimizer::text() const {
  std::string text = formatted("{}\n", type_.name);
  for (size_t g = 0; g < kept_.size(); ++g) {
    auto& options = program_->param_groups()[g].options();
    text += formatted("group {}: {} {}", g, type_.switches(options), Value(type_.first_value(options)).to_json());
    for (const auto* state : kept_[g]) text += formatted(" {}", state->name);
    text += '\n';
  }
  return text;
}

template <class Body>
void TorchOptimizer::for_each(ParameterStore& store, const Body& body) {
  for (Range& range : store.ranges()) {
    const bool is_whole = !is_offloaded_ && std::all_of(range.states.begin(), range.states.end(),
                                                        [&](const Array& array) { return range.has_all_of(array); });
    for (size_t p = 0; p < range.parameters.size(); ++p) body(ParameterPlace{range, p, range.group, is_whole});
  }
}

void TorchOptimizer::follow(ParameterStore& store, std::vector<Group>& groups, int64_t applied_steps) {
  check_groups(groups);
  exchange_numbers(groups);
  take_states(store, applied_steps, false);
}

void TorchOptimizer::check_groups(const std::vector<Group>& groups) const {
  const auto& now = program_->param_groups();
  size_t count = 0;
  for (size_t g = 0; g < now.size(); ++g)
    for (const auto& tensor : now[g].params()) {
      ++count;
      if (g < groups.size() && known_.contains(tensor.unsafeGetTensorImpl())) continue;
      throw Error(
          ErrorCode::kOrder,
          formatted("the program put a tensor of shape {} into its {} after initialize, and this engine does not train it",
                    shape_text(tensor.sizes().vec()), type_.name),
          "give the optimizer all parameters before initialize: those that are frozen then may be thawed later");
    }
  if (now.size() < groups.size() || count < known_.size())
    throw Error(ErrorCode::kOrder,
                formatted("the program took parameters out of its {} after initialize, and this engine trains them", type_.name),
                "freeze them with requires_grad_(false) instead");
  for (size_t g = 0; g < groups.size(); ++g)
    for (const auto& state : type_.states)
      if (state.is_kept(program_->param_groups()[g].options()) &&
          std::find(kept_[g].begin(), kept_[g].end(), &state) == kept_[g].end())
        throw Error(ErrorCode::kUnsupported,
                    formatted("the program set its {} so that '{}' is kept for {}, and there is no memory for it: it was "
                              "not kept at initialize",
                              type_.name, state.name, groups[g].name),
                    "set that option before initialize; its number may change at any time");
}

void TorchOptimizer::exchange_numbers(std::vector<Group>& groups) {
  for (size_t g = 0; g < groups.size(); ++g) {
    auto& options = program_->param_groups()[g].options();
    for (size_t i = 0; i < type_.numbers.size(); ++i) {
      double& theirs = type_.numbers[i].in(options);
      double& ours = groups[g].hyper[i];
      if (ours != seen_[g][i])
        theirs = ours;
      else
        ours = theirs;
      seen_[g][i] = ours;
    }
  }
}

void TorchOptimizer::take_all(ParameterStore& store, std::vector<Group>& groups, int64_t applied_steps) {
  for (size_t g = 0; g < groups.size(); ++g)
    for (size_t i = 0; i < type_.numbers.size(); ++i)
      groups[g].hyper[i] = seen_[g][i] = type_.numbers[i].in(program_->param_groups()[g].options());
  check_groups(groups);
  take_states(store, applied_steps, true);
}

// `all`: a parameter without a state in the object counts as not updated.
void TorchOptimizer::take_states(ParameterStore& store, int64_t applied_steps, bool all) {
  auto& states = program_->state();
  for_each(store, [&](const ParameterPlace& place) {
    if (kept_[place.group].empty()) return;
    TrainedParameter& parameter = place.get();
    const int64_t count = applied_steps - parameter.lag;
    const auto found = states.find(const_cast<void*>(place.key()));
    if (found == states.end()) {
      if ((place.is_whole || all) && count > 0) take(store, place, nullptr, applied_steps);  // the program removed it
      return;
    }
    TorchType::ParamState& own = *found->second;
    const bool is_new = type_.step && type_.step(own) == 0;
    if (place.is_whole && are_ours(place, own)) {
      if (!type_.step || type_.step(own) == count) return;
      parameter.lag = applied_steps - type_.step(own);
      count_taken(place, type_.step(own), {});
    } else if (!is_new || count > 0) {
      take(store, place, &own, applied_steps);
    }
    if (!place.is_whole) states.erase(found);
  });
}

bool TorchOptimizer::are_ours(const ParameterPlace& place, TorchType::ParamState& states) const {
  const auto& kept = kept_[place.group];
  for (size_t s = 0; s < kept.size(); ++s) {
    const at::Tensor& tensor = kept[s]->in(states);
    const at::Tensor ours = place.range.states[s].get(place.get().offset, place.get().numel);
    if (!tensor.defined() || tensor.const_data_ptr() != ours.const_data_ptr()) return false;
  }
  return true;
}

// If `states` is null, resets the states to their values before the first update.
void TorchOptimizer::take(ParameterStore& store, const ParameterPlace& place, TorchType::ParamState* states,
                          int64_t applied_steps) {
  TrainedParameter& parameter = place.get();
  const auto& kept = kept_[place.group];
  const int64_t known = applied_steps - parameter.lag;
  const int64_t count = !states ? 0 : type_.step ? type_.step(*states) : std::max<int64_t>(known, 1);
  std::vector<at::Tensor> values;  // all are checked before any is taken
  for (size_t s = 0; s < kept.size(); ++s) {
    const at::Tensor given = states
                                 ? kept[s]->in(*states)
                                 : at::full({parameter.numel}, type_.first_value(program_->param_groups()[place.group].options()),
                                            at::TensorOptions().dtype(place.range.master_dtype));
    if (!given.defined())
      throw Error(
          ErrorCode::kMismatch,
          formatted("the program's {} was given a state of '{}' without '{}': it is another optimizer's, or one's with other "
                    "options",
                    type_.name, parameter.name, kept[s]->name),
          "make the optimizer as it was when its states were saved, or load without them (load_optimizer_states = false)");
    const at::Tensor flat = (given.is_complex() ? at::view_as_real(given.resolve_conj()) : given).detach().flatten();
    if (flat.numel() != parameter.numel)
      throw Error(ErrorCode::kArgument,
                  formatted("the state '{}' of '{}' in the program's {} has {} elements, and the parameter has {}", kept[s]->name,
                            parameter.name, type_.name, flat.numel(), parameter.numel),
                  "give the optimizer that was made for this model");
    values.push_back(flat);
  }
  for (size_t s = 0; s < kept.size(); ++s) {
    store.set_state({&place.range, place.index}, s, values[s]);
    count_taken(place, count, values[s]);
  }
  parameter.lag = applied_steps - count;
}

// Parts of a split parameter differ between ranks, so their values are not hashed.
void TorchOptimizer::count_taken(const ParameterPlace& place, int64_t count, const at::Tensor& flat) {
  uint64_t hash = static_cast<uint64_t>(count) + place.get().index * 0x9E3779B97F4A7C15u + place.group;
  if (flat.defined() && !place.get().split) {
    const at::Tensor bytes = flat.to(at::kCPU).contiguous();
    hash ^= std::hash<std::string_view>()({static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()});
  }
  taken_hash_ = (taken_hash_ + hash) * 0x9E3779B97F4A7C15u;
}

void TorchOptimizer::show_states(ParameterStore& store, int64_t applied_steps) {
  auto& states = program_->state();
  for_each(store, [&](const ParameterPlace& place) {
    const auto& kept = kept_[place.group];
    const TrainedParameter& parameter = place.get();
    void* const key = const_cast<void*>(place.key());
    const int64_t count = applied_steps - parameter.lag;
    if (!place.is_whole || kept.empty() || (count == 0 && !type_.begins_with_states)) {
      states.erase(key);
      return;
    }
    auto& own = states[key];
    if (!own || !are_ours(place, *own)) {
      own = type_.make_state();
      for (size_t s = 0; s < kept.size(); ++s)
        kept[s]->in(*own) = Range::shaped(place.range.states[s].here().narrow(0, parameter.offset, parameter.numel), parameter);
    }
    if (type_.step) type_.step(*own) = count;
  });
}

// Gives new states to parameters that have none: LibTorch's Adagrad cannot step without the states
// that its constructor made.
void TorchOptimizer::give_back(ParameterStore& store) noexcept try {
  if (!type_.begins_with_states) return;
  for_each(store, [&](const ParameterPlace& place) {
    const TrainedParameter& parameter = place.get();
    auto& own = program_->state()[const_cast<void*>(place.key())];
    if (own || parameter.resident) return;  // a shard's values do not outlive the engine
    own = type_.make_state();
    const double first = type_.first_value(program_->param_groups()[place.group].options());
    for (const auto* state : kept_[place.group])
      state->in(*own) = at::full(parameter.tensor.sizes(), first,
                                 at::TensorOptions().dtype(place.range.master_dtype).device(parameter.tensor.device()));
  });
} catch (const std::exception&) {  // an optimizer without states starts from scratch
}

}  // namespace gannet
