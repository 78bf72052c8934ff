// Assigns each recorded operator to a module.
//
// In forward, an operator belongs to the module that owns the parameters it reads. If it reads
// none, it belongs to the lowest common ancestor of the modules of the nearest operators with
// parameters before and after it; before the first and after the last operator with parameters, it
// belongs to the model. In backward, the same holds for an operator that reads parameters; any
// other belongs to the module of the forward operator that created the autograd node that runs it.
// That node is found by its number, since autograd numbers nodes in the order of creation.
#include <algorithm>
#include <map>

#include "profiler/recorder.h"

namespace gannet::profiler {

std::vector<size_t> OperatorRecorder::attribute() const {
  std::vector<size_t> modules(events_.size(), Modules::kRoot);
  std::vector<size_t> forward;  // indices of forward's events, in execution order
  for (size_t e = 0; e < events_.size(); ++e)
    if (!events_[e].is_backward && events_[e].is_of_this_thread) forward.push_back(e);

  std::optional<size_t> before;
  std::vector<std::optional<size_t>> owner_before(forward.size());
  for (size_t i = 0; i < forward.size(); ++i) {
    owner_before[i] = before;
    if (const auto& own = events_[forward[i]].own) before = own;
  }
  std::optional<size_t> after;
  for (size_t i = forward.size(); i-- > 0;) {
    const Event& event = events_[forward[i]];
    if (event.own)
      modules[forward[i]] = *(after = event.own);
    else if (owner_before[i] && after)
      modules[forward[i]] = modules_.common_ancestor(*owner_before[i], *after);
  }

  for (size_t e = 0; e < events_.size(); ++e) {
    const Event& event = events_[e];
    if (event.own) modules[e] = *event.own;
    if (event.own || !event.node || *event.node < first_node_) continue;
    const uint64_t node = *event.node;
    auto maker = std::upper_bound(forward.begin(), forward.end(), node,
                                  [&](uint64_t number, size_t one) { return number < events_[one].next_node; });
    if (maker == forward.end()) continue;
    modules[e] = modules[*maker];
    // The node may have been created before the operators that it belongs to: a
    // torch::autograd::Function creates its node first, and then runs the operators of its forward,
    // which create no nodes.
    for (; maker != forward.end() && events_[*maker].first_node == node + 1 && events_[*maker].next_node == node + 1; ++maker)
      if (const auto& own = events_[*maker].own) {
        modules[e] = *own;
        break;
      }
  }
  return modules;
}

ModelProfile OperatorRecorder::profile() const {
  std::lock_guard lock(mutex_);
  ModelProfile profile;
  profile.modules = modules_.rows();
  profile.is_timed = is_timed_;
  const auto modules = attribute();

  std::vector<ModelProfile::Operator> operators(names_.size());
  std::map<std::string, int64_t> unknown;
  for (size_t e = 0; e < events_.size(); ++e) {
    const Event& event = events_[e];
    const ModelProfile::Work work{event.counted.flops, event.counted.macs, event.seconds};
    auto& module = profile.modules[modules[e]];
    (event.is_backward ? module.backward : module.forward) += work;
    if (!rules_[event.op]) ++unknown[names_[event.op]];
    auto& op = operators[event.op];
    ++(event.is_backward ? op.backward_calls : op.forward_calls);
    (event.is_backward ? op.backward : op.forward) += work;
  }
  for (const auto& [event, bytes] : alive_) profile.modules[modules[event]].memory.activations += bytes;
  for (size_t m = profile.modules.size(); m-- > 1;) {  // submodules come later
    auto &from = profile.modules[m], &to = profile.modules[modules_.parent(m)];
    to.forward += from.forward;
    to.backward += from.backward;
    to.memory += from.memory;
  }

  for (const auto& [name, calls] : unknown) profile.not_counted.push_back({name, calls});
  for (size_t i = 0; i < operators.size(); ++i) {
    if (!rules_[i]) continue;
    operators[i].name = names_[i];
    operators[i].kind = rules_[i]->kind;
    profile.operators.push_back(std::move(operators[i]));
  }
  const auto flops = [](const ModelProfile::Operator& op) { return op.forward.flops + op.backward.flops; };
  std::stable_sort(profile.operators.begin(), profile.operators.end(),
                   [&](const auto& a, const auto& b) { return flops(a) > flops(b); });
  return profile;
}

}  // namespace gannet::profiler
