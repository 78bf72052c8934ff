// Keeps the program's torch::optim::Optimizer in sync with the engine, which steps in its place:
// its settings are exchanged with the groups, and the engine owns its states.
//
//   auto own = TorchOptimizer::of(optimizer);             // null: its rule is not known to be element-wise
//   group.optimizer = own->make_rule(g, device);          // updates the group's ranges (torch_rule.h)
//   own->follow(store, groups, applied_steps);            // adopts the program's changes since the last call
//   updater.update(...);
//   own->show_states(store, applied_steps);               // makes the new states visible in the program's object
//
// The object always holds the module's parameters. If a rank holds full states in device memory
// (stage 0, or one rank without offload), the object's states are views of them, so that the
// program can read, write and save them. Otherwise it has none, and the engine takes over any state
// that the program puts there: each rank takes its own part.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "params/range.h"
#include "params/store.h"
#include "update/torch_types.h"

namespace gannet {

class TorchOptimizer {
 public:
  static std::unique_ptr<TorchOptimizer> of(const std::shared_ptr<torch::optim::Optimizer>& optimizer);

  torch::optim::Optimizer& get() { return *program_; }
  /// `is_offloaded`: states are on a tier and do not outlive the engine.
  void set_offloaded(bool is_offloaded) { is_offloaded_ = is_offloaded; }
  std::unique_ptr<Optimizer> make_rule(size_t group, c10::Device device);
  /// Describes what ranks must agree on before the first step, in addition to the numbers: the class
  /// and, for each group, its switches, the first value of its states, and the kept states' names.
  std::string text() const;

  // ---- called during the audit of parameters, and after a load
  /// Takes over numbers and states. For changes that the engine cannot follow, throws an Error:
  /// kUnsupported, kOrder, kMismatch (a missing state) or kArgument (a state of another size).
  void follow(ParameterStore& store, std::vector<Group>& groups, int64_t applied_steps);
  /// The engine's number wins if the engine, a schedule or a load changed it since the last
  /// exchange; otherwise, the program's number wins.
  void exchange_numbers(std::vector<Group>& groups);
  /// Takes over all numbers and states, after the object was loaded from an archive.
  void take_all(ParameterStore& store, std::vector<Group>& groups, int64_t applied_steps);
  /// A hash of the states taken over since the last step; all ranks must have taken over the same
  /// ones.
  uint64_t taken_hash() const { return taken_hash_; }

  // ---- called after an update
  void show_states(ParameterStore& store, int64_t applied_steps);
  void end_step() { taken_hash_ = 0; }
  /// Called when the engine ends.
  void give_back(ParameterStore& store) noexcept;

 private:
  struct ParameterPlace {  // where a parameter and its states are
    Range& range;
    size_t index;
    size_t group;
    bool is_whole;  // the object has views of its states
    TrainedParameter& get() const { return range.parameters[index]; }
    const void* key() const;
  };
  TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> program, const TorchType& type);
  template <class Body>
  void for_each(ParameterStore& store, const Body& body);
  void check_groups(const std::vector<Group>& groups) const;
  void take_states(ParameterStore& store, int64_t applied_steps, bool all);
  bool are_ours(const ParameterPlace& place, TorchType::ParamState& states) const;
  void take(ParameterStore& store, const ParameterPlace& place, TorchType::ParamState* states, int64_t applied_steps);
  void count_taken(const ParameterPlace& place, int64_t count, const at::Tensor& flat);

  std::shared_ptr<torch::optim::Optimizer> program_;
  const TorchType& type_;
  std::vector<std::vector<const TorchType::State*>> kept_;  // [groups] states that have arrays
  std::vector<std::vector<double>> seen_;                   // [groups][numbers] values after the last exchange
  std::unordered_set<const void*> known_;                   // tensors of the object's groups
  bool is_offloaded_ = false;
  uint64_t taken_hash_ = 0;
};

}  // namespace gannet
