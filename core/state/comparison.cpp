#include "state/comparison.h"

#include <gannet/error.h>

#include <algorithm>

#include "base/format.h"
#include "base/text.h"
#include "state/saved_numbers.h"

namespace gannet {

using checkpoint::Opened;
using checkpoint::TensorInfo;

Comparison::Comparison(const Opened& found, const SavedNames& names, const Rules& rules)
    : found_(found),
      names_(names),
      rules_(rules),
      is_weights_(holds_weights_alone(found)),
      frozen_excluded_(!is_weights_ && saved_value(found, "frozen_excluded").as_bool()),
      has_users_(std::any_of(found.tensors().begin(), found.tensors().end(),
                             [](const TensorInfo& saved) { return saved.name.starts_with("optimizer/user"); })) {}

void Comparison::add(const StateEntry& entry) {
  const bool is_state = entry.kind == StateEntry::Kind::kState;
  const TensorInfo* saved = names_.find(entry);
  const std::string name = saved ? saved->name : names_.expected(entry);
  expected_.insert(name);
  if (is_state && !rules_.wants_states) return;
  if (is_state && !saved && has_users_ && rules_.reads_user_states) return;
  if (!saved && entry.kind == StateEntry::Kind::kAverage) return;  // the average starts as a copy of the parameter
  if (!saved) {
    if (entry.kind == StateEntry::Kind::kFrozen && frozen_excluded_) {
      notes_.push_back(formatted("frozen parameter '{}' was not saved: it stays as it is", entry.name));
    } else if (rules_.options.load_module_strict ||
               (is_state && !missing_parameters_.count(entry.name.substr(entry.name.find('/') + 1)))) {
      differences_.push_back(formatted("missing in the checkpoint: {}", name));
    } else {
      missing_parameters_.insert(entry.name);
      if (!is_state) notes_.push_back(formatted("missing in the checkpoint, left as it is: {}", name));
    }
    return;
  }
  if (saved->shape != entry.shape) {
    differences_.push_back(
        formatted("shape of {}: {} in the checkpoint, {} here", name, shape_text(saved->shape), shape_text(entry.shape)));
    return;
  }
  const bool are_numbers = c10::isFloatingType(saved->dtype) && c10::isFloatingType(entry.dtype);
  const bool may_convert =
      entry.kind == StateEntry::Kind::kFrozen || entry.kind == StateEntry::Kind::kBuffer || (is_weights_ && are_numbers);
  if (saved->dtype != entry.dtype && !may_convert) {
    differences_.push_back(
        formatted("dtype of {}: {} in the checkpoint, {} here", name, c10::toString(saved->dtype), c10::toString(entry.dtype)));
    return;
  }
  if (is_weights_ && saved->dtype != entry.dtype)
    ++converted_[formatted("{} to {}", c10::toString(saved->dtype), c10::toString(entry.dtype))];
  wanted_.emplace_back(entry, saved);
  if (entry.kind == StateEntry::Kind::kAverage) return;
  ++(is_state ? states : entry.kind == StateEntry::Kind::kBuffer ? buffers : parameters);
}

void Comparison::finish(const std::set<std::string>& expected_by_all) {
  find_unexpected(expected_by_all);
  if (rules_.mesh.size(kDataAxis) < rules_.mesh.world_size()) count_of_all(expected_by_all);
  for (const auto& [dtypes, tensors] : converted_)
    notes_.push_back(formatted("{}{} converted from {}", tensors, tensors == 1 ? " tensor" : " tensors", dtypes));
  if (rules_.wants_states && has_users_ != rules_.has_user_optimizer && !(has_users_ && rules_.reads_user_states))
    differences_.insert(differences_.begin(),
                        rules_.has_user_optimizer
                            ? "the program gave its own optimizer, and the checkpoint has none of that kind"
                            : "the checkpoint was saved with the program's own optimizer, and this engine has none");
  if (!differences_.empty() && !rules_.options.custom_load_fn) require_fit();
}

bool Comparison::is_for_this_rank(const std::string& name) const {
  return name.starts_with("parameter/") || name.starts_with(formatted("buffer/{}/", names_.source())) ||
         (rules_.wants_states && name.starts_with("state/"));
}

void Comparison::find_unexpected(const std::set<std::string>& expected_by_all) {
  for (const TensorInfo& saved : found_.tensors()) {
    if (!is_for_this_rank(saved.name) || expected_by_all.count(saved.name)) continue;
    if (names_.is_copy_of_tied(saved))
      notes_.push_back(formatted("{} is tied to another parameter here, and has the same values there",
                                 saved.name.substr(saved.name.find('/') + 1)));
    else if (rules_.options.load_module_strict && !rules_.options.custom_load_fn)
      differences_.push_back(formatted("unexpected in the checkpoint: {}", saved.name));
    else if (!saved.name.starts_with("state/"))
      notes_.push_back(formatted("unexpected in the checkpoint, not used: {}", saved.name));
  }
}

// Ranks along axes other than data have different tensors; the counts cover the tensors of all of
// them.
void Comparison::count_of_all(const std::set<std::string>& expected_by_all) {
  parameters = buffers = states = 0;
  std::set<std::string> buffer_names;
  for (const std::string& name : expected_by_all) {
    if (!found_.find(name)) continue;
    if (name.starts_with("parameter/")) ++parameters;
    if (name.starts_with("state/") && rules_.wants_states) ++states;
    if (name.starts_with("buffer/")) buffer_names.insert(name.substr(name.find('/', 7)));
  }
  buffers = static_cast<int64_t>(buffer_names.size());
}

void Comparison::require_fit() {
  // If the model differs, its optimizer states differ as well; report only the model.
  auto is_of_states = [](const std::string& line) {
    return line.find("state/") != line.npos || line.find("optimizer") != line.npos;
  };
  const auto is_of_masters = [](const std::string& line) {
    return line.starts_with("dtype of parameter/") && line.find("BFloat16") != line.npos;
  };
  const bool only_states = std::all_of(differences_.begin(), differences_.end(), is_of_states);
  if (!only_states) std::erase_if(differences_, is_of_states);
  const bool other_masters = !only_states && std::all_of(differences_.begin(), differences_.end(), is_of_masters);
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(differences_.size(), 5); ++i) text += formatted("\n  {}", differences_[i]);
  if (differences_.size() > 5) text += formatted("\n  and {} more", differences_.size() - 5);
  if (only_states && !rules_.other_optimizer.empty()) text.insert(0, formatted("\n  {}", rules_.other_optimizer));
  throw Error(ErrorCode::kMismatch, formatted("checkpoint {} does not fit this engine:{}", found_.path(), text),
              only_states && !rules_.other_optimizer.empty()
                  ? "name that optimizer in the config, engine->swap_optimizer() to it before the load, or "
                    "load_optimizer_states = false"
              : only_states ? "use the config that it was saved with, or load_optimizer_states = false"
              : other_masters
                  ? "set bf16.bf16_master_weights_and_grads as in the run that saved it (an imported checkpoint has fp32 "
                    "masters); the weights alone go by `gannet checkpoint "
                    "export` and from_pretrained"
                  : "build the model that was saved, or load with load_module_strict = false where only names are missing");
}

}  // namespace gannet
