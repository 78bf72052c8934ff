#include "activation/recomputing.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <unordered_map>

#include "activation/here.h"
#include "base/check.h"
#include "base/format.h"
#include "base/text.h"

namespace gannet::activation {
namespace {

struct PlannerTable {
  std::mutex mutex;
  std::unordered_map<const void*, RecomputationPlanner*> of;  // by the TensorImpl of a parameter
};

PlannerTable& table() {
  static PlannerTable* const forever = new PlannerTable;  // never destroyed: engines in global variables may outlive it
  return *forever;
}

// The planners of the engines that are running a forward on this thread, the innermost last.
std::vector<RecomputationPlanner*>& forwards() {
  thread_local std::vector<RecomputationPlanner*> stack;
  return stack;
}

std::string names_of(const std::vector<Layer>& layers) {
  std::string names;
  for (const Layer& layer : layers) names += layer.name() + '\n';
  return names;
}

}  // namespace

std::string RecomputeSettings::to_string() const {
  if (!is_on) return "off";
  if (memory_limit) return formatted("memory_limit {}", size_text(static_cast<uint64_t>(*memory_limit)));
  if (interval) return formatted("interval {}", *interval);
  if (number_checkpoints) return formatted("number_checkpoints {}", *number_checkpoints);
  return "each layer";
}

RecomputationPlanner::RecomputationPlanner(RecomputeSettings settings, std::function<void()> wait)
    : settings_(std::move(settings)), wait_(std::move(wait)) {}

RecomputationPlanner::~RecomputationPlanner() {
  const std::lock_guard lock(table().mutex);
  std::erase_if(table().of, [this](const auto& entry) { return entry.second == this; });
}

void RecomputationPlanner::own(const std::vector<at::Tensor>& parameters) {
  const std::lock_guard lock(table().mutex);
  for (const at::Tensor& parameter : parameters) {
    table().of[parameter.unsafeGetTensorImpl()] = this;
    parameters_.push_back(parameter);
  }
}

std::shared_ptr<RecomputationPlanner> RecomputationPlanner::of(const std::vector<Layer>& layers) {
  {
    const std::lock_guard lock(table().mutex);
    if (table().of.empty()) return nullptr;
    for (const Layer& layer : layers)
      for (const auto& module : layer.modules())
        if (module)
          for (const at::Tensor& parameter : module->parameters())
            if (const auto found = table().of.find(parameter.unsafeGetTensorImpl()); found != table().of.end())
              return found->second->shared_from_this();
  }
  return forwards().empty() ? nullptr : forwards().back()->shared_from_this();
}

void RecomputationPlanner::turn(bool on) {
  turned_ = turned_ || settings_.is_on != on;
  settings_.is_on = on;
}

RecomputationPlanner::LayerList* RecomputationPlanner::find(const std::string& names) {
  const auto found = std::find_if(lists_.begin(), lists_.end(), [&](const LayerList& list) { return list.names == names; });
  return found == lists_.end() ? nullptr : &*found;
}

RecomputationPlanner::Plan RecomputationPlanner::plan(const std::vector<Layer>& layers) {
  if (!settings_.memory_limit)
    return {settings_.interval             ? groups_of(layers.size(), static_cast<size_t>(*settings_.interval))
            : settings_.number_checkpoints ? even_groups(layers.size(), static_cast<size_t>(*settings_.number_checkpoints))
                                           : groups_of(layers.size(), 1)};
  const std::lock_guard lock(mutex_);
  const std::string names = names_of(layers);
  const LayerList* const list = find(names);
  if (list && !list->groups.empty()) return {list->groups};
  if (!list) lists_.push_back({names, {}, {}});
  return {groups_of(layers.size(), 1), !list || list->layers.empty()};
}

void RecomputationPlanner::add(const std::vector<Layer>& layers, std::vector<MeasuredLayer> measured) {
  const std::lock_guard lock(mutex_);
  if (LayerList* const list = find(names_of(layers)); list && list->layers.empty()) list->layers = std::move(measured);
}

std::unordered_set<const c10::StorageImpl*> RecomputationPlanner::parameter_storages() const {
  std::unordered_set<const c10::StorageImpl*> storages;
  for (const at::Tensor& parameter : parameters_)
    if (parameter.has_storage()) storages.insert(parameter.storage().unsafeGetStorageImpl());
  return storages;
}

void RecomputationPlanner::wait() const {
  if (wait_) wait_();
}

std::string RecomputationPlanner::unchosen() const {
  const std::lock_guard lock(mutex_);
  std::string names;
  for (const LayerList& list : lists_)
    if (!list.layers.empty() && list.groups.empty()) names += list.names + '\n';
  return names;
}

std::vector<MeasuredLayer> RecomputationPlanner::measured_layers() const {
  const std::lock_guard lock(mutex_);
  std::vector<MeasuredLayer> all;
  for (const LayerList& list : lists_) all.insert(all.end(), list.layers.begin(), list.layers.end());
  return all;
}

std::vector<double> RecomputationPlanner::measured() const {
  const std::lock_guard lock(mutex_);
  std::vector<double> numbers;
  for (const LayerList& list : lists_)
    for (const MeasuredLayer& layer : list.layers)
      numbers.insert(numbers.end(),
                     {static_cast<double>(layer.input_bytes), static_cast<double>(layer.saved_bytes), layer.seconds});
  return numbers;
}

// Chooses for all lists together: if a forward runs an encoder's and a decoder's lists, the tensors
// of one are kept while the other runs.
std::string RecomputationPlanner::choose(const std::vector<double>& agreed) {
  const std::lock_guard lock(mutex_);
  std::vector<MeasuredLayer> all;
  double forward_seconds = 0;
  for (const LayerList& list : lists_)
    for (const MeasuredLayer& layer : list.layers) {
      const size_t at = 3 * all.size();
      GANNET_CHECK(at + 3 <= agreed.size(), "three numbers for each layer");
      all.push_back({layer.name, static_cast<int64_t>(agreed[at]), static_cast<int64_t>(agreed[at + 1]), agreed[at + 2]});
      forward_seconds += agreed[at + 2];
    }
  const Choice choice = activation::choose(all, *settings_.memory_limit);
  size_t first = 0;
  std::vector<std::string> chosen;
  for (LayerList& list : lists_) {
    if (list.layers.empty()) continue;
    std::vector<bool> is_region(list.layers.size());
    for (size_t i = 0; i < is_region.size(); ++i) {
      is_region[i] = choice.is_region[first + i];
      if (is_region[i]) chosen.push_back(list.layers[i].name);
    }
    list.groups = single_regions(is_region);
    first += is_region.size();
  }
  const auto text = [](int64_t bytes) { return size_text(static_cast<uint64_t>(bytes)); };
  const std::string limit = formatted("memory_limit {}", text(*settings_.memory_limit));
  if (chosen.empty())
    return formatted("{}: nothing is recomputed, the layers keep {} at most", limit, text(choice.peak_bytes_without));
  std::string names = join(chosen, ", ");
  if (chosen.size() > 8) names = formatted("{} ... {}", join({chosen.begin(), chosen.begin() + 4}, ", "), chosen.back());
  const bool is_missed = choice.peak_bytes > *settings_.memory_limit;
  return formatted("{}: {} of {} layers are recomputed ({}): they keep {} at most, {} without; {} of the forward runs twice{}",
                   limit, chosen.size(), all.size(), names, text(choice.peak_bytes), text(choice.peak_bytes_without),
                   forward_seconds > 0 ? formatted("{:.0f}%", 100 * choice.seconds / forward_seconds) : "none",
                   is_missed ? "; the limit is missed: smaller micro-batches or finer layers keep less" : "");
}

RecomputationPlanner::Forward::Forward(std::shared_ptr<RecomputationPlanner> recomputing)
    : recomputing_(std::move(recomputing)), regions_before_(region_counts().everywhere) {
  forwards().push_back(recomputing_.get());
}
RecomputationPlanner::Forward::~Forward() {
  auto& stack = forwards();
  if (const auto found = std::find(stack.rbegin(), stack.rend(), recomputing_.get()); found != stack.rend())
    stack.erase(std::next(found).base());
  recomputing_->regions_ += region_counts().everywhere - regions_before_;
}

}  // namespace gannet::activation
