// The program's own torch::optim::Optimizer beside the engine that steps in its place: what it is set to goes to the groups and
// back, and its states are the engine's.
//
//   auto own = TorchOptimizer::of(optimizer);             // null: its rule is not known to work element by element
//   group.optimizer = own->make_rule(g, device);          // what updates the group's ranges (torch_rule.h)
//   own->follow(store, groups, applied_steps);            // what the program did to its object since the last call
//   updater.update(...);
//   own->show_states(store, applied_steps);               // what it finds there from now on
//
// The object holds the module's parameters all the time. Where a rank has whole states in the device's memory (stage 0, or one
// rank without offload) the object's states are views of them, so that the program may read, write and save them. Elsewhere it
// has none: a state that the program puts there is taken over, each rank's part of it.
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
  /// `is_offloaded`: states lie on a tier, and end with the engine.
  void set_offloaded(bool is_offloaded) { is_offloaded_ = is_offloaded; }
  std::unique_ptr<Optimizer> make_rule(size_t group, c10::Device device);
  /// What ranks must agree on before the first step, beside the numbers: its class, and the switches of each group.
  std::string text() const;

  // ---- with the audit of parameters, and behind a load
  /// Numbers and states. Error(kUnsupported), Error(kOrder) on what the engine cannot follow.
  void follow(ParameterStore& store, std::vector<Group>& groups, int64_t applied_steps);
  /// Ours wins where the engine, a schedule or a load changed a number since the last time; else the program's.
  void exchange_numbers(std::vector<Group>& groups);
  /// The object was loaded from an archive: everything is as it says.
  void take_all(ParameterStore& store, std::vector<Group>& groups, int64_t applied_steps);
  /// Of the states that were taken over since the last step: ranks must have taken the same.
  uint64_t taken_hash() const { return taken_hash_; }

  // ---- behind an update
  void show_states(ParameterStore& store, int64_t applied_steps);
  void end_step() { taken_hash_ = 0; }
  /// At the engine's end.
  void give_back(ParameterStore& store) noexcept;

 private:
  struct Place {  // of one parameter
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
  bool are_ours(const Place& place, TorchType::ParamState& states) const;
  void take(ParameterStore& store, const Place& place, TorchType::ParamState* states, int64_t applied_steps);
  void count_taken(const Place& place, int64_t count, const at::Tensor& flat);

  std::shared_ptr<torch::optim::Optimizer> program_;
  const TorchType& type_;
  std::vector<std::vector<const TorchType::State*>> kept_;  // [groups] states that there are arrays for
  std::vector<std::vector<double>> seen_;                   // [groups][numbers] as they were after the last exchange
  std::unordered_set<const void*> known_;                   // tensors of its groups
  bool is_offloaded_ = false;
  uint64_t taken_hash_ = 0;
};

}  // namespace gannet
