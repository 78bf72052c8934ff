// Detects changes that the program made to the parameters since the engine left them.
//
// Before every training forward and step, and at every save, the engine inspects each parameter: is
// its storage still the engine's, was it written in place (the version counter), and is its hook
// still the engine's? It also inspects the module: are there parameters that no engine knows, or
// that now require a gradient? This compares a few words per parameter and allocates
// nothing.
//
//   ModuleAudit audit(context, *module, store);
//   audit.look(reducer, [&](const auto& added) { join(added); });   // adopts what it can, throws for the rest
//   ... a step ...
//   audit.record();                                                 // remembers the parameters as they are now
//
// The engine adopts values from torch::load, set_data, to() and writes in place: each rank copies
// its part of them into the parameter in use and its master. Parameters that were unfrozen or added
// join the engine (join.cpp). Any other change is an error with the parameter's name. Writes
// through .data() do not advance the version, so if masters are separate from the parameters, some
// elements are compared as well (Left::sample).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "grads/reducer.h"
#include "params/rank_context.h"
#include "params/store.h"

namespace gannet {

class ModuleAudit {
 public:
  using NamedParameters = ParameterStore::NamedParameters;

  ModuleAudit(RankContext& context, torch::nn::Module& module, ParameterStore& store)
      : context_(context), module_(module), store_(store) {}

  /// Registers the group of a parameter that was passed to initialize, trained or frozen.
  void know(const void* identity, size_t group) { given_group_.emplace(identity, group); }
  /// `on`: the program passed the groups, so a new parameter is in none of them.
  void set_groups_are_given(bool on) { groups_are_given_ = on; }
  std::optional<size_t> group_of(const at::Tensor& parameter) const;
  /// True for a parameter that requires a gradient but is in no group. This has been logged, and
  /// the parameter is not trained.
  bool is_declined(const at::Tensor& parameter) const { return declined_.contains(parameter.unsafeGetTensorImpl()); }

  /// Returns the parameters of the module that require a gradient and will join at the next look().
  NamedParameters unknown() const;

  /// Every rank calls it. `join`: adds parameters that require a gradient and that this engine does
  /// not train yet.
  void look(Reducer& reducer, const std::function<void(const NamedParameters& added)>& join);
  void record();
  /// Returns the name of a parameter (of `group` or, without one, of any group) that the program
  /// has written since record(); "" if there is none.
  std::string written(std::optional<size_t> group = std::nullopt) const;
  /// Drops the memory that the program put in place of the store's, together with its values;
  /// called, for example, before a load.
  void reclaim();
  bool is_replaced(const TrainedParameter& parameter) const;                                    // whether it has new memory
  at::Tensor value_in_file_dtype(const Range& range, const TrainedParameter& parameter) const;  // in the dtype of its file
  /// Called before take_in() of parameters whose memory the program replaced. Throws
  /// Error(kArgument) if another tensor of the module uses the same memory. If the memory is
  /// another parameter's slot in the engine's buffers (two were swapped), the values are copied
  /// elsewhere.
  void prepare(const std::vector<const TrainedParameter*>& replaced) const;
  void take_in(Range& range, size_t parameter, bool is_replaced);
  /// Returns the value that the program assigned to the parameter, as real numbers. Throws
  /// Error(kArgument) for a different shape, or for a dtype that cannot be trained.
  at::Tensor value_given(const Range& range, size_t parameter, bool is_replaced) const;

  uint64_t written_hash() const { return written_hash_; }  // hash of the values taken in since the last step
  std::string written_names() const;  // the parameters' names: "'first.bias'", or the first three and the number of others
  void end_step() { written_hash_ = 0, written_names_.clear(); }
  /// Logs `what` on rank 0; among messages with the same beginning, only the first is logged.
  void say_once(const std::string& what);

  /// A parameter of the module that is not trained and that every rank holds in full.
  struct FrozenParameter {
    std::string name;
    at::Tensor tensor;
    bool is_written;  // written since the last compared()
  };
  std::vector<FrozenParameter> frozen() const;
  void compared(const std::vector<FrozenParameter>& frozen);

 private:
  struct KnownParameter {
    const void* identity;
    bool is_trained;
    size_t bytes;  // size of its storage, which torch::load replaces
    const void* storage;
    at::ScalarType dtype;
  };
  void record_module();
  bool is_module_as_recorded() const;
  struct ParameterChange {
    Range* range;
    size_t parameter;
    bool is_replaced;
  };
  std::vector<ParameterChange> changes() const;
  NamedParameters new_parameters(bool is_converted);

  RankContext& context_;
  torch::nn::Module& module_;
  ParameterStore& store_;
  std::vector<KnownParameter> known_;  // the module's parameters in order; a tied one once for each registration
  std::unordered_map<const void*, size_t> given_group_;
  bool groups_are_given_ = false;
  std::unordered_set<const void*> declined_;
  struct StorageVersion {
    const void* storage;
    uint32_t version;
    bool operator==(const StorageVersion&) const = default;
    static StorageVersion of(const at::Tensor& tensor);
  };
  std::unordered_map<const void*, StorageVersion> compared_;  // frozen parameters at compared()
  uint64_t written_hash_ = 0;
  std::set<std::string> written_names_;
  std::set<std::string> said_;
};

}  // namespace gannet
